package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	viewInterval = 2 * time.Second // between two views that are computed, for all callers
	maxGone      = 1000            // removed nodes that are remembered for callers with an older view
)

// view is all nodes as of a moment, ordered by name. Views are numbered, and number and instance together are the
// revision that callers hold.
type view struct {
	at     time.Time
	number uint64 // grows when a view differs from the one before
	rows   []viewRow
	gone   []goneRow
	lost   uint64 // the view up to which removed nodes were forgotten
	all    *encoded
}

type viewRow struct {
	name    string
	source  uint64 // revision of the node
	state   state
	changed uint64 // the view in which it changed
	json    json.RawMessage
}

type goneRow struct {
	name    string
	changed uint64
}

// nodes answers with all nodes or, with since, those that have changed since a revision.
func (s *Server) nodes(r *http.Request, c *caller) (any, error) {
	if err := s.mustListNodes(r.Context(), c); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.o.Now(); s.view == nil || now.Sub(s.view.at) >= viewInterval || now.Before(s.view.at) {
		s.view = s.look(now, s.view)
	}
	v := s.view
	instance, text, _ := strings.Cut(r.URL.Query().Get("since"), ".")
	since, err := strconv.ParseUint(text, 10, 64)
	if err == nil && instance == s.instance && since > 0 && since >= v.lost && since <= v.number {
		return s.part(v, since), nil
	}
	if v.all == nil {
		plain, err := json.Marshal(s.part(v, 0))
		if err != nil {
			return nil, fmt.Errorf("encoding the nodes: %w", err)
		}
		v.all = &encoded{plain, zip(plain)}
	}
	return v.all, nil
}

// part returns the nodes that changed after a view; 0: all nodes.
func (s *Server) part(v *view, since uint64) map[string]any {
	nodes, gone := []json.RawMessage{}, []string{}
	for i := range v.rows {
		if v.rows[i].changed > since {
			nodes = append(nodes, v.rows[i].json)
		}
	}
	for _, g := range v.gone {
		if since > 0 && g.changed > since {
			gone = append(gone, g.name)
		}
	}
	return map[string]any{
		"revision": fmt.Sprintf("%s.%d", s.instance, v.number), "full": since == 0, "nodes": nodes, "gone": gone,
	}
}

// look makes a view. Rows that have not changed since the last view are taken from it.
func (s *Server) look(now time.Time, last *view) *view {
	if last == nil {
		last = &view{}
	}
	rows, _ := s.reports.All()
	number, differs := last.number+1, last.number == 0
	next := &view{at: now, lost: last.lost, rows: make([]viewRow, 0, len(rows))}
	old := make(map[string]*viewRow, len(last.rows))
	for i := range last.rows {
		old[last.rows[i].name] = &last.rows[i]
	}
	for name, n := range rows {
		row := viewRow{name: name, source: n.revision, state: n.state(now), changed: number}
		before := old[name]
		delete(old, name)
		if before != nil && before.source == row.source && before.state == row.state {
			next.rows = append(next.rows, *before)
			continue
		}
		row.json = rowJSON(name, &n, row.state)
		if before != nil && bytes.Equal(before.json, row.json) {
			row.changed = before.changed // everything was listed again
		}
		differs = differs || row.changed == number
		next.rows = append(next.rows, row)
	}
	slices.SortFunc(next.rows, func(a, b viewRow) int { return strings.Compare(a.name, b.name) })
	for _, g := range last.gone {
		if _, back := rows[g.name]; !back {
			next.gone = append(next.gone, g)
		}
	}
	for name := range old {
		next.gone, differs = append(next.gone, goneRow{name, number}), true
	}
	if over := len(next.gone) - maxGone; over > 0 {
		next.lost = next.gone[over-1].changed
		next.gone = slices.Clone(next.gone[over:])
	}
	if next.number = number; !differs {
		next.number, next.all = last.number, last.all
	}
	return next
}

// rowJSON encodes one node: name, state, policy, CPU, memory, pressure, harm signal, time of the report, and why it is
// hot. A list costs half of what an object does, which counts for thousands of nodes.
func rowJSON(name string, n *node, at state) json.RawMessage {
	resource := func(a *account) []any {
		if !a.measured {
			return nil
		}
		all := amounts(a, 1)
		if !a.batchKnown {
			all[4] = nil
		}
		return all
	}
	var pressure []int32
	if p := n.pressure; p != nil {
		pressure = []int32{p.CPU, p.Memory, p.IO}
	}
	row, err := json.Marshal([]any{name, at, n.policy, resource(&n.cpu), resource(&n.memory), pressure, n.harm, n.changed,
		n.hot})
	if err != nil {
		return nil // no type here can fail
	}
	return row
}
