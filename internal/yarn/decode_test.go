package yarn

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTolerance checks that the same node is read from each way in which releases of Hadoop write it.
func TestTolerance(t *testing.T) {
	want := []nodeJSON{{ID: "a:1", Containers: 2, UsedMemory: 3, Labels: list[string]{"x"}}}
	for text, want := range map[string][]nodeJSON{
		`{"nodes":{"node":[{"id":"a:1","numContainers":2,"usedMemoryMB":3,"nodeLabels":["x"]}]}}`:     want,
		`{"nodes":{"node":{"id":"a:1","numContainers":2,"usedMemoryMB":3,"nodeLabels":["x"]}}}`:       want,
		`{"nodes":{"node":[{"id":"a:1","numContainers":"2","usedMemoryMB":"3.9","nodeLabels":"x"}]}}`: want,
		`{"nodes":{"node":[{"id":"a:1","numContainers":2e0,"usedMemoryMB":3.5,"nodeLabels":["x"]}]}}`: want,
		`{"nodes":{"node":[{"id":"a:1","numContainers":null,"nodeLabels":null}]}}`:                    {{ID: "a:1"}},
		`{"nodes":{"node":[{"id":"a:1","numContainers":"","nodeLabels":[]}]}}`: {
			{ID: "a:1", Labels: list[string]{}},
		},
		`{"nodes":{"node":[{"id":"a:1","numRunningOpportContainers":2,"numQueuedContainers":"1"}]}}`: {
			{ID: "a:1", Opport: 2, Queued: 1},
		},
		`{"nodes":{"node":null}}`: nil, `{"nodes":{}}`: nil, `{"nodes":null}`: nil, `{"nodes":""}`: nil, `{}`: nil,
	} {
		var answer struct {
			Nodes optional[struct {
				Node list[nodeJSON] `json:"node"`
			}] `json:"nodes"`
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(want, []nodeJSON(answer.Nodes.v.Node)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	var n number
	for _, bad := range []string{`"x"`, `1e300`, `"NaN"`, `[]`, `true`} {
		if err := json.Unmarshal([]byte(bad), &n); err == nil {
			t.Errorf("%s is read as the number %d", bad, n)
		}
	}
	var f flag
	if err := json.Unmarshal([]byte(`"true"`), &f); err != nil || !bool(f) {
		t.Errorf("%v, %v", f, err)
	}
	if err := json.Unmarshal([]byte(`1`), &f); err == nil {
		t.Error("1 is read as a truth value")
	}
}

// TestOpportunistic checks that opportunistic containers count, also those that wait for room.
func TestOpportunistic(t *testing.T) {
	n, err := nodeJSON{ID: "a:1", Containers: 4, Opport: 2, Queued: 1}.node()
	if err != nil || n.Containers != 4 || n.Opportunistic != 3 {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestTotalMissing checks the total of a node of a release that does not state it.
func TestTotalMissing(t *testing.T) {
	n, err := nodeJSON{ID: "a:1", UsedMemory: 512, FreeMemory: -128, UsedVCores: 3, FreeVCores: 1}.node()
	if err != nil || n.Total != (Resource{384, 4}) {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestExclusivityMissing checks that a label is exclusive unless said otherwise, as in Hadoop.
func TestExclusivityMissing(t *testing.T) {
	var j labelJSON
	if err := json.Unmarshal([]byte(`{"name":"x"}`), &j); err != nil || !j.label().Exclusive {
		t.Errorf("%+v, %v", j.label(), err)
	}
}

// FuzzAnswer checks that no answer makes decoding panic, and that what it accepts makes sense.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{
		"nodes", "node", "node-overcommitted", "nodes-none", "labels", "node-labels", "scheduler",
		"containers", "info", "node-unknown", "conf", "conf-xml", "conf-forbidden",
	} {
		f.Add(body(f, name))
	}
	f.Add([]byte(`{"nodes":{"node":{"id":"a:1","numContainers":"2","nodeLabels":"x"}}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		var nodes struct {
			Nodes optional[struct {
				Node list[nodeJSON] `json:"node"`
			}] `json:"nodes"`
		}
		if json.Unmarshal(content, &nodes) == nil {
			for _, j := range nodes.Nodes.v.Node {
				if n, err := j.node(); err == nil && n.ID == "" {
					t.Errorf("a node without an id: %+v", n)
				}
			}
		}
		var scheduler struct {
			Scheduler struct {
				Info queueJSON `json:"schedulerInfo"`
			} `json:"scheduler"`
		}
		if json.Unmarshal(content, &scheduler) == nil {
			scheduler.Scheduler.Info.queue("")
		}
		for _, kind := range []string{"application/json", "text/xml"} {
			if s, err := parseSettings(kind, content); err == nil && (len(s) == 0 || s[""] != "") {
				t.Errorf("settings: %q", s)
			}
		}
		var status *StatusError
		if !errors.As(statusError(500, content, "GET", "x"), &status) || status.Message != "" && status.Exception == "" {
			t.Errorf("%+v", status)
		}
	})
}

func TestUnits(t *testing.T) {
	for bytes, want := range map[int64]int64{
		-1: 0, 0: 0, 1<<20 - 1: 0, 1 << 20: 1, 2<<20 + 5: 2, math.MaxInt64: math.MaxInt64 >> 20, math.MinInt64: 0,
	} {
		if got := MiB(bytes); got != want {
			t.Errorf("%d bytes are %d MiB, not %d", bytes, got, want)
		}
	}
	for _, test := range []struct {
		milli int64
		per   float64
		want  int64
	}{
		{1000, 1, 1}, {999, 1, 0}, {1999, 1, 1}, {1500, 2, 3}, {1, 1000, 1}, {2300, 10, 23}, {1100, 10, 11}, {0, 1, 0},
		{-1000, 1, 0}, {1000, -1, 0}, {-1000, -1, 0}, {1000, math.NaN(), 0}, {1000, math.Inf(1), math.MaxInt32},
		{math.MaxInt64, 1, math.MaxInt32}, {3000, 0.5, 1},
	} {
		if got := VCores(test.milli, test.per); got != test.want {
			t.Errorf("%d milli-CPUs at %v vcores a CPU are %d, not %d", test.milli, test.per, got, test.want)
		}
	}
}
