//go:build bench

package kernel_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// TestSystemWaits measures how long kernel threads and a service of the node wait for a CPU beside a pod of the highest
// weight that burns all CPUs, and full batch. Of a turn on a CPU, the kernel shows the mean of those between two looks,
// which are 5 ms apart.
func TestSystemWaits(t *testing.T) {
	liveKernel(t, "the waits of emulated CPUs follow other programs")
	n := newSuppressNode(t)
	n.proc = ""
	kubelet, group := n.service("while :; do sleep 0.01; done")
	defer end(kubelet)
	n.set(group, model.Shares, 1024)                                                  // as system.slice has
	n.set(filepath.Dir(n.layout.Root), model.Shares, n.milli*model.SharesPerCPU/1000) // as kubepods has
	n.agentBy(model.SuppressOnHarm)
	n.set(n.web, model.Shares, 262144)
	for range runtime.NumCPU() {
		n.load(n.job)
		n.load(n.web)
	}
	n.until("batch and the pod use the machine", func() bool { return n.run.agent.Ready() == nil })
	retry(t, 3, func() (map[string]float64, string) {
		tasks := n.ownTasks(kubelet.Process.Pid)
		waits := map[string][]time.Duration{}
		last := map[string]host.Schedstat{}
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			for file, name := range tasks {
				content, err := os.ReadFile(file)
				if err != nil {
					continue
				}
				s, err := host.ParseSchedstat(content)
				if err != nil {
					t.Fatal(err)
				}
				since := s.Since(last[file])
				if _, known := last[file]; known && since.Times > 0 {
					waits[name] = append(waits[name], since.Waited/time.Duration(since.Times))
				}
				last[file] = s
			}
		}
		values, why := map[string]float64{}, ""
		for name, all := range waits {
			slices.Sort(all)
			p99 := float64(all[len(all)*99/100].Microseconds()) / 1000
			values[name+"_wait_p99_ms"] = p99
			if t.Logf("%s: %d looks, p99 %.2f ms", name, len(all), p99); p99 > slower(5, 20) {
				why = name + " waits for longer than 5 ms"
			}
		}
		if len(waits) != 2 {
			why = fmt.Sprintf("only %d of two were seen", len(waits))
		}
		return values, why
	})
}

// ownTasks returns the schedstat files of kernel threads that work for one CPU, and of the service.
func (n *suppressNode) ownTasks(service int) map[string]string {
	n.t.Helper()
	all := map[string]string{fmt.Sprintf("/proc/%d/schedstat", service): "kubelet"}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, file := range names {
		content, _ := os.ReadFile(file)
		for _, prefix := range []string{"ksoftirqd/", "rcu_preempt", "kworker/0:", "kworker/1:"} {
			if strings.HasPrefix(string(content), prefix) {
				all[filepath.Join(filepath.Dir(file), "schedstat")] = "kernel"
			}
		}
	}
	return all
}
