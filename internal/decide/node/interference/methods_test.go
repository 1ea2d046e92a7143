package interference

import (
	"flag"
	"math"
	"slices"
	"testing"
)

var methods = flag.Bool("methods", false, "compare methods to find who is guilty")

// method says how well the use of each neighbour goes with the waiting, and with what slope. The rest is as in the
// rule.
type method struct {
	name  string
	judge func(wait, own []float64, uses [][]float64) (scores, slopes []float64)
}

// TestMethods makes the table of docs/design/interference.md: for each method the lowest threshold, in steps of 0.02,
// with which an innocent neighbour is named in no more than 4 % of the worlds of any kind, and how often the guilty one
// is named then. The last column is how often somebody is named, with that threshold, if there are thirty neighbours
// and all are innocent.
func TestMethods(t *testing.T) {
	if !*methods {
		t.Skip("-args -methods")
	}
	levels := func(x []float64) []float64 { return slices.Clone(x) }
	all := []method{
		{"levels", correlate(levels, 1, false)},
		{"CPI²", cpi2},
		{"levels less own load", correlate(levels, 1, true)},
		{"the same, without a lag", correlate(levels, 0, true)},
		{"less a trend too", correlate(detrended, 1, true)},
		{"less the runner-up too", joint},
		{"differences", correlate(edgesOf(1), 1, true)},
		{"edges of 2 samples", correlate(edgesOf(2), 1, true)},
		{"edges of 3 samples", correlate(edgesOf(3), 1, true)},
		{"levels and edges, one to one", mixed(0.5)},
		{"levels and edges, two to one", mixed(2.0 / 3)},
	}
	for _, m := range all {
		compare(t, m)
	}
}

func compare(t *testing.T, m method) {
	const worlds = 200
	var steps [quiet + 1][worlds][]fit
	var guilty [quiet + 1][worlds]int
	for k := range steps {
		for seed := range uint64(worlds) {
			w := newWorld(kind(k), 1000+seed, 4)
			guilty[k][seed] = w.guilty
			steps[k][seed] = m.play(w)
		}
	}
	for least := 0.1; least < 1; least += 0.02 {
		var good, bad [quiet + 1]int
		worst := 0
		for k := range steps {
			for seed := range steps[k] {
				switch named := namedFirst(steps[k][seed], least); {
				case named < 0:
				case named == guilty[k][seed]:
					good[k]++
				default:
					bad[k]++
				}
			}
			worst = max(worst, bad[k])
		}
		if worst*25 <= worlds || least > 0.97 {
			many := 0
			for seed := range uint64(worlds / 2) {
				if namedFirst(m.play(newWorld(outside, 1000+seed, 30)), least) >= 0 {
					many++
				}
			}
			t.Logf("| %-28s | %.2f | %3d %% | %3d %% | %.1f %% | %d %% |",
				m.name, least, 100*good[linear]/worlds, 100*good[saturating]/worlds, 100*float64(worst)/worlds, 100*many*2/worlds)
			return
		}
	}
}

// fit is who fits best in one span.
type fit struct {
	who   int
	score float64
}

func namedFirst(steps []fit, least float64) int {
	last := -1
	for _, s := range steps {
		if s.score < least {
			last = -1
			continue
		}
		if s.who == last {
			return last
		}
		last = s.who
	}
	return -1
}

// play lets ten minutes pass.
func (m method) play(w *world) []fit {
	var steps []fit
	var wait, own []float64
	uses, use := make([][]float64, len(w.others)), make([]float64, len(w.others))
	for range 120 {
		var a, b float64
		sum := make([]float64, len(use))
		for range 5 {
			x, y := w.next(use)
			a, b = a+x/5, b+y/5
			for i := range use {
				sum[i] += use[i] / 5
			}
		}
		wait, own = window(wait, a), window(own, b)
		for i := range uses {
			uses[i] = window(uses[i], sum[i])
		}
		if len(wait) < minSamples {
			continue
		}
		now, low := ends(wait)
		if now < minVictimWait || now-low < minRise {
			steps = append(steps, fit{})
			continue
		}
		scores, slopes := m.judge(wait, own, uses)
		who := 0
		for i := range scores {
			if scores[i] > scores[who] {
				who = i
			}
		}
		s := fit{who, scores[who]}
		if high, least := ends(uses[who]); slopes[who]*(high-least)*1000 < minExplained*(now-low) {
			s.score = 0
		}
		steps = append(steps, s)
	}
	return steps
}

func window(x []float64, v float64) []float64 {
	x = append(x, v)
	return x[max(0, len(x)-maxSamples):]
}

// ends returns the mean of what is now, and that of the lowest quarter.
func ends(x []float64) (now, low float64) {
	sorted := slices.Sorted(slices.Values(x))
	for _, v := range sorted[:len(x)/4] {
		low += v / float64(len(x)/4)
	}
	for _, v := range x[len(x)-recentSpans:] {
		now += v / recentSpans
	}
	return now, low
}

func edgesOf(k int) func(x []float64) []float64 {
	return func(x []float64) []float64 {
		var y []float64
		for i := 2*k - 1; i < len(x); i++ {
			sum := 0.0
			for j := range k {
				sum += x[i-j] - x[i-k-j]
			}
			y = append(y, sum)
		}
		return y
	}
}

func detrended(x []float64) []float64 {
	line := make([]float64, len(x))
	for i := range line {
		line[i] = float64(i)
	}
	x = slices.Clone(x)
	centre(line)
	centre(x)
	return without(x, line)
}

// correlate correlates filtered series, at the best lag, less what goes with the own load.
func correlate(
	filter func(x []float64) []float64, lags int, own bool,
) func(wait, load []float64, uses [][]float64) (scores, slopes []float64) {
	return func(wait, load []float64, uses [][]float64) (scores, slopes []float64) {
		scores, slopes = make([]float64, len(uses)), make([]float64, len(uses))
		v, o := filter(wait[lags:]), filter(load[lags:])
		centre(v)
		centre(o)
		less := own && dot(v, o) > 0
		if less {
			v = without(v, o)
		}
		for i, use := range uses {
			for lag := range lags + 1 {
				u := filter(use[lags-lag : len(use)-lag])
				centre(u)
				if less {
					u = without(u, o)
				}
				if r := dot(u, v) / math.Sqrt(dot(u, u)*dot(v, v)); r > scores[i] {
					scores[i], slopes[i] = r, dot(u, v)/dot(u, u)
				}
			}
		}
		return scores, slopes
	}
}

// mixed is a mean of levels and edges, as in the rule.
func mixed(part float64) func(wait, load []float64, uses [][]float64) (scores, slopes []float64) {
	levels, edges := correlate(func(x []float64) []float64 { return slices.Clone(x) }, 1, true),
		correlate(edgesOf(2), 1, true)
	return func(wait, load []float64, uses [][]float64) (scores, slopes []float64) {
		scores, slopes = levels(wait, load, uses)
		others, _ := edges(wait, load, uses)
		for i := range scores {
			scores[i] = math.Pow(scores[i], part) * math.Pow(others[i], 1-part)
		}
		return scores, slopes
	}
}

// joint is what the best one still explains beside the next best, by levels.
func joint(wait, load []float64, uses [][]float64) (scores, slopes []float64) {
	scores, slopes = correlate(func(x []float64) []float64 { return slices.Clone(x) }, 1, true)(wait, load, uses)
	first, second := 0, 1
	for i := range scores {
		if scores[i] > scores[first] {
			first, second = i, first
		} else if i != first && (second == first || scores[i] > scores[second]) {
			second = i
		}
	}
	u, v, x := slices.Clone(uses[first]), slices.Clone(wait), slices.Clone(uses[second])
	centre(u)
	centre(v)
	centre(x)
	if dot(v, x) > 0 {
		u, v = without(u, x), without(v, x)
		scores[first] = min(scores[first], dot(u, v)/math.Sqrt(dot(u, u)*dot(v, v)))
	}
	scores[second] = 0
	return scores, slopes
}

// cpi2 is the correlation of Zhang et al., CPI²: CPU performance isolation for shared compute clusters (EuroSys 2013),
// §4.2, with the waiting in place of the cycles per instruction. It has no slope.
func cpi2(wait, _ []float64, uses [][]float64) (scores, slopes []float64) {
	_, low := ends(wait)
	threshold := max(low+minRise, minVictimWait)
	for _, use := range uses {
		sum, score := 0.0, 0.0
		for _, u := range use {
			sum += u
		}
		for i, u := range use {
			if wait[i] > threshold {
				score += u / sum * (1 - threshold/wait[i])
			} else {
				score += u / sum * (wait[i]/threshold - 1)
			}
		}
		scores, slopes = append(scores, score), append(slopes, math.Inf(1))
	}
	return scores, slopes
}

// without returns the rest of x that y does not explain.
func without(x, y []float64) []float64 {
	x = slices.Clone(x)
	subtract(x, y)
	return x
}
