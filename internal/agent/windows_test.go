package agent

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestSeries checks means against a list of everything that was put, with gaps, repeated and skipped seconds.
func TestSeries(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var s series
		all := map[int]float64{}
		second := r.IntN(5000)
		for range 1500 {
			switch r.IntN(40) {
			case 0:
				second += r.IntN(700)
			case 1: // the same second once more
			case 2:
				second += 2
			default:
				second++
			}
			value := float64(r.IntN(1000))
			if r.IntN(20) == 0 {
				value = math.NaN()
			}
			at := time.Duration(second)*time.Second + time.Duration(r.IntN(1000))*time.Millisecond
			s.put(at, value)
			all[second] = value
			for _, w := range windows {
				sum, n := 0.0, 0
				for i := range int(w.length / time.Second) {
					if v, put := all[second-i]; put && !math.IsNaN(v) {
						sum, n = sum+v, n+1
					}
				}
				got, ok := s.mean(at, w.length)
				if want := n > 0 && 2*n >= int(w.length/time.Second); ok != want || ok && math.Abs(got-sum/float64(n)) > 1e-3 {
					t.Fatalf("seed %d: mean of %s is %g %v, want %g of %d", seed, w.name, got, ok, sum/float64(n), n)
				}
			}
		}
		if _, ok := s.mean(time.Duration(second+3)*time.Second, time.Minute); ok {
			t.Fatal("what ended three seconds ago is shown as now")
		}
	}
	var none series
	if _, ok := none.mean(0, time.Second); ok {
		t.Error("a series without values has a mean")
	}
}
