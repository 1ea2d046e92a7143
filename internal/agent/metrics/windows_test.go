package metrics

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestSeries checks means against a list of what was put for each millisecond, with measurements that are late, early,
// left out and without a value.
func TestSeries(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		var at timeline
		var s series
		now := time.Duration(r.IntN(5000)) * time.Millisecond
		var known []float64 // of the milliseconds up to now, the last ones
		for i := range 1500 {
			step := 1000 + r.IntN(20)
			switch r.IntN(40) {
			case 0:
				step += r.IntN(12_000)
			case 1:
				step = 100 + r.IntN(900)
			}
			if i == 0 {
				step = 1000
			}
			now += time.Duration(step) * time.Millisecond
			value := float64(r.IntN(1000))
			put := r.IntN(20) > 0
			if r.IntN(20) == 0 {
				value = math.NaN()
			}
			if !at.add(now) {
				t.Fatal("a later measurement was not taken")
			}
			told := value
			if put {
				s.put(&at, value)
			} else {
				told = math.NaN()
			}
			for j := range step {
				if step > 10_000 && j < step-1000 {
					known = append(known, math.NaN())
				} else {
					known = append(known, told)
				}
			}
			known = known[max(0, len(known)-700_000):]
			if r.IntN(30) > 0 {
				continue
			}
			for _, w := range windows {
				sum, n := 0.0, 0
				for _, v := range known[max(0, len(known)-int(w.length/time.Millisecond)):] {
					if !math.IsNaN(v) {
						sum, n = sum+v, n+1
					}
				}
				got, ok := s.mean(&at, now+shownFor, w.length)
				if want := !math.IsNaN(told) && 2*n >= int(w.length/time.Millisecond); ok != want ||
					ok && math.Abs(got-sum/float64(n)) > 1e-6*sum/float64(n)+1e-9 {
					t.Fatalf("seed %d: mean of %s is %g %v, want %g of %d", seed, w.name, got, ok, sum/float64(n), n)
				}
			}
		}
		if _, ok := s.mean(&at, now+shownFor+1, time.Second); ok {
			t.Fatal("what ended more than two seconds ago is shown as now")
		}
		if at.add(now) {
			t.Fatal("a measurement was taken twice")
		}
	}
	var none series
	if _, ok := none.mean(new(timeline), 0, time.Second); ok {
		t.Error("a series without values has a mean")
	}
}

// TestSeriesOnTheTurn checks that nothing is lost where measurements fall now before and now after the turn of a
// second.
func TestSeriesOnTheTurn(t *testing.T) {
	var at timeline
	var s series
	for i := range 600 {
		early := time.Duration(i%2) * 2 * time.Millisecond
		at.add(time.Duration(i+1)*time.Second + time.Millisecond - early)
		s.put(&at, float64(i%2))
	}
	for _, w := range windows[1:] {
		if got, ok := s.mean(&at, 600*time.Second, w.length); !ok || math.Abs(got-0.5) > 0.005 {
			t.Errorf("mean of %s is %g %v, want 0.5", w.name, got, ok)
		}
	}
}
