package kube

import (
	"errors"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// TestCPURoom checks that a report which contradicts itself is an error that names the field. The round trip of good
// reports is tested where they are written.
func TestCPURoom(t *testing.T) {
	if room, err := CPURoom(nil); room != nil || err != nil {
		t.Errorf("no report is %+v, %v", room, err)
	}
	good := v1alpha1.NUMANodeCPUs{ID: 0, Free: "1", Cores: []string{"0-1/4-5"}}
	if _, err := CPURoom(&v1alpha1.CPUSetReport{NUMANodes: []v1alpha1.NUMANodeCPUs{good}}); err != nil {
		t.Error(err)
	}
	for want, bad := range map[string]v1alpha1.NUMANodeCPUs{
		"numaNodes[1].cores": {Cores: []string{"8-9/12"}},
		"two cores":          {Cores: []string{"8-9/9-10"}},
		"a CPU is in two":    {Cores: []string{"0-1"}},
		"numaNodes[1].free":  {Free: "x", Cores: []string{"8-9"}},
		"10 is in no core":   {Free: "8-10", Cores: []string{"8-9"}},
		"empty list":         {Cores: []string{"8-9/"}},
		"CPU above":          {Cores: []string{"1024"}},
	} {
		_, err := CPURoom(&v1alpha1.CPUSetReport{NUMANodes: []v1alpha1.NUMANodeCPUs{good, bad}})
		if !errors.Is(err, model.ErrCPUList) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error about %q", bad, err, want)
		}
	}
}
