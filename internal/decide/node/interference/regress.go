package interference

import "math"

// regress compares what neighbours use with how a victim waits, after what the victim's own load explains of that was taken away.
//
// It compares twice. Levels go together when two things are high at the same time. That alone blames whoever else is high
// then; so edges must go together too, which are how much higher two samples are than the two before. The score is the geometric
// mean of both correlations, levels twice. See docs/design/interference.md for what else was tried.
type regress struct {
	total int // samples of the victim
	n     int // of which so many are compared, the last ones
	waits [samples]float64
	loads [samples]float64
	used  [samples]float64 // of the neighbour
	level side
	edge  side
}

// side is the victim's waiting and own load, centred, as levels or as edges.
type side struct {
	wait, load  [samples]float64
	waits, owns float64 // sums of squares; owns is 0 if the own load explains nothing
	self        float64 // correlation of the two, before
	slope       float64
}

// victim begins with a victim, of whom so many samples before a slot count.
func (r *regress) victim(t *track, slot, n int) {
	r.total = n
	t.wait.last(slot, r.waits[:n])
	t.used.last(slot, r.loads[:n])
	r.prepare(n)
}

// prepare compares the last n samples.
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

// prepare takes from the waiting what goes with the own load. Where it waits less the more it uses, its waiting is what keeps it
// from using more.
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

// self returns how well the victim's own load goes with its waiting, in thousandths, and thousandths of the time a grain.
func (r *regress) self() (score, slope float32) {
	if r.n != r.total {
		r.prepare(r.total)
	}
	return float32(1000 * math.Sqrt(max(r.level.self, 0)*max(r.edge.self, 0))), float32(r.level.slope)
}

// neighbour puts into a track how well its use goes with the victim's waiting, and reports whether it varies at all.
func (r *regress) neighbour(t *track, slot int) bool {
	n := min(r.total, t.used.full)
	if n < least {
		return false
	}
	if n != r.n {
		r.prepare(n) // its samples are fewer than those of the one before
	}
	use := r.used[:n]
	t.used.last(slot, use)
	m := n - 1
	now, before := both(use, r.level.wait[:m], r.level.load[:m])
	if now.spread(m) < (idle/grain)*(idle/grain)*float64(m) {
		return false
	}
	level, slope := now.compare(m, &r.level)
	if c, s := before.compare(m, &r.level); c > level {
		level, slope = c, s
	}
	for i := range n - width + 1 {
		use[i] = edge(use, i+width-1) // what it takes the place of is not needed any more
	}
	m = n - width
	now, before = both(use[:m+1], r.edge.wait[:m], r.edge.load[:m])
	edges, _ := now.compare(m, &r.edge)
	e, _ := before.compare(m, &r.edge)
	level, edges = max(level, 0), max(edges, e, 0)
	t.score, t.slope = float32(1000*math.Cbrt(level*level*edges)), float32(slope)
	return true
}

// sums are those that a correlation is made of.
type sums struct{ u, uu, uw, uo float64 }

// both sums up what was used in the same samples as the victim waited, and in those before. There is one more of the use.
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

// compare returns the correlation of n values with the waiting, both less what the victim's own load explains, and the slope; 0 if
// one of them does not change.
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
