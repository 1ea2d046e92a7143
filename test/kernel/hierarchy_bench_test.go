//go:build bench

package kernel_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/load"
)

// leaf makes a group for processes, whose CPU time is counted.
func (n *meterNode) leaf(dir string) {
	n.t.Helper()
	n.group(dir)
	for _, path := range n.paths {
		if err := os.Mkdir(filepath.Join(path, dir), 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
}

// loops starts two busy loops for each CPU in a group. Each CPU gets as many.
func (n *meterNode) loops(dir string) {
	n.t.Helper()
	cpus, err := load.AllowedCPUs()
	if err != nil {
		n.t.Fatal(err)
	}
	var pids []int
	for range 2 * len(cpus) {
		cmd := n.runIn(dir, "sh", "-c", busy)
		if err := cmd.Start(); err != nil {
			n.t.Fatal(err)
		}
		pids = append(pids, cmd.Process.Pid)
	}
	inside := func() int { return len(strings.Fields(n.text(dir, "cgroup.procs"))) }
	within(n.t, "the loops are in "+dir, func() bool { return inside() == len(pids) },
		func() string { return fmt.Sprint(inside()) })
	for i, pid := range pids {
		var only unix.CPUSet
		only.Set(cpus[i%len(cpus)])
		if err := unix.SchedSetaffinity(pid, &only); err != nil {
			n.t.Fatal(err)
		}
	}
}

// TestHierarchyFigures measures what a weight is worth at each level of the cgroups. A Burstable pod has the same
// weight at its container, then at its pod, then at its pod and the Burstable class. Beside it are a Burstable pod
// without a weight, and a Guaranteed pod that requests half of the machine and wants all of it. Only siblings compete,
// so only the last level wins CPU from the Guaranteed pod. With WATERLINE_BENCH=file, it writes the pod's shares of the
// CPU.
func TestHierarchyFigures(t *testing.T) {
	liveKernel(t, "the same levels compete with cgroup v2, and emulated CPUs are slow")
	n := newMeterNode(t)
	n.outweigh()
	cpus, request := int64(runtime.NumCPU()), model.MilliCPUToShares(100)
	weight := min(2*model.SharesPerCPU*cpus, model.MaxShares)
	class := n.layout.Class(model.Burstable)
	weighted, plain, guaranteed := n.add("weighted"), n.add("plain"), n.layout.Pod(model.Guaranteed, "guaranteed")
	container := weighted + "/0123456789aa"
	n.leaf(guaranteed)
	n.set(guaranteed, model.Shares, model.MilliCPUToShares(500*cpus))
	n.set(class, model.Shares, 2*request)
	for _, dir := range []string{weighted, container, plain} {
		n.set(dir, model.Shares, request)
	}
	for _, dir := range []string{container, plain + "/0123456789aa", guaranteed} {
		n.loops(dir)
	}
	length := 2 * time.Second
	if benchFile() != "" {
		length = 10 * time.Second
	}
	retry(t, 3, func() (map[string]float64, string) {
		n.set(weighted, model.Shares, request)
		n.set(class, model.Shares, 2*request)
		shares := map[string]float64{}
		for _, level := range []struct {
			name  string
			write func()
		}{
			{"none", func() {}},
			{"container", func() { n.set(container, model.Shares, weight) }},
			{"pod", func() { n.set(container, model.Shares, request); n.set(weighted, model.Shares, weight) }},
			{"class", func() { n.set(class, model.Shares, 2*request+weight) }},
		} {
			level.write()
			time.Sleep(time.Second) // the kernel moves processes between CPUs
			shares[level.name+"_share"] = n.share(length, weighted, plain, guaranteed)
		}
		t.Log(shares)
		// By arithmetic it is 8 % at the container, and 79 % at the class.
		if shares["container_share"] > 0.2 || shares["class_share"] < 0.6 {
			return shares, "a weight counts at the wrong level"
		}
		writeFigures(t, n.mount.Version, "hierarchy", shares)
		return shares, ""
	})
}

// share returns the first group's part of the CPU time of some groups.
func (n *meterNode) share(length time.Duration, dirs ...string) float64 {
	n.t.Helper()
	var before []uint64
	for _, dir := range dirs {
		nanos, _ := n.used(dir)
		before = append(before, nanos)
	}
	time.Sleep(length)
	var first, sum float64
	for i, dir := range dirs {
		nanos, _ := n.used(dir)
		used := float64(nanos - before[i])
		if i == 0 {
			first = used
		}
		sum += used
	}
	return first / sum
}
