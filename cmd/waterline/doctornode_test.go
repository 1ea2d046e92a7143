package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestDoctorKubelet checks what is found in the configuration of a kubelet that runs in a file system of its own.
func TestDoctorKubelet(t *testing.T) {
	for name, c := range map[string]struct{ config, want string }{
		"well":      {"cgroupDriver: systemd", "ok    kubelet, /etc/k.yaml: pods have cgroups, driver systemd"},
		"no groups": {"cgroupsPerQOS: false", "BAD   kubelet, /etc/k.yaml: the kubelet makes no cgroup per pod"},
		"other":     {"cgroupDriver: cgroupfs", "note  kubelet, /etc/k.yaml: cgroupDriver is cgroupfs, and the pods"},
		"static":    {"cpuManagerPolicy: static", "note  kubelet, /etc/k.yaml: cpuManagerPolicy is static"},
		"qos":       {"featureGates: {MemoryQoS: true}", "note  kubelet, /etc/k.yaml: MemoryQoS is on"},
		"broken":    {"[", "note  the kubelet's configuration cannot be read: /etc/k.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			for file, text := range map[string]string{
				"1/comm": "systemd\n", "7/comm": "kubelet\n", "7/cmdline": "/usr/bin/kubelet\x00--v=2\x00--config=/etc/k.yaml\x00",
				"7/root/etc/k.yaml": c.config,
			} {
				path := filepath.Join(proc, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			d := doctor{out: &out, output: &output{}}
			if d.kubelet(proc, cgroup.Systemd); !strings.Contains(out.String(), c.want) {
				t.Errorf("got %s", out.String())
			}
		})
	}
	var out strings.Builder
	d := doctor{out: &out, output: &output{}}
	if d.kubelet(t.TempDir(), 0); !strings.Contains(out.String(), "note  no kubelet runs here") {
		t.Errorf("without a kubelet: %s", out.String())
	}
}

// TestDoctorKernel checks that each feature that the kernel lacks is named with what to do.
func TestDoctorKernel(t *testing.T) {
	var out strings.Builder
	d := doctor{out: &out, output: &output{}}
	d.kernel(&model.Tree{NoBurst: true, NoReclaim: true})
	if got := out.String(); strings.Count(got, "note") != 2 || !strings.Contains(got, "NoReclaim: ") ||
		!strings.Contains(got, "what to do: Linux 5.14") {
		t.Errorf("got %s", got)
	}
	out.Reset()
	if d.kernel(&model.Tree{}); !strings.HasPrefix(out.String(), "ok    kernel ") {
		t.Errorf("got %s", out.String())
	}
}

// TestRestless checks when files of a node count as overwritten too often: not by a kubelet, and not in the first
// minutes.
func TestRestless(t *testing.T) {
	for name, c := range map[string]struct {
		age     time.Duration
		repairs map[string]uint64
		want    bool
	}{
		"a kubelet":  {time.Hour, map[string]uint64{"cpu.shares": 120, "cpu.quota": 20}, false},
		"a koordlet": {time.Hour, map[string]uint64{"cpu.shares": 500, "cpu.quota": 500}, true},
		"the start":  {time.Minute, map[string]uint64{"cpu.shares": 500}, false},
		"nobody":     {time.Hour, nil, false},
	} {
		if got := restless(&serve.NodeExplanation{Age: c.age, Repairs: c.repairs}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
