package culprit

import "math"

// regress compares what neighbours use with how a victim waits, after what the victim's own load explains of that was taken away.
//
// It compares twice. Levels go together when two things are high at the same time. That alone blames whoever else is high
// then; so edges must go together too, which are how much higher two samples are than the two before. The score is the geometric
// mean of both correlations. See docs/design/culprit.md for what else was tried.
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
	m := n - lags + 1
	copy(r.level.wait[:m], waits[lags-1:])
	copy(r.level.load[:m], loads[lags-1:])
	r.level.prepare(m)
	for i := width - 1; i < m; i++ {
		r.edge.wait[i-width+1] = edge(waits[lags-1:], i)
		r.edge.load[i-width+1] = edge(loads[lags-1:], i)
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
	var level, edges, slope float64
	varies := false
	m := n - lags + 1
	for lag := range lags {
		u := use[lags-1-lag:][:m]
		var l, e sums
		w, o := r.level.wait[:m], r.level.load[:m]
		for i, v := range u {
			l.add(v, w[i], o[i])
		}
		w, o = r.edge.wait[:m-width+1], r.edge.load[:m-width+1]
		for i := range w {
			e.add(u[i+3]+u[i+2]-u[i+1]-u[i], w[i], o[i])
		}
		varies = varies || l.spread(m) >= (idle/grain)*(idle/grain)*float64(m)
		if c, b := l.compare(m, &r.level); c > level {
			level, slope = c, b
		}
		c, _ := e.compare(m-width+1, &r.edge)
		edges = max(edges, c)
	}
	if !varies {
		return false
	}
	t.score, t.slope = float32(1000*math.Cbrt(level*level*edges)), float32(slope)
	return true
}

// sums are those that a correlation is made of.
type sums struct{ u, uu, uw, uo float64 }

func (s *sums) add(u, wait, own float64) {
	s.u += u
	s.uu += u * u
	s.uw += u * wait
	s.uo += u * own
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
