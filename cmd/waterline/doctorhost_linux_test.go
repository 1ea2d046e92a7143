package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// TestDoctorStray checks that containers outside of the cgroups of their pods are named with their place, the kubelet's
// driver and the value to set.
func TestDoctorStray(t *testing.T) {
	root := t.TempDir()
	mount := host.Mount{Version: cgroup.V2, Path: root}
	layout, _ := cgroup.ParseLayout("kubepods.slice")
	find := func() string {
		var out strings.Builder
		d := doctor{out: &out, output: &output{}}
		d.stray(mount, layout)
		return out.String()
	}
	if got := find(); !strings.Contains(got, "ok    no container of a pod is outside of kubepods.slice") {
		t.Errorf("on a node that is well: %s", got)
	}
	const stray = "system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:0123456789ab"
	if err := os.MkdirAll(filepath.Join(root, stray), 0o755); err != nil {
		t.Fatal(err)
	}
	got := find()
	for _, want := range []string{"BAD   1 container of pods", stray, "driver is systemd", "SystemdCgroup = true"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
}
