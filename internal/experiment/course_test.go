package experiment

import (
	"math"
	"slices"
	"testing"
	"time"
)

// In each part of a course as many requests are due as its rate says, and before it as many as the first rate says. The same
// seed makes the same moments.
func TestSchedule(t *testing.T) {
	const lead, part = 20 * time.Second, 100 * time.Second
	c := course{100, 0, 0.01, 400, 50}
	length := time.Duration(len(c)) * part
	all := c.schedule(lead, length, 1)
	counts := make([]int, len(c))
	before, last := 0, time.Duration(0)
	for _, a := range all {
		if a.due < last || a.due >= lead+length {
			t.Fatalf("one is due at %v, after %v", a.due, last)
		}
		if last = a.due; a.due < lead {
			before++
			continue
		}
		counts[(a.due-lead)/part]++
	}
	for i, got := range append([]int{before}, counts...) {
		want := 100 * lead.Seconds()
		if i > 0 {
			want = c[i-1] * part.Seconds()
		}
		if math.Abs(float64(got)-want) > 5*math.Sqrt(want) {
			t.Errorf("part %d: %d requests, not about %.0f", i, got, want)
		}
	}
	if again := c.schedule(lead, length, 1); !slices.Equal(again, all) {
		t.Error("the same seed makes other moments")
	}
	if longer := c.schedule(2*lead, length, 1); longer[len(longer)-1].due-lead != all[len(all)-1].due {
		t.Error("another lead makes other moments after it")
	}
	if other := c.schedule(lead, length, 2); other[0] == all[0] {
		t.Error("another seed makes the same moments")
	}
	// Equal rates are one rate, to what floats are exact to.
	one, three := course{200}.schedule(0, 3*time.Second, 1), course{200, 200, 200}.schedule(0, 3*time.Second, 1)
	if len(one) != len(three) {
		t.Fatalf("%d requests at one rate, %d at three that are the same", len(one), len(three))
	}
	for i := range one {
		if d := one[i].due - three[i].due; d.Abs() > time.Microsecond {
			t.Errorf("request %d is due %v later", i, d)
		}
	}
	if none := (course{0}).schedule(lead, length, 1); len(none) != 0 {
		t.Errorf("%d requests at no rate", len(none))
	}
}

// Moments are as far apart as random ones are.
func TestScheduleAtRandom(t *testing.T) {
	all := course{300}.schedule(0, 100*time.Second, 1)
	if n := len(all); n < 29000 || n > 31000 {
		t.Errorf("%d requests in 100 s, 300 a second", n)
	}
	longest := time.Duration(0)
	for i := 1; i < len(all); i++ {
		if all[i].due < all[i-1].due {
			t.Fatalf("%v after %v", all[i].due, all[i-1].due)
		}
		longest = max(longest, all[i].due-all[i-1].due)
	}
	if longest < 20*time.Millisecond { // ln 30000 times the mean is 34 ms
		t.Errorf("never more than %v apart: not at random", longest)
	}
}

func TestParseCourse(t *testing.T) {
	want := course{0, 1.0 / 3, 120}
	if got, err := parseCourse(want.String()); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "1,", "-1", "NaN", "Inf", "1 2"} {
		if c, err := parseCourse(bad); err == nil {
			t.Errorf("%q was taken for %v", bad, c)
		}
	}
}
