package load

import (
	"math"
	"slices"
	"testing"
	"time"
)

// TestSchedule checks how many requests are due in each part of the time and before it, and that the same seed makes
// the same moments.
func TestSchedule(t *testing.T) {
	const lead, part = 20 * time.Second, 100 * time.Second
	r := Rates{100, 0, 0.01, 400, 50}
	length := time.Duration(len(r)) * part
	all := r.schedule(lead, length, 1)
	counts := make([]int, len(r))
	before, last := 0, time.Duration(0)
	for _, a := range all {
		if a.Due < last || a.Due >= lead+length {
			t.Fatalf("due at %v, after %v", a.Due, last)
		}
		if last = a.Due; a.Due < lead {
			before++
			continue
		}
		counts[(a.Due-lead)/part]++
	}
	for i, got := range append([]int{before}, counts...) {
		want := 100 * lead.Seconds()
		if i > 0 {
			want = r[i-1] * part.Seconds()
		}
		if math.Abs(float64(got)-want) > 5*math.Sqrt(want) {
			t.Errorf("part %d: %d requests, not about %.0f", i, got, want)
		}
	}
	if again := r.schedule(lead, length, 1); !slices.Equal(again, all) {
		t.Error("the same seed makes other moments")
	}
	if longer := r.schedule(2*lead, length, 1); longer[len(longer)-1].Due-lead != all[len(all)-1].Due {
		t.Error("another lead makes other moments after it")
	}
	if other := r.schedule(lead, length, 2); other[0] == all[0] {
		t.Error("another seed makes the same moments")
	}
	// Equal rates are one rate, to what floats are exact to.
	one := Rates{200}.schedule(0, 3*time.Second, 1)
	three := Rates{200, 200, 200}.schedule(0, 3*time.Second, 1)
	if len(one) != len(three) {
		t.Fatalf("%d requests at one rate, %d at three that are the same", len(one), len(three))
	}
	for i := range one {
		if d := one[i].Due - three[i].Due; d.Abs() > time.Microsecond {
			t.Errorf("request %d is due %v later", i, d)
		}
	}
	if none := (Rates{0}).schedule(lead, length, 1); len(none) != 0 {
		t.Errorf("%d requests at no rate", len(none))
	}
}

// TestScheduleAtRandom checks that moments are as far apart as random ones are.
func TestScheduleAtRandom(t *testing.T) {
	all := Rates{300}.schedule(0, 100*time.Second, 1)
	if n := len(all); n < 29000 || n > 31000 {
		t.Errorf("%d requests in 100 s, 300 a second", n)
	}
	longest := time.Duration(0)
	for i := 1; i < len(all); i++ {
		if all[i].Due < all[i-1].Due {
			t.Fatalf("%v after %v", all[i].Due, all[i-1].Due)
		}
		longest = max(longest, all[i].Due-all[i-1].Due)
	}
	if longest < 20*time.Millisecond { // ln 30000 times the mean is 34 ms
		t.Errorf("never more than %v apart: not at random", longest)
	}
}
