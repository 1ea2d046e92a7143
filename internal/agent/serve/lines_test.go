package serve

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestWaiting checks what is told of a node, and of each pod what is about it.
func TestWaiting(t *testing.T) {
	pods := []*model.Pod{{UID: "job", Namespace: "batch", Name: "job-0"}, {UID: "web", Namespace: "shop", Name: "web-0"}}
	b := &model.Interference{
		Finding: model.Finding{Victim: "web", Suspect: "other", Code: model.SuspectNamed, Wait: 200}, Waits: true,
		Throttles: []model.Throttle{{UID: "job", Victim: "web", Milli: 1500, Code: model.ThrottleKept}},
	}
	waits, throttled := "shop/web-0 waits for CPUs, likely for other, which is not throttled now: SuspectNamed "+
		"wait=200/1000", "batch/job-0 may use 1.50 CPU, for shop/web-0: ThrottleKept most=1500mCPU"
	for uid, want := range map[string][]string{
		"": {waits, throttled}, "web": {waits, throttled}, "other": {waits}, "job": {throttled}, "none": nil,
	} {
		got := waiting(b, pods, uid)
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("of %q: %q", uid, got)
		}
	}
	if got := waiting(nil, pods, ""); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}

// TestLeavingIsSaid checks what is told of a node.
func TestLeavingIsSaid(t *testing.T) {
	e := &model.Evictions{
		Hot: model.Reason{Code: model.MemoryExhausted},
		Request: &model.Eviction{
			UID: "job", Namespace: "batch", Name: "job", Reason: model.Reason{Code: model.MemoryExhausted},
		},
	}
	e.Request.Withheld = &model.Reason{Code: model.ObserveOnly}
	e.Last = model.Relief{UID: "gone", At: time.Minute, Expected: 1 << 30}
	want := []string{
		"the node is hot and sells nothing: MemoryExhausted",
		"batch/job should leave the node: MemoryExhausted; it is only said: ObserveOnly",
		"gone left 1m30s ago; relief expected 1.00 GiB, observed not known yet",
	}
	if got := leaving(e, nil, 150*time.Second); !slices.Equal(got, want) {
		t.Errorf("said is %q, not %q", got, want)
	}
	if got := leaving(nil, nil, 0); got != nil {
		t.Errorf("said is %q", got)
	}
}
