package predict

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// sample is one that the dumb version keeps.
type sample struct {
	slot  int64
	value float64
}

// dumb keeps every sample and looks at all of them each time.
type dumb []sample

func (d dumb) most(from, to int64) float64 {
	most := -1.0
	for _, s := range d {
		if from <= s.slot && s.slot < to {
			most = max(most, s.value)
		}
	}
	return most
}

// around is what was used on other days, as the package's comment says it.
func (d dumb) around(current int64) float64 {
	return d.days(current, 4, 0.25, func(int64, int64) bool { return true })
}

// ahead is the same for so many quarter-hours, of days on which at least three in four of them were measured.
func (d dumb) ahead(current, quarters int64) float64 {
	return d.days(current, quarters, 0.5, func(from, to int64) bool {
		measured := map[int64]bool{}
		for _, s := range d {
			if from <= s.slot && s.slot < to {
				measured[s.slot] = true
			}
		}
		return int64(len(measured))*4 >= (to-from)*3
	})
}

func (d dumb) days(current, quarters int64, highest float64, counts func(from, to int64) bool) float64 {
	var days []float64
	weekAgo := -1.0
	for n := int64(1); n <= 7; n++ {
		from, to := current-n*96-3, current-n*96+4+quarters
		if v := d.most(from, to); v >= 0 && counts(from, to) {
			days = append(days, v)
			if n == 7 {
				weekAgo = v
			}
		}
	}
	if len(days) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range days {
		sum += v
	}
	return max(highest*slices.Max(days)+(1-highest)*sum/float64(len(days)), weekAgo)
}

// TestDumb compares what is taken from the ring of quarter-hours with a dumb version that keeps all samples.
func TestDumb(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 10 {
		var p Predictor
		var d dumb
		c := Config{Limit: 1000}
		at := start.Add(time.Duration(random.IntN(86400)) * time.Second)
		for i := range 1500 {
			v := random.ExpFloat64() * 100
			p.Observe(c, at, v)
			current := slot(at.UnixNano())
			d = append(d, sample{current, v})
			if i%50 == 49 {
				for name, pair := range map[string][2]float64{
					"around":      {p.around.value(), d.around(current)},
					"four hours":  {p.OtherDays(at, 16), d.ahead(current, 16)},
					"eight hours": {p.OtherDays(at, 32), d.ahead(current, 32)},
					"day's base":  {p.base(model.Day, current), d.most(current-past+1, current+1)},
					"hour's base": {
						p.base(model.Hour, current) - 0.75*math.Sqrt(p.spread),
						max(d.most(current-3, current+1), d.around(current)),
					},
				} {
					if math.Abs(pair[0]-pair[1]) > 0.01*pair[1] {
						t.Fatalf("after %d samples: %s is %g, not %g", i+1, name, pair[0], pair[1])
					}
				}
			}
			at = at.Add(time.Duration(4+random.IntN(12)) * time.Minute)
			if random.IntN(300) == 0 {
				at = at.Add(time.Duration(random.IntN(30)) * time.Hour)
			}
		}
	}
}

// TestPeak checks that values are rounded up, by less than 0.4 %, and compare as before.
func TestPeak(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	before, beforePeak := 0.0, encode(0)
	var values []float64
	for range 2000 {
		values = append(values, math.Exp(random.NormFloat64()*20))
	}
	slices.Sort(values)
	for _, v := range values {
		p := encode(v)
		if got := p.value(); got < v || v > 1e-30 && got > v*1.004 {
			t.Fatalf("%g is kept as %g", v, got)
		}
		if p < beforePeak {
			t.Fatalf("%g and %g are kept in the wrong order", before, v)
		}
		before, beforePeak = v, p
	}
	for _, v := range []float64{0, math.MaxFloat64, math.MaxFloat32} {
		if got := encode(v).value(); math.IsInf(got, 0) || got < min(v, 1e38) {
			t.Errorf("%g is kept as %g", v, got)
		}
	}
	if peak(0).value() != 0 || encode(0) == 0 {
		t.Error("a measured 0 is not the same as nothing measured")
	}
}

// TestMargin compares the margin with that of a list of errors.
func TestMargin(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	var e record
	var all []float64
	for range 20000 { // so many that what was assumed is forgotten
		share := max(random.NormFloat64()*0.2, 0)
		e.open[0] = asked{base: encode(50), peak: encode(60)}
		e.learn(model.Hour, 0, encode(50+share*50), 100)
		all = append(all, share)
	}
	all = all[len(all)-4*672:]
	slices.Sort(all)
	for _, target := range []float64{0.01, 0.03, 0.1} {
		want := all[int(float64(len(all))*(1-target))]
		if got := e.margin(model.Hour, target); math.Abs(got-want) > 0.05 {
			t.Errorf("target %g: margin %g, not %g", target, got, want)
		}
	}
}
