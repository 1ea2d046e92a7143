package serve

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

func TestParseCPURequest(t *testing.T) {
	want := CPURequest{Namespace: "shop", Name: "web-0", Mode: model.CPUExclusive}
	if got, err := ParseCPURequest(want.String()); err != nil || got != want {
		t.Errorf("%s is %+v, %v", want, got, err)
	}
	for _, text := range []string{
		"", "shop/web-0", "web-0=none", "/web-0=none", "shop/=none", "a/b/c=none", "shop/web-0=", "shop/web-0=Exclusive",
		"shop/web-0=none=none",
	} {
		if got, err := ParseCPURequest(text); err == nil || got != (CPURequest{}) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
}

// TestCPUMapTravels checks that a map is the same after its way from the agent to the command.
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
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%s is %+v, %v, not %+v", text, got, err, m)
	}
}
