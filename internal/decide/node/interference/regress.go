package interference

import "math"

// regress compares the use of neighbours with the waiting of a victim, less the part of the waiting that the victim's
// own load explains.
//
// It compares twice. Levels correlate when two quantities are high at the same time. Alone, they would incriminate any
// pod that happens to be busy then. So edges must correlate too: how much higher two samples are than the two before.
// The score is the geometric mean of both correlations, with levels counted twice. docs/design/interference.md says
// what else was tried.
type regress struct {
	total int // samples of the victim
	n     int // newest of them that are compared
	waits [samples]float64
	loads [samples]float64
	used  [samples]float64 // of the neighbour
	level side
	edge  side
}

// side is the victim's waiting and its own load, both centred, as levels or as edges.
type side struct {
	wait, load  [samples]float64
	waits, owns float64 // sums of squares; owns is 0 if the own load explains nothing
	self        float64 // correlation of waiting and own load
	slope       float64
}

// victim begins with a victim, of which the n newest samples count.
func (r *regress) victim(s *State, t *Track, n int) {
	r.total = n
	s.newest(t, wait, r.waits[:n])
	s.newest(t, used, r.loads[:n])
	r.prepare(n)
}

// prepare selects the n newest samples.
func (r *regress) prepare(n int) {
	r.n = n
	waits, loads := r.waits[r.total-n:r.total], r.loads[r.total-n:r.total]
	m := n - 1 // the neighbour's use is felt in the same sample or in the next one
	copy(r.level.wait[:m], waits[1:])
	copy(r.level.load[:m], loads[1:])
	r.level.prepare(m)
	for i := width - 1; i < m; i++ {
		r.edge.wait[i-width+1] = edge(waits[1:], i)
		r.edge.load[i-width+1] = edge(loads[1:], i)
	}
	r.edge.prepare(m - width + 1)
}

func edge(x []float64, i int) float64 { return x[i] + x[i-1] - x[i-2] - x[i-3] }

// prepare subtracts from the waiting the part that goes with the own load. A victim that waits less when it uses more
// is kept from using more by its waiting, so nothing is subtracted then.
func (s *side) prepare(n int) {
	centre(s.wait[:n])
	centre(s.load[:n])
	var ww, wo, oo float64
	for i, w := range s.wait[:n] {
		o := s.load[i]
		ww, wo, oo = ww+w*w, wo+w*o, oo+o*o
	}
	s.waits, s.owns, s.self, s.slope = ww, 0, 0, 0
	if wo <= 0 || oo <= 0 {
		return
	}
	s.owns, s.self, s.slope = oo, wo/math.Sqrt(ww*oo), wo/oo
	for i := range n {
		s.wait[i] -= s.slope * s.load[i]
	}
	s.waits = max(ww-wo*s.slope, 0)
}

func centre(x []float64) {
	mean := 0.0
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for i := range x {
		x[i] -= mean
	}
}

// self returns how well the victim's own load goes with its waiting.
func (r *regress) self() score {
	if r.n != r.total {
		r.prepare(r.total)
	}
	return score{
		fit:   float32(1000 * math.Sqrt(max(r.level.self, 0)*max(r.edge.self, 0))),
		slope: float32(r.level.slope),
	}
}

// neighbour returns how well the use of a pod goes with the victim's waiting; false if its use hardly varies.
func (r *regress) neighbour(s *State, t *Track) (score, bool) {
	n := min(r.total, int(t.Used.Full))
	if n < least {
		return score{}, false
	}
	if n != r.n {
		r.prepare(n) // it has fewer samples than the neighbour before
	}
	use := r.used[:n]
	s.newest(t, used, use)
	m := n - 1
	now, before := both(use, r.level.wait[:m], r.level.load[:m])
	if now.spread(m) < (idle/grain)*(idle/grain)*float64(m) {
		return score{}, false
	}
	level, slope := now.compare(m, &r.level)
	if c, s := before.compare(m, &r.level); c > level {
		level, slope = c, s
	}
	for i := range n - width + 1 {
		use[i] = edge(use, i+width-1) // the sample that it overwrites is not needed any more
	}
	m = n - width
	now, before = both(use[:m+1], r.edge.wait[:m], r.edge.load[:m])
	edges, _ := now.compare(m, &r.edge)
	e, _ := before.compare(m, &r.edge)
	level, edges = max(level, 0), max(edges, e, 0)
	return score{fit: float32(1000 * math.Cbrt(level*level*edges)), slope: float32(slope)}, true
}

// sums are the sums that a correlation is computed from.
type sums struct{ u, uu, uw, uo float64 }

// both sums up the use in the same samples as the victim's waiting, and in the samples before. Use has one sample more.
func both(use, wait, own []float64) (now, before sums) {
	first, use := use[0], use[1:]
	last := first
	wait, own = wait[:len(use)], own[:len(use)]
	var u, uu, uw, uo, pw, po float64 // all at once: each sum alone would wait for itself
	for i, v := range use {
		w, o := wait[i], own[i]
		u, uu = u+v, uu+v*v
		uw, uo = uw+v*w, uo+v*o
		pw, po = pw+last*w, po+last*o
		last = v
	}
	return sums{u, uu, uw, uo}, sums{u - last + first, uu - last*last + first*first, pw, po}
}

func (s *sums) spread(n int) float64 { return s.uu - s.u*s.u/float64(n) }

// compare returns the correlation of n values with the waiting, both less what the victim's own load explains, and the
// slope. Both are 0 if one of them does not change.
func (s *sums) compare(n int, with *side) (correlation, slope float64) {
	spread := s.spread(n)
	rest := spread
	if with.owns > 0 {
		rest -= s.uo * s.uo / with.owns
	}
	if with.waits < 1 || rest < 1e-6*spread || rest < 1 {
		return 0, 0
	}
	return s.uw / math.Sqrt(rest*with.waits), s.uw / rest
}
