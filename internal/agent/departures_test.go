package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/internal/model"
)

func asking(uid string, code model.Code) *model.Evictions {
	return &model.Evictions{Hot: model.Reason{Code: code}, Request: &model.Eviction{UID: uid, Namespace: "batch", Name: uid, Reason: model.Reason{Code: code}}}
}

// TestDepartures counts what rounds say, one after the other: each request and each relief once.
func TestDepartures(t *testing.T) {
	said := asking("c", model.MemoryExhausted)
	said.Request.Withheld = &model.Reason{Code: model.ObserveOnly}
	left := &model.Evictions{Last: model.Relief{UID: "a", At: 1, Expected: 100}}
	seen := &model.Evictions{Last: model.Relief{UID: "a", At: 1, Expected: 100, Seen: true, Observed: 70}}
	worse := &model.Evictions{Last: model.Relief{UID: "b", At: 2, Expected: 50, Seen: true, Observed: -20}}
	var d departures
	var before *model.Evictions
	for _, now := range []*model.Evictions{
		nil, asking("a", model.MemoryExhausted), asking("a", model.MemoryExhausted), left, left, seen, seen,
		asking("b", model.BatchStarved), nil, asking("b", model.BatchStarved), worse, worse, said, said, nil,
	} {
		d.note(before, now)
		before = now
	}
	series := map[string]float64{}
	d.collect(worse, func(_ prometheus.ValueType, name, _ string, value float64, labels ...string) {
		series[strings.Join(append([]string{name}, labels...), " ")] = value
	})
	for name, want := range map[string]float64{
		"waterline_eviction_requests_total reason MemoryExhausted": 1, "waterline_eviction_requests_total reason BatchStarved": 2,
		"waterline_eviction_expected_bytes_total": 150, "waterline_eviction_observed_bytes_total": 70, "waterline_hot reason MemoryExhausted": 0,
	} {
		if series[name] != want {
			t.Errorf("%s is %v, want %v, of %v", name, series[name], want, series)
		}
	}
	for i, c := range []struct {
		a, b *model.Evictions
		same bool
	}{{nil, nil, true}, {nil, left, false}, {left, seen, false}, {asking("a", model.MemoryExhausted), asking("b", model.MemoryExhausted), false}, {asking("a", model.MemoryExhausted), asking("a", model.MemoryExhausted), true}} {
		if same := sameDecisions(&model.Plan{Evict: c.a}, &model.Plan{Evict: c.b}); same != c.same {
			t.Errorf("%d: the same is %v", i, same)
		}
	}
}

// TestLeavingIsSaid checks what is told of a node.
func TestLeavingIsSaid(t *testing.T) {
	e := asking("job", model.MemoryExhausted)
	e.Request.Withheld = &model.Reason{Code: model.ObserveOnly}
	e.Last = model.Relief{UID: "gone", At: time.Minute, Expected: 1 << 30}
	want := []string{
		"the node is hot and sells nothing: MemoryExhausted", "batch/job should leave the node: MemoryExhausted; it is only said: ObserveOnly",
		"gone left 1m30s ago; relief expected 1.00 GiB, observed not known yet",
	}
	if got := leaving(e, nil, 150*time.Second); !slices.Equal(got, want) {
		t.Errorf("said is %q, not %q", got, want)
	}
	if got := leaving(nil, nil, 0); got != nil {
		t.Errorf("said is %q", got)
	}
}

// TestAskedAgain: who should leave is reported at once, again every twenty seconds while that stands, and not each second; that it need
// not any more at once too.
func TestAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written []model.Report
		r := newReporter(func(_ context.Context, _ string, report model.Report) error {
			written = append(written, report)
			return nil
		}, newTroubles(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(t.Context())
		go r.run(ctx)
		seconds := func(n int, e *model.Evictions) int {
			written = nil
			for range n {
				r.post("uid", model.Report{Mode: model.ModeEnforce, Hot: e.HotFor().Code, Evict: e.Requested()}, true)
				synctest.Wait()
				time.Sleep(time.Second)
			}
			return len(written)
		}
		seconds(5, nil)
		if n := seconds(1, asking("a", model.MemoryExhausted)); n != 1 || written[0].Evict.UID != "a" || written[0].Hot != model.MemoryExhausted {
			t.Errorf("it was not reported at once: %d", n)
		}
		if n := seconds(100, asking("a", model.MemoryExhausted)); n != 5 {
			t.Errorf("within 100 s it was reported %d times, not 5", n)
		}
		if n := seconds(1, asking("b", model.MemoryExhausted)); n != 1 {
			t.Error("another pod was not reported at once")
		}
		hot := &model.Evictions{Hot: model.Reason{Code: model.MemoryExhausted}}
		if n := seconds(100, hot); n != 1 || written[0].Evict != nil {
			t.Errorf("that nobody need leave was reported %d times", n)
		}
		if n := seconds(100, nil); n != 1 || written[0].Hot != "" {
			t.Errorf("that the node is hot no more was reported %d times", n)
		}
		cancel()
	})
}
