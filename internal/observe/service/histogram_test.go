package service

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestQuantile checks examples of PromQL's histogram_quantile.
func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	all := []bucket{{0.01, 50}, {0.1, 90}, {1, 100}, {inf, 100}}
	for _, c := range []struct {
		q    float64
		all  []bucket
		want float64
	}{
		{0.5, all, 0.01},
		{0.25, all, 0.005},
		{0.7, all, 0.055},
		{0.99, all, 0.91},
		{0.5, []bucket{{1, 0}, {2, 0}, {inf, 10}}, 2}, // above all bounds
		{0.5, []bucket{{-1, 10}, {inf, 10}}, -1},
		{0.5, []bucket{{1, 0}, {inf, 0}}, math.NaN()},
	} {
		got, err := quantile(c.q, c.all)
		if err != nil || math.Abs(got-c.want) > 1e-12 || math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("%g of %v: %g, %v, want %g", c.q, c.all, got, err, c.want)
		}
	}
	for _, bad := range [][]bucket{nil, {{1, 1}}, {{inf, 1}}, {{1, 1}, {2, 1}}} {
		if _, err := quantile(0.5, bad); err == nil {
			t.Errorf("%v is a histogram", bad)
		}
	}
}

// TestQuantileOfNumbers checks random histograms against the sorted numbers in them: the quantile is in the bucket that
// has the number, and grows with q.
func TestQuantileOfNumbers(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		bounds := []float64{r.Float64()}
		for range 1 + r.IntN(6) {
			bounds = append(bounds, bounds[len(bounds)-1]+0.01+r.Float64())
		}
		var numbers []float64
		for range 1 + r.IntN(50) {
			numbers = append(numbers, r.Float64()*bounds[len(bounds)-1])
		}
		slices.Sort(numbers)
		var all []bucket
		for _, b := range append(bounds, math.Inf(1)) {
			all = append(all, bucket{b, float64(count(numbers, b))})
		}
		last := 0.0
		for k := range 99 {
			q := float64(100*k+37) / 10_000 // times the length it is never a whole number
			got, err := quantile(q, all)
			number := numbers[int(q*float64(len(numbers)))]
			i, _ := slices.BinarySearch(bounds, number)
			from := 0.0
			if i > 0 {
				from = bounds[i-1]
			}
			if err != nil || got < from-1e-9 || got > bounds[i]+1e-9 || got < last-1e-9 {
				t.Fatalf("seed %d: %g of %v is %g, %v; the number is %g", seed, q, all, got, err, number)
			}
			last = got
		}
	}
}

// count returns how many numbers are at most a bound.
func count(numbers []float64, bound float64) int {
	n := 0
	for _, v := range numbers {
		if v <= bound {
			n++
		}
	}
	return n
}

// TestHistory checks that a quantile is of the last ten seconds, and that a process that starts anew is no error.
func TestHistory(t *testing.T) {
	var h history
	fast, slow := 0.0, 0.0
	add := func(second int) bool {
		return h.add(time.Duration(second)*time.Second,
			[]bucket{{0.01, fast}, {0.1, fast + slow}, {math.Inf(1), fast + slow}})
	}
	p99 := func() float64 {
		v, err := h.quantile(0.99)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if fast = 1e6; add(0) {
		t.Error("one reading has a quantile")
	}
	for second := range 30 {
		slow += 100
		add(second + 1)
	}
	if got := p99(); got < 0.09 {
		t.Errorf("all requests of the last seconds are slow: %g", got)
	}
	for second := range 10 {
		fast += 100
		add(31 + second)
	}
	if got := p99(); got > 0.01 {
		t.Errorf("all requests of the last ten seconds are fast: %g", got)
	}
	if len(h.readings) > samples {
		t.Errorf("%d readings are kept", len(h.readings))
	}
	fast, slow = 0, 0
	if add(41) {
		t.Error("a process that starts anew is compared with the one before")
	}
	slow = 100
	if add(42); p99() < 0.09 {
		t.Errorf("then: %g", p99())
	}
	if h.add(43*time.Second, []bucket{{1, 1}, {math.Inf(1), 1}}) {
		t.Error("other buckets are compared")
	}
	h.add(2*time.Minute, []bucket{{1, 1}, {math.Inf(1), 1}})
	h.add(2*time.Minute+time.Second, []bucket{{1, 1}, {math.Inf(1), 1}})
	if got := h.readings[0].at; got != 2*time.Minute || !math.IsNaN(p99()) {
		t.Errorf("a reading of %s is compared", got)
	}
}

// TestHistogram checks a histogram in an answer: of all series, with labels, and with what is no histogram.
func TestHistogram(t *testing.T) {
	page := func(n int, handler string) string {
		return fmt.Sprintf("seconds_bucket{handler=%q,le=\"0.01\"} %d\nseconds_bucket{le=\"0.1\",handler=%q} %d\n"+
			"seconds_bucket{handler=%q,le=\"+Inf\"} %d\nseconds_count{handler=%q} %d\n", handler, n, handler, 2*n, handler, 2*n,
			handler, 2*n)
	}
	n := 0
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n += 100
		_, _ = io.WriteString(w, page(n, "a")+page(3*n, "b"))
	})
	f := New("node-1")
	e := &entry{target: target(t, server, "web", model.ServiceSource{Quantile: 750_000})}
	if f.fetch(t.Context(), e); e.figure.At != 0 || e.figure.Failed != "" {
		t.Errorf("after one reading: %+v", e.figure)
	}
	if f.fetch(t.Context(), e); e.figure.Value != 55_000 {
		t.Errorf("after two readings: %+v", e.figure)
	}
	for name, answer := range map[string]string{
		"no bucket":      "seconds 1\n",
		"no bound":       "seconds_bucket 1\n",
		"a bad bound":    "seconds_bucket{le=\"NaN\"} 1\n",
		"a long bound":   "seconds_bucket{le=\"" + strings.Repeat("1", 4000) + "x\"} 1\nseconds_bucket{le=\"+Inf\"} NaN\n",
		"a bad count":    "seconds_bucket{le=\"1\"} NaN\nseconds_bucket{le=\"+Inf\"} 1\n",
		"negative":       "seconds_bucket{le=\"1\"} -1\nseconds_bucket{le=\"+Inf\"} 1\n",
		"infinite":       "seconds_bucket{le=\"1\"} 1\nseconds_bucket{le=\"+Inf\"} +Inf\n",
		"no last bucket": "seconds_bucket{le=\"1\"} 1\nseconds_bucket{le=\"2\"} 1\n",
		"many buckets":   many(),
	} {
		bad := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
		if got := fetch(target(t, bad, "web", model.ServiceSource{Quantile: 990_000})); got.Failed == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestHistogramWantedByTurns checks that batch which runs every other second does not hide a histogram, that nothing is
// kept for longer than a quantile looks back, and that a target of other rules starts anew.
func TestHistogramWantedByTurns(t *testing.T) {
	for _, c := range []struct {
		name    string
		without time.Duration // for which the target is not wanted, each time
		max     int64         // what is added to its maximum, each time
		want    int           // figures after 10 times
	}{
		{"always wanted", 0, 0, 9},
		{"not for a second", time.Second, 0, 9},
		{"not for nearly ten seconds", window - time.Second, 0, 9},
		{"not for ten seconds", window, 0, 0},
		{"by other rules", time.Second, 1, 0},
	} {
		n := 0
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			n += 100
			_, _ = fmt.Fprintf(w, "seconds_bucket{le=\"0.1\"} 0\nseconds_bucket{le=\"+Inf\"} %d\n", n)
		})
		f, now, figures := New("node-1"), time.Hour, 0
		f.limit, f.clock = 5*time.Minute, func() time.Duration { return now }
		wanted := []model.ServiceTarget{target(t, server, "web", model.ServiceSource{Quantile: 990_000})}
		for range 10 {
			f.Need(wanted)
			f.fetch(t.Context(), f.entries[0])
			if figure := f.Append(nil)[0]; figure.At == now && figure.Value == 100_000 {
				figures++
			}
			now += time.Second
			for end := now + c.without; now < end; now += time.Second {
				if f.Need(nil); len(f.Append(nil)) != 0 {
					t.Errorf("%s: %+v while nothing is wanted", c.name, f.Append(nil))
				}
			}
			wanted[0].Max += c.max
		}
		if figures != c.want {
			t.Errorf("%s: %d figures", c.name, figures)
		}
	}
}

// TestLeftIsBounded checks that no more targets are kept than are fetched, however many come and go.
func TestLeftIsBounded(t *testing.T) {
	f, now := New("node-1"), time.Hour
	f.clock = func() time.Duration { return now }
	for i := range 5 * maxTargets {
		f.Need([]model.ServiceTarget{{UID: fmt.Sprint(i)}, {UID: fmt.Sprint(i, "b")}})
	}
	if len(f.left) != maxTargets || f.left[maxTargets-1].target.UID != fmt.Sprint(5*maxTargets-2, "b") {
		t.Errorf("%d targets are kept", len(f.left))
	}
	f.Need(nil)
	if now += window; len(f.Append(nil)) != 0 {
		t.Error("a figure is left that nobody wants")
	}
	if f.Need(nil); len(f.left) != 0 {
		t.Errorf("%d targets are kept after %s", len(f.left), window)
	}
}

// many returns a histogram with too many buckets.
func many() string {
	var b strings.Builder
	for i := range 2 * maxBuckets {
		fmt.Fprintf(&b, "seconds_bucket{le=\"%d\"} 1\n", i)
	}
	return b.String() + "seconds_bucket{le=\"+Inf\"} 1\n"
}

// FuzzParse checks that any line is read without a crash, and that no figure is negative.
func FuzzParse(f *testing.F) {
	f.Add([]byte("seconds{a=\"b\\\"\",le=\"1\"} 5 # {x=\"y\"} 1\n"), "a", "b")
	f.Add([]byte("seconds{le=\"\\"), "le", "")
	f.Add([]byte("seconds{=,=}\xff"), "", "")
	f.Fuzz(func(t *testing.T, line []byte, name, value string) {
		s, is := parse(line, "seconds")
		if !is {
			return
		}
		s.has([]model.MetricLabel{{Name: name, Value: value}})
		if all, err := addBucket(nil, &s); err == nil && (len(all) != 1 || all[0].count < 0) {
			t.Errorf("%q: %v", line, all)
		}
		if v, err := millionths(s.value); err == nil && (v < 0 || v > model.MaxFigure) {
			t.Errorf("%q: %d", line, v)
		}
	})
}
