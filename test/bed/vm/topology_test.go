package vm_test

import (
	"testing"

	"github.com/waterline-io/waterline/test/bed/vm"
)

func TestParseTopology(t *testing.T) {
	topology, err := vm.ParseTopology("2x2x1x2")
	if want := (vm.Topology{Sockets: 2, Nodes: 2, Cores: 1, Threads: 2}); err != nil || topology != want ||
		topology.CPUs() != 8 || topology.String() != "2x2x1x2" {
		t.Errorf("%v, %v", topology, err)
	}
	for _, bad := range []string{"", "8", "2x2x2", "2x2x1x2x1", "2x2x0x2", "2x-2x1x2", "2x2x1x", "65x1x1x1", "4x4x4x4"} {
		if topology, err := vm.ParseTopology(bad); err == nil {
			t.Errorf("%q is taken for %v", bad, topology)
		}
	}
}

// TestTopology checks that the guest's kernel sees the topology that it was given.
func TestTopology(t *testing.T) {
	c, out := config(t)
	c.Topology = vm.Topology{Sockets: 2, Nodes: 2, Cores: 1, Threads: 2}
	c.Commands = []vm.Command{shell("look", `cd /sys/devices/system
cat cpu/online
for c in 0 3 4; do cat cpu/cpu$c/topology/physical_package_id cpu/cpu$c/topology/core_cpus_list cpu/cpu$c/cache/index3/shared_cpu_list; done
cat node/node*/cpulist
dmesg | grep -c WARNING`)}
	report, err := vm.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("booted in %v", report.Boot)
	want := "0-7\n" + "0\n0-1\n0-3\n" + "0\n2-3\n0-3\n" + "1\n4-5\n4-7\n" + "0-1\n2-3\n4-5\n6-7\n" + "0\n"
	if out.String() != want {
		t.Errorf("the guest says %q, want %q", out, want)
	}
}
