package web

import "time"

const (
	fine        = 15 * time.Second
	coarse      = 5 * time.Minute
	fineCount   = int(time.Hour / fine)
	coarseCount = int(24 * time.Hour / coarse)
)

// sums are the sums over the nodes whose reports count: CPU in milli-cores, memory in MiB.
type sums struct {
	nodes   int // whose reports count
	unknown int // of these, nodes that do not report what batch uses
	absent  int // nodes whose reports do not count, because they are too old or their agent is lost
	cpu     account
	memory  account
}

func (s *sums) add(n *node, now time.Time) {
	if at := n.state(now); at == silent || at == withdrawn {
		s.absent++
		return
	}
	s.nodes++
	if n.cpu.measured && !n.cpu.batchKnown {
		s.unknown++
	}
	s.cpu.add(&n.cpu)
	s.memory.add(&n.memory)
}

func (a *account) add(b *account) {
	a.capacity, a.ceiling, a.system = a.capacity+b.capacity, a.ceiling+b.ceiling, a.system+b.system
	a.online, a.batch, a.allowance = a.online+b.online, a.batch+b.batch, a.allowance+b.allowance
	a.offer, a.bound = a.offer+b.offer, a.bound+b.bound
}

// point is the mean of the cluster's sums over a time.
type point struct {
	at      int64 // when the time began, in seconds since 1970
	samples int64 // that the sums have; 0: none
	sums
}

// history is the past of the cluster: an hour in steps of 15 s, and a day in steps of five minutes. Its size does not
// depend on the cluster's. It begins with the process, and ends with it.
type history struct {
	fine     ring
	coarse   ring
	batch    float64 // core-seconds that batch used
	sold     float64 // core-seconds that batch pods requested
	measured time.Duration
}

// ring has the last points. The newest is still open.
type ring struct{ points []point }

func (h *history) add(now time.Time, s sums) {
	h.fine.add(now, fine, fineCount, s)
	h.coarse.add(now, coarse, coarseCount, s)
	h.batch += float64(s.cpu.batch) / 1000 * fine.Seconds()
	h.sold += float64(s.cpu.bound) / 1000 * fine.Seconds()
	h.measured += fine
}

func (r *ring) add(now time.Time, step time.Duration, most int, s sums) {
	at := now.Truncate(step).Unix()
	if last := len(r.points) - 1; last < 0 || r.points[last].at != at {
		if last >= 0 && r.points[last].at > at {
			r.points = nil // the clock was set back
		}
		r.points = append(r.points, point{at: at})
		if over := len(r.points) - most; over > 0 {
			r.points = append(r.points[:0], r.points[over:]...)
		}
	}
	p := &r.points[len(r.points)-1]
	p.samples++
	p.nodes += s.nodes
	p.unknown += s.unknown
	p.absent += s.absent
	p.cpu.add(&s.cpu)
	p.memory.add(&s.memory)
}
