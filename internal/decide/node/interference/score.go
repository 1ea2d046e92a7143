package interference

import "math"

// score is how well the use of a pod goes with the victim's waiting.
type score struct {
	fit   float64 // in thousandths
	slope float64 // thousandths of the victim's time for each milli-core
}

// scoreOf compares the use of a neighbour with the waiting of a victim, less the part of the waiting that the victim's
// own load explains. All three have the same samples. It returns false if the use hardly varies.
//
// It compares twice. Levels correlate when two quantities are high at the same time. Alone, they would incriminate any
// pod that happens to be busy then. So edges must correlate too: how much higher two samples are than the two before.
// The score is the geometric mean of both correlations, with levels counted twice. docs/design/interference.md says
// what else was tried.
func scoreOf(wait, own, use []float64) (score, bool) {
	n := len(wait)
	var b [3][maxSamples]float64
	if u := level(&b[0], use[1:]); dot(u, u) < minVariation*minVariation*float64(n-1) {
		return score{}, false
	}
	var levels, edges, slope float64
	for lag := range 2 { // the neighbour's use is felt in the same sample or in the next one
		w, o, u := wait[1:], own[1:], use[1-lag:n-lag]
		if r, s := correlation(level(&b[0], w), level(&b[1], o), level(&b[2], u)); r > levels {
			levels, slope = r, s
		}
		r, _ := correlation(edge(&b[0], w), edge(&b[1], o), edge(&b[2], u))
		edges = max(edges, r)
	}
	return score{1000 * math.Cbrt(levels*levels*edges), slope}, true
}

// level copies a series, centred.
func level(into *[maxSamples]float64, x []float64) []float64 {
	return centre(into[:copy(into[:], x)])
}

// edge returns how much higher two samples each are than the two before, centred.
func edge(into *[maxSamples]float64, x []float64) []float64 {
	n := 0
	for i := 3; i < len(x); i++ {
		into[n] = x[i] + x[i-1] - x[i-2] - x[i-3]
		n++
	}
	return centre(into[:n])
}

// correlation returns the correlation of a use with the waiting, both less what the victim's own load explains, and the
// slope. Both are 0 if one of them does not change. A victim that waits less when it uses more is kept from using more
// by its waiting, so its load explains nothing then.
func correlation(wait, own, use []float64) (r, slope float64) {
	spread := dot(use, use)
	if dot(wait, own) > 0 {
		subtract(wait, own)
		subtract(use, own)
	}
	waits, rest := dot(wait, wait), dot(use, use)
	if waits < 1 || rest < 1 || rest < 1e-6*spread {
		return 0, 0
	}
	both := dot(use, wait)
	return both / math.Sqrt(rest*waits), both / rest
}

// subtract takes from x what goes with y.
func subtract(x, y []float64) {
	slope := dot(x, y) / dot(y, y)
	for i := range x {
		x[i] -= slope * y[i]
	}
}

func dot(x, y []float64) (sum float64) {
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

func centre(x []float64) []float64 {
	mean := 0.0
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for i := range x {
		x[i] -= mean
	}
	return x
}
