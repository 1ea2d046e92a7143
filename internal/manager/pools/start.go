package pools

import "time"

// start is when the process of a worker was started last.
type start struct {
	said time.Time // by the clock of its node; zero: it was not started
	at   time.Time // by the clock of the manager
}

// startOf returns when the process of a pod's worker was started last, by the clock of the manager; zero: it was not.
// The clock of a node may be minutes off: by it, a NodeManager that has just started would have had enough time to
// register. A start that the manager did not see happen is as the node says, as far as that can be true.
func (r *round) startOf(p *podRow) time.Time {
	was, known := r.k.starts[p.uid]
	is := start{p.started, p.started}
	switch {
	case known && was.said.Equal(p.started):
		return was.at
	case p.started.IsZero() || p.started.Equal(p.created): // not by the clock of the node
	case known, p.started.After(r.now):
		is.at = r.now
	case p.started.Before(p.created):
		is.at = p.created
	}
	if r.k.starts == nil {
		r.k.starts = map[string]start{}
	}
	r.k.starts[p.uid] = is
	return is.at
}
