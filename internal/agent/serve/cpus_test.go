package serve

import (
	"encoding/json"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// TestParseCPURequest checks that a request is parsed from its own text, and that malformed requests are rejected.
func TestParseCPURequest(t *testing.T) {
	want := CPURequest{Namespace: "shop", Name: "web-0", Mode: model.CPUExclusive}
	if got, err := ParseCPURequest(want.String()); err != nil || got != want {
		t.Errorf("%s is %+v, %v", want, got, err)
	}
	for _, text := range []string{"", "shop/web-0", "web-0=none", "/web-0=none", "shop/=none", "a/b/c=none", "shop/web-0=",
		"shop/web-0=Exclusive", "shop/web-0=none=none"} {
		if got, err := ParseCPURequest(text); err == nil || got != (CPURequest{}) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
}

// TestCPUMapTravels checks that a CPUMap is unchanged after encoding and decoding as JSON.
func TestCPUMapTravels(t *testing.T) {
	m := CPUMap{
		Topology: &model.Topology{CPUs: []model.CPU{{ID: 0}, {ID: 1, Core: 1}}, Nodes: []model.NUMANode{{Memory: 1 << 30}}},
		Reserved: model.CPUs(0), Exclusive: model.CPUs(1),
		Pods: []CPUPod{{Namespace: "shop", Name: "web-0", Container: "web", Mode: model.CPUExclusive, CPUs: model.CPUs(1)}},
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var got CPUMap
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if d := fixture.Diff(m, got); d != "" {
		t.Errorf("after JSON the map differs (-want +got):\n%s", d)
	}
}
