package kernel_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// memoryDir returns a directory in memory if the machine has one. The agent's run directory on a node is in memory,
// too.
func memoryDir(t testing.TB) string {
	t.Helper()
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) != nil || st.Type != unix.TMPFS_MAGIC {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "waterline-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// resources is the kernel resources of a process.
type resources struct {
	files, watches, threads int
	rss                     int // KiB
}

// resources reads the kernel resources of the agent.
func (d *daemon) resources() resources {
	d.t.Helper()
	var h resources
	proc := filepath.Join("/proc", strconv.Itoa(d.pid))
	infos, err := filepath.Glob(proc + "/fdinfo/*")
	if err != nil || len(infos) == 0 {
		d.t.Fatalf("no open files: %v", err)
	}
	for _, info := range infos {
		if content, err := os.ReadFile(info); err == nil {
			h.files++
			h.watches += strings.Count(string(content), "inotify wd:")
		}
	}
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d", &h.rss)
		_, _ = fmt.Sscanf(line, "Threads: %d", &h.threads)
	}
	return h
}

// quantiles sorts durations and returns their 50th, 90th and 99th percentile.
func quantiles(took []time.Duration) (p50, p90, p99 time.Duration) {
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[min(int(q*float64(len(took))), len(took)-1)] }
	return at(0.5), at(0.9), at(0.99)
}

// TestCrowd lets 500 pods come within a minute, one after the other, then all at once, and go again. Each must get its
// weight, with a bounded number of rounds. Afterwards no open file, watch, goroutine or record may be left.
func TestCrowd(t *testing.T) {
	liveKernel(t, "a crowd of pods costs the same with cgroup v2")
	crowd(t)
}

// crowdCost is what a crowd of pods cost.
type crowdCost struct {
	took                     []time.Duration // from a pod's cgroup to its weight
	cpu                      time.Duration
	empty, full, first, last resources // before the pods came, with all of them, and after they had gone once and again
}

func crowd(t *testing.T) (cost crowdCost) {
	t.Helper()
	crowd, batch, period := 500, 100, 5*time.Second // time in which they come
	if soak() {
		period = time.Minute
	}
	n := newNode(t)
	manifests := t.TempDir()
	class := n.layout.Class(model.Burstable)
	other := n.pod(model.Burstable, "other", 500)
	manifest(t, manifests, "other", 500, 0)
	d := n.daemon(manifests, memoryDir(t))
	d.ready()
	known := func(pods int) {
		t.Helper()
		within(t, "the agent knows the pods",
			func() bool { return d.metric(v1alpha1.MetricPods, "qos", "Burstable") == float64(pods+1) }, d.text)
	}
	uid := func(i int) string { return fmt.Sprintf("crowd%03d", i) }
	shares := func(i int) int64 { return int64(128 + i) }
	announce := func(from, to int) {
		for i := from; i < to; i++ {
			manifest(t, manifests, uid(i), 100, shares(i))
		}
		known(to)
	}
	create := func(i int) string {
		return n.pod(model.Burstable, uid(i), 100, "0123456789aa", "0123456789bb")
	}
	right := func() {
		t.Helper()
		sum := int64(512)
		for i := range crowd {
			n.expect(n.layout.Pod(model.Burstable, uid(i)), model.Shares, shares(i))
			sum += shares(i)
		}
		n.expect(class, model.Shares, sum)
		n.untouched(other, model.Shares, 512)
	}
	// All pods go: the cgroups first, as with the kubelet.
	leave := func() resources {
		t.Helper()
		for i := range crowd {
			n.remove(n.layout.Pod(model.Burstable, uid(i)))
		}
		for i := range crowd {
			retract(t, manifests, uid(i))
		}
		known(0)
		within(t, "an empty record", func() bool { return d.metric(v1alpha1.MetricOwnedFiles) == 0 }, d.text)
		n.expect(class, model.Shares, 512)
		n.untouched(other, model.Shares, 512)
		return d.resources()
	}
	known(0)
	cost.empty = d.resources()

	cpu, rounds := d.cpu(), d.metric(v1alpha1.MetricRounds)
	for from := 0; from < crowd; from += batch {
		announce(from, from+batch)
		for i := from; i < from+batch; i++ {
			next := time.Now().Add(period / time.Duration(crowd))
			created := time.Now()
			n.expect(create(i), model.Shares, shares(i))
			cost.took = append(cost.took, time.Since(created))
			time.Sleep(time.Until(next))
		}
	}
	right()
	more := d.metric(v1alpha1.MetricRounds) - rounds
	cost.cpu, cost.full = d.cpu()-cpu, d.resources()
	t.Logf("%v rounds for %d pods", more, crowd)
	if more > float64(6*crowd) {
		t.Errorf("%v rounds for %d pods", more, crowd)
	}
	cost.first = leave()

	waves := 1
	if soak() {
		waves = 10
	}
	for range waves {
		announce(0, crowd)
		for i := range crowd {
			create(i)
		}
		right()
		cost.last = leave()
	}
	empty, last := cost.empty, cost.last
	if last.watches > empty.watches {
		t.Errorf("watches remain: %+v, was %+v", last, empty)
	}
	if last.files > empty.files+3 { // connections of the last queries
		t.Errorf("open files remain: %+v, was %+v", last, empty)
	}
	if lines := d.lines(); lines > 5 {
		t.Errorf("the agent logged %d lines: %s", lines, d.text())
	}
	d.end(unix.SIGQUIT) // it prints the stack of every goroutine
	// It needs about 45, including the runtime's and those of connections for metrics. One for each pod would be 500.
	if routines := d.logged("goroutine "); routines == 0 || routines > 80 {
		t.Errorf("%d goroutines at the end", routines)
	}
	return cost
}

// TestOwnWeight runs the agent in a pod of 10 milli-cores beside a pod of the greatest weight that uses all CPUs. The
// agent must set its own weight, and repair both.
func TestOwnWeight(t *testing.T) {
	liveKernel(t, "weights are written in the same way on cgroup v2")
	n, d, self, hog := starving(t)
	for range 5 {
		n.foreign(self, 102400)
		n.foreign(hog, model.MaxShares)
	}
	d.finish(5)
}

// starving starts an agent in a pod of 10 milli-cores beside a pod of the greatest weight that uses all CPUs.
func starving(t *testing.T) (n *testNode, d *daemon, self, hog string) {
	t.Helper()
	n = newNode(t)
	// The weight of the test's group far exceeds that of other processes on this machine, which are not to be measured.
	n.set(filepath.Dir(n.layout.Root), model.Shares, 16*model.SharesPerCPU)
	manifests := t.TempDir()
	const id = "0123456789ab"
	self, hog = n.pod(model.Burstable, "self", 10, id), n.pod(model.Burstable, "hog", 100, id)
	manifest(t, manifests, "self", 10, 0)
	manifest(t, manifests, "hog", 100, model.MaxShares)
	for _, dir := range []string{self, hog} {
		n.set(dir+"/"+id, model.Shares, model.MinShares) // as the kubelet sets it
	}
	d = n.daemonIn(self+"/"+id, manifests, memoryDir(t), "--pod-uid", "self")
	n.expect(hog, model.Shares, model.MaxShares)
	n.expect(self, model.Shares, 102400)
	for range 2 * runtime.NumCPU() {
		burn := n.commandIn(hog+"/"+id, "sh", "-c", "while :; do :; done")
		burn.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := burn.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = burn.Process.Kill(); _ = burn.Wait() })
	}
	return n, d, self, hog
}
