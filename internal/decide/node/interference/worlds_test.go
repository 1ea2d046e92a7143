package interference

import (
	"math"
	"math/rand/v2"
)

// world is a victim pod among neighbours, second by second. At most one neighbour causes the victim's waiting. The
// world is a signal for the statistics and contains no node, so fixture has nothing for it.
type world struct {
	r        *rand.Rand
	kind     kind
	guilty   int // of the neighbours; -1: none
	shape    shape
	others   []source // the neighbours
	own      source   // of the victim
	hidden   source   // what hurts and nobody sees
	hurt     float64  // thousandths of the victim's time for all that the guilty one uses at most
	self     float64  // thousandths that twice its own load adds
	lag      int      // seconds from the use to the waiting
	sigma    float64  // noise of the waiting, in thousandths
	drift    float64  // what persists of it
	wait     float64
	phase    float64
	period   float64
	past     [8]float64
	follower int // a neighbour that serves the victim, so that its load follows; -1: none
	second   int
	knee     float64   // milli-cores from which on CPUs are busy
	caps     []float64 // what neighbours may use; 0: as much as they like
}

// kind is why the victim waits.
type kind int

// The kinds of worlds.
const (
	linear     kind = iota // for one neighbour, the more it uses
	saturating             // for CPUs, once most are busy, which one neighbour sees to
	selfLinear             // for itself
	selfSquare             // for itself, more than in proportion
	outside                // for something that nobody measures
	quiet                  // a little, always
)

// shape is how a load changes.
type shape int

// The shapes of loads.
const (
	steady shape = iota
	step         // once, and stays
	bursts       // on and off
	ramps        // up and down within a minute or two
	walk         // about a mean, within some tens of seconds
)

// source is one load.
type source struct {
	shape        shape
	low, high    float64 // milli-cores
	trend        float64 // how much of it follows the time of day
	level, goal  float64 // 0..1
	until, start int
	noise        float64
}

// next returns what a source uses in a second.
func (s *source) next(r *rand.Rand, second int, daily float64) float64 {
	switch s.shape {
	case step:
		s.level = 0
		if second >= s.start {
			s.level = 1
		}
	case bursts:
		if second >= s.until {
			s.level = 1 - math.Round(s.level)
			s.until = second + 12 + r.IntN(70)
		}
	case ramps:
		if second >= s.until {
			s.goal = r.Float64()
			if s.level < 0.5 {
				s.goal = 0.6 + 0.4*r.Float64()
			} else {
				s.goal = 0.4 * r.Float64()
			}
			s.until = second + 40 + r.IntN(80)
		}
		s.level += (s.goal - s.level) / 25
	case walk:
		s.level += (0.5-s.level)/25 + 0.12*r.NormFloat64()
		s.level = min(max(s.level, 0), 1)
	}
	if second < s.start {
		s.level = 0
	}
	use := (s.low + (s.high-s.low)*s.level) * (1 + s.trend*daily)
	return max(use*(1+s.noise*r.NormFloat64()), 0)
}

// newWorld makes a world with so many neighbours. Two of the innocent ones are bursty, and all loads but that of the
// guilty one follow the same time of day.
func newWorld(k kind, seed uint64, neighbours int) *world {
	r := rand.New(rand.NewPCG(seed, uint64(k)))
	w := &world{r: r, kind: k, guilty: -1, follower: -1, lag: r.IntN(7), sigma: 15 + 35*r.Float64(),
		drift: 0.8 * r.Float64(),
		phase: 2 * math.Pi * r.Float64(), period: 1200 + 2400*r.Float64(), hurt: 150 + 300*r.Float64(),
		self: 20 + 40*r.Float64()}
	for i := range neighbours {
		s := source{shape: []shape{bursts, bursts, walk, ramps, steady}[i%5], low: 100 + 400*r.Float64(),
			high: 800 + 3000*r.Float64(), trend: 0.4 * r.Float64(), noise: 0.05}
		if s.shape == steady && r.IntN(2) == 0 {
			s.shape, s.start = step, r.IntN(500)
		}
		w.others = append(w.others, s)
	}
	w.own = source{shape: walk, low: 500, high: 1500, trend: 0.4, noise: 0.05}
	w.shape = shape(1 + r.IntN(4))
	switch k {
	case linear, saturating:
		w.guilty = r.IntN(neighbours)
		// The two bursty ones stay innocent.
		if w.guilty < 2 {
			w.guilty = 2 + r.IntN(neighbours-2)
		}
		w.others[w.guilty] = source{shape: w.shape, low: 50, high: 3000 + 4000*r.Float64(), start: 150 + r.IntN(200),
			noise: 0.03}
		w.knee = w.own.high + 0.2*w.others[w.guilty].high
		for i := range w.others {
			if i != w.guilty {
				w.knee += 0.2 * w.others[i].high
			}
		}
	case selfLinear, selfSquare:
		w.own = source{shape: w.shape, low: 400, high: 2500, trend: 0.4, noise: 0.05, start: 150 + r.IntN(200)}
		w.self = 150 + 200*r.Float64()
		if r.IntN(2) == 0 {
			w.follower = r.IntN(neighbours)
		}
	case outside:
		w.hidden = source{shape: w.shape, low: 0, high: 1, start: 150 + r.IntN(200)}
	}
	return w
}

// next lets a second pass: for how much of it the victim waited, what it used, and what each neighbour used.
func (w *world) next(use []float64) (wait, own float64) {
	daily := math.Sin(2*math.Pi*float64(w.second)/w.period + w.phase)
	own = w.own.next(w.r, w.second, daily)
	for i := range w.others {
		use[i] = w.others[i].next(w.r, w.second, daily)
	}
	if w.follower >= 0 {
		use[w.follower] = 0.8*own*(1+0.05*w.r.NormFloat64()) + 0.1*use[w.follower]
	}
	for i, most := range w.caps {
		if most > 0 {
			use[i] = min(use[i], most)
		}
	}
	hurt := 0.0
	switch w.kind {
	case linear:
		hurt = w.hurt * use[w.guilty] / w.others[w.guilty].high
	case saturating:
		sum := own
		for i, u := range use {
			if i != w.guilty {
				u *= 0.2
			}
			sum += u
		}
		g := &w.others[w.guilty]
		hurt = w.hurt * max(sum-w.knee, 0) / (0.8 * g.high)
	case outside:
		hurt = w.hurt * w.hidden.next(w.r, w.second, daily)
	}
	copy(w.past[1:], w.past[:])
	w.past[0] = hurt
	hurt = w.past[w.lag]
	load := own / 1000
	switch w.kind {
	case selfLinear:
		hurt += w.self * load / 2
	case selfSquare:
		hurt += w.self * load * load / 4
	default:
		hurt += w.self * load
	}
	w.wait = w.drift*w.wait + math.Sqrt(1-w.drift*w.drift)*w.sigma*w.r.NormFloat64()
	w.second++
	return min(max(hurt+w.wait, 0), 1000), own
}

var names = [...]string{"linear", "saturating", "self", "self, square", "outside", "quiet"}
