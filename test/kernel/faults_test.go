package kernel_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
)

// noAudit puts an hour between two audits. A file that is right much earlier was not found by an audit.
const noAudit = "--sync-period=1h"

// untouched checks that a file still has the value that the test wrote, because the agent must not write it.
func (n *testNode) untouched(dir string, k model.Knob, value int64) {
	n.t.Helper()
	if !n.holds(dir, k, value) {
		n.t.Errorf("%s %s is %d, though the agent must leave it at %d", dir, k, n.raw(dir, k), value)
	}
}

// foreign overwrites a weight and waits until the agent has written it again.
func (n *testNode) foreign(dir string, right int64) {
	n.t.Helper()
	n.set(dir, model.Shares, 3000)
	n.expect(dir, model.Shares, right)
}

// TestFight lets another writer overwrite a pod's weight in a tight loop. The agent must answer, less and less often,
// and report the fight. No other pod may be affected. When the writer stops, the weight must become right.
func TestFight(t *testing.T) {
	liveKernel(t, "who writes and how often looks the same with cgroup v2")
	n := newNode(t)
	manifests, runDir := t.TempDir(), t.TempDir()
	class := n.layout.Class(model.Burstable)
	a, b, c := n.pod(model.Burstable, "a", 500), n.pod(model.Burstable, "b", 500), n.pod(model.Burstable, "c", 500)
	manifest(t, manifests, "a", 500, 2048)
	manifest(t, manifests, "b", 500, 4096)
	manifest(t, manifests, "c", 500, 0)
	d := n.daemon(manifests, runDir)
	n.expect(a, model.Shares, 2048)
	n.expect(class, model.Shares, 2048+4096+512)

	stop := make(chan struct{})
	var fight sync.WaitGroup
	defer fight.Wait()
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	fight.Go(func() {
		file, err := os.OpenFile(n.path(a, cgroup.FileName(n.mount.Version, model.Shares)), os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := unix.Pwrite(int(file.Fd()), strconv.AppendInt(nil, int64(70+i%9), 10), 0); err != nil {
				t.Error(err)
				return
			}
		}
	})
	repairs := func() float64 { return d.metric(v1alpha1.MetricRepairs, "file", "cpu.shares") }
	waitFor(t, 40*time.Second, "the agent reports the fight", func() bool {
		return d.metric(v1alpha1.MetricDeferredFiles, "reason", string(model.ForeignWriter)) == 1
	}, func() string { return fmt.Sprintf("%v repairs; %s", repairs(), d.explain("a")) })
	// Two rounds are at least ten milliseconds apart, and a fight is reported after ten seconds.
	if got := repairs(); got > 4000 {
		t.Errorf("the agent made %v repairs until it reported the fight", got)
	}
	before, cpu, begin := repairs(), d.cpu(), time.Now()
	n.foreign(b, 4096)
	n.foreign(class, 2048+4096+512)
	// The explanation has the reason in every round that defers the file, which is most of the time.
	within(t, "an explanation", func() bool { return strings.Contains(d.explain("a"), "ForeignWriter") },
		func() string { return d.explain("a") })
	out, err := exec.Command(binary(t, "waterline"), "doctor", "--kubepods", n.layout.Root, "--run-dir", runDir,
		"--seconds", "2").CombinedOutput()
	if self := filepath.Base(os.Args[0]); err == nil || !strings.Contains(string(out), self+" wrote cpu.shares") {
		t.Errorf("doctor does not name %s: %v:\n%s", self, err, out)
	}
	if soak() {
		time.Sleep(time.Minute)
	}
	took := time.Since(begin).Seconds()
	if got := repairs() - before; got > 2*took+5 {
		t.Errorf("%v repairs within %.1f s, want about one a second", got, took)
	}
	most := 0.5
	if emulated() {
		most = 1 // ten times as slow; a loop without a rest would use a whole CPU and more
	}
	if got := (d.cpu() - cpu).Seconds() / took; got > most {
		t.Errorf("the fight costs %.2f CPU", got)
	} else {
		t.Logf("repairs until the report: %.0f; then %.2f a second at %.3f CPU", before, (repairs()-before)/took, got)
	}

	end()
	fight.Wait()
	n.expect(a, model.Shares, 2048)
	n.expect(b, model.Shares, 4096)
	n.untouched(c, model.Shares, 512)
	if soak() {
		time.Sleep(15 * time.Second) // then the fight is forgotten
		n.foreign(a, 2048)
	}
	d.finish(10)
	if got := d.logged("ForeignWriter"); got != 1 {
		t.Errorf("the other writer was logged %d times, want once", got)
	}
	recorded := false
	for round, err := range journal.Read(runDir) {
		for _, s := range round.Plan.Settings {
			recorded = recorded || err == nil && s.Deferred != nil && s.Deferred.Code == model.ForeignWriter && s.Dir == a
		}
	}
	if !recorded {
		t.Error("the journal does not have the fight")
	}
}

// waitFor is within for events that take long.
func waitFor(t testing.TB, most time.Duration, what string, holds func() bool, instead func() string) {
	t.Helper()
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not within %v: %s; instead %s", most, what, instead())
}

// TestOverflow stops the agent while more events occur than the kernel queues, and while pods come and go. After it
// continues, it must find the dropped changes without an audit.
func TestOverflow(t *testing.T) {
	liveKernel(t, "the queue of events is the same with cgroup v2")
	n := newNode(t)
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	queue, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	times := 1
	if soak() {
		times = 20
	}
	manifests := t.TempDir()
	a, b := n.pod(model.Burstable, "a", 500), n.pod(model.Burstable, "b", 500)
	gone, other := n.pod(model.Burstable, "gone", 500), n.pod(model.Burstable, "other", 500)
	for i, uid := range []string{"a", "b", "come", "gone"} {
		manifest(t, manifests, uid, 500, int64(2048*(i+1)))
	}
	manifest(t, manifests, "other", 500, 0)
	d := n.daemon(manifests, t.TempDir(), noAudit)
	n.expect(gone, model.Shares, 8192)
	n.expect(b, model.Shares, 4096)
	d.ready()
	for i := range times {
		audits := d.metric(v1alpha1.MetricAudits)
		if err := unix.Kill(d.pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// The signal takes some time to reach every thread.
		within(t, "a stop", func() bool {
			tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", d.pid))
			return !slices.ContainsFunc(tasks, func(task string) bool {
				stat, _ := os.ReadFile(task)
				return !strings.Contains(string(stat), ") T ")
			})
		}, func() string { return "the agent runs" })
		// Two files in turn, because the kernel merges equal consecutive events.
		for j := range queue/2 + 100 {
			n.set(a, model.Shares, int64(3000+j%2*27))
			n.set(b, model.Shares, int64(3000+j%2*27))
		}
		n.pod(model.Burstable, "come", 500)
		n.remove(gone)
		n.pod(model.Burstable, "gone", 500)
		cpu := d.cpu()
		if err := unix.Kill(d.pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		n.expect(a, model.Shares, 2048)
		n.expect(b, model.Shares, 4096)
		n.expect(n.layout.Pod(model.Burstable, "come"), model.Shares, 6144)
		n.expect(gone, model.Shares, 8192)
		n.untouched(other, model.Shares, 500*model.SharesPerCPU/1000)
		if d.metric(v1alpha1.MetricAudits) == audits {
			t.Fatal("the queue did not overflow, so the test proves nothing")
		}
		if used := d.cpu() - cpu; used > affordable(3*time.Second) {
			t.Errorf("catching up took %s of CPU", used)
		}
		n.remove(n.layout.Pod(model.Burstable, "come"))
		n.foreign(gone, 8192) // the new directory is watched
		if t.Failed() {
			t.Fatalf("time %d", i)
		}
	}
	d.finish(5)
}

// affordable scales the CPU time of a task from a real CPU to this one.
func affordable(cpu time.Duration) time.Duration {
	if emulated() {
		return 5 * cpu
	}
	return cpu
}

// TestNoWatches starts an agent that gets no inotify instance, or too few watches, as on a node where other processes
// use them up. The agent must read more often instead, log this once, and watch as soon as it can. The limits are those
// of a user namespace, so that no other process is affected.
func TestNoWatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ limit, value string }{{"max_inotify_instances", "0"}, {"max_inotify_watches", "2"}} {
		t.Run(c.limit, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			manifests := t.TempDir()
			a, other := n.pod(model.Burstable, "a", 500), n.pod(model.Burstable, "other", 500)
			manifest(t, manifests, "a", 500, 2048)
			manifest(t, manifests, "other", 500, 0)
			s := newStage(t, "-U", "-r")
			s.do("echo %s >/proc/sys/user/%s", c.value, c.limit)
			d := s.daemon(n, manifests, t.TempDir(), noAudit)
			n.expect(a, model.Shares, 2048)
			d.ready()
			if d.metric(v1alpha1.MetricWatching) != 0 {
				t.Error("the agent reports that it watches")
			}
			cpu := d.cpu()
			n.foreign(a, 2048)
			b := n.pod(model.Burstable, "b", 500)
			manifest(t, manifests, "b", 500, 4096)
			n.expect(b, model.Shares, 4096)
			time.Sleep(2 * time.Second) // two more reads
			if used := d.cpu() - cpu; used > affordable(time.Second) {
				t.Errorf("without watches, the agent used %s of CPU", used)
			}
			if got := d.logged("no inotify watches left"); got != 1 {
				t.Errorf("the agent logged this %d times, want once", got)
			}

			s.do("echo 1000 >/proc/sys/user/%s", c.limit)
			within(t, "watching", func() bool { return d.metric(v1alpha1.MetricWatching) == 1 }, d.text)
			audits := d.metric(v1alpha1.MetricAudits)
			time.Sleep(1500 * time.Millisecond)
			if got := d.metric(v1alpha1.MetricAudits); got > audits+1 {
				t.Errorf("it still audits every second: %v audits, then %v", audits, got)
			}
			n.foreign(a, 2048)
			n.foreign(b, 4096)
			n.untouched(other, model.Shares, 512)
			if d.logged("recovered") != 1 {
				t.Error("it does not report that it watches again")
			}
			d.finish(6)
		})
	}
}

// TestMount walks an agent through the possible states of its cgroup mount: read-only at first, then writable,
// unmounted, covered by another mount, and writable again.
func TestMount(t *testing.T) {
	t.Parallel() // it mostly waits
	n := newNode(t)
	manifests, root := t.TempDir(), t.TempDir()
	target := root
	if n.mount.Version == cgroup.V1 {
		target = filepath.Join(root, "cpu")
		if err := os.Mkdir(target, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a, other := n.pod(model.Burstable, "a", 500), n.pod(model.Burstable, "other", 500)
	manifest(t, manifests, "a", 500, 2048)
	manifest(t, manifests, "b", 500, 4096)
	manifest(t, manifests, "c", 500, 8192)
	manifest(t, manifests, "other", 500, 0)
	s := newStage(t, "-m")
	mount := func() { s.do("mount --bind %s %s", n.mount.Path, target) }
	mount()
	s.do("mount -o remount,bind,ro %s", target)
	d := s.daemon(n, manifests, t.TempDir(), "--cgroup-root", root, "--sync-period", "1s")

	t.Log("read-only: the agent reports that and writes nothing")
	within(t, "a deferred file", func() bool { return strings.Contains(d.explain("a"), "ReadOnlyMount") },
		func() string { return d.explain("a") + d.text() })
	if code, body := d.get(d.listen, "/readyz"); code != 503 || !strings.Contains(body, "read-only") {
		t.Errorf("ready: %d %s", code, body)
	}
	cpu, rounds, began := d.cpu(), d.metric(v1alpha1.MetricRounds), time.Now()
	time.Sleep(1200 * time.Millisecond)
	n.untouched(a, model.Shares, 512)
	used, more := d.cpu()-cpu, d.metric(v1alpha1.MetricRounds)-rounds
	if took := time.Since(began); used > affordable(500*time.Millisecond) || more > 5+4*took.Seconds() {
		t.Errorf("waiting for %s took %v rounds and %s of CPU", took, more, used)
	}

	t.Log("writable")
	s.do("mount -o remount,bind,rw %s", target)
	n.expect(a, model.Shares, 2048)
	d.ready()
	n.foreign(a, 2048)

	began = time.Now()
	for _, fault := range []struct{ uid, begin, end string }{
		{"b", "umount -l " + target, ""},
		{"c", "mount -t tmpfs none " + target, "umount -l " + target},
	} {
		t.Log(fault.begin)
		s.do("%s", fault.begin)
		n.foreign(a, 2048)
		dir := n.pod(model.Burstable, fault.uid, 500)
		right := map[string]int64{"b": 4096, "c": 8192}[fault.uid]
		n.expect(dir, model.Shares, right)
		within(t, "the agent reports the fault", func() bool {
			return d.metric(v1alpha1.MetricWatching) == 0 && d.metric(v1alpha1.MetricErrors, "operation", "cgroups") > 0
		}, d.text)
		cpu := d.cpu()
		n.foreign(dir, right) // it cannot be watched, so it is polled
		time.Sleep(time.Second)
		if used := d.cpu() - cpu; used > affordable(time.Second) {
			t.Errorf("the agent used %s of CPU", used)
		}
		if fault.end != "" {
			s.do("%s", fault.end)
		} else {
			mount()
		}
		within(t, "watching", func() bool { return d.metric(v1alpha1.MetricWatching) == 1 }, d.text)
		n.foreign(dir, right)
		n.foreign(a, 2048)
	}
	n.expect(n.layout.Class(model.Burstable), model.Shares, 2048+4096+8192+512)
	n.untouched(other, model.Shares, 512)
	minutes := int(time.Since(began) / time.Minute) // whole entries; a slow machine writes some
	if got := d.logged("is no longer the directory"); got < 1 || got > 1+minutes {
		t.Errorf("the missing mount was logged %d times within %s, want once a minute", got, time.Since(began))
	}
	d.finish(8 + 2*minutes)
}

// TestFullDisk fills the file system of the run directory. The agent must not write a file without an undo record then.
// It must keep up the files already on record. When there is space again, every file must become right without help.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	manifests, runDir := t.TempDir(), t.TempDir()
	class := n.layout.Class(model.Burstable)
	a, b, other := n.pod(model.Burstable, "a", 500), n.pod(model.Burstable, "b", 500), n.pod(model.Burstable, "other", 500)
	n.set(class, model.Shares, 1500)
	for uid, shares := range map[string]int64{"a": 2048, "b": 0, "other": 0} {
		manifest(t, manifests, uid, 500, shares)
	}
	s := newStage(t, "-m")
	s.do("mount -t tmpfs -o size=256k none %s", runDir)
	fill := func() {
		_, _ = s.try("cat /dev/zero >%s/filler", runDir)
	}
	d := s.daemon(n, manifests, runDir, "--sync-period", "1s")
	n.expect(a, model.Shares, 2048)
	n.expect(class, model.Shares, 2048+512+512)
	fill()

	t.Log("a pod that is not on record waits")
	manifest(t, manifests, "b", 500, 4096)
	within(t, "an error in the log", func() bool { return d.logged("the undo record: writing") > 0 }, d.text)
	cpu, rounds, begin := d.cpu(), d.metric(v1alpha1.MetricRounds), time.Now()

	t.Log("a weight on record is kept up")
	n.foreign(a, 2048)
	n.set(a, model.Shares, 3027)
	n.expect(a, model.Shares, 2048)

	t.Log("a kill and a restart change nothing")
	n.untouched(b, model.Shares, 512)
	if used, more := d.cpu()-cpu, d.metric(v1alpha1.MetricRounds)-rounds; used > affordable(time.Second) ||
		more > 20+5*time.Since(begin).Seconds() {
		t.Errorf("a full disk took %v rounds and %s of CPU within %s", more, used, time.Since(begin))
	}
	first := d
	d.end(unix.SIGKILL)
	if strings.Contains(first.text(), "panic") || first.logged("") > 6 {
		t.Errorf("the log of the first agent: %s", first.text())
	}
	d = s.daemon(n, manifests, runDir, "--sync-period", "1s")
	d.ready()
	n.foreign(a, 2048)
	n.set(a, model.Shares, 3054) // restored, if all goes well
	n.expect(a, model.Shares, 2048)
	time.Sleep(1200 * time.Millisecond) // an audit
	n.untouched(b, model.Shares, 512)
	n.untouched(class, model.Shares, 2048+512+512)

	t.Log("there is space again")
	s.do("rm %s/filler", runDir)
	n.expect(b, model.Shares, 4096)
	n.expect(a, model.Shares, 2048)
	n.expect(class, model.Shares, 2048+4096+512)
	n.untouched(other, model.Shares, 512)
	within(t, "the agent has recovered", func() bool { return d.logged("recovered") > 0 }, d.text)
	d.finish(8)
	torn := 0
	for _, err := range journal.Read(filepath.Join("/proc", s.do("echo $$"), "root", runDir)) {
		if err != nil {
			torn++
		}
	}
	if torn > 1 { // by the kill
		t.Errorf("%d rounds of the journal cannot be read", torn)
	}
	s.do("%s restore --run-dir %s", binary(t, "waterline"), runDir)
	n.untouched(a, model.Shares, 3054)
	n.untouched(b, model.Shares, 512)
	n.untouched(class, model.Shares, 1500)
}

// TestClock steps the wall clock, which is possible only in a virtual machine. The agent must not be affected.
func TestClock(t *testing.T) {
	if !emulated() {
		t.Skip("the test must not set the clock of this machine; it runs in the virtual machine")
	}
	n := newNode(t)
	manifests := t.TempDir()
	a, other := n.pod(model.Burstable, "a", 500), n.pod(model.Burstable, "other", 500)
	manifest(t, manifests, "a", 500, 2048)
	manifest(t, manifests, "other", 500, 0)
	d := n.daemon(manifests, t.TempDir(), "--sync-period", "1s")
	n.expect(a, model.Shares, 2048)
	d.ready()
	var stepped time.Duration
	step := func(by time.Duration) {
		t.Helper()
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
			t.Fatal(err)
		}
		to := unix.NsecToTimeval(now.Nano() + int64(by))
		if err := unix.Settimeofday(&to); err != nil {
			t.Fatal(err)
		}
		stepped += by
	}
	defer func() { step(-stepped) }()
	steps := []time.Duration{time.Hour, -2 * time.Hour, time.Hour}
	if soak() {
		steps = append(steps, 24*time.Hour, -48*time.Hour, time.Millisecond, -time.Second, time.Minute)
	}
	for _, by := range steps {
		audits, cpu, begin := d.metric(v1alpha1.MetricAudits), d.cpu(), time.Now()
		step(by)
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, body := d.get(d.listen, path); code != 200 {
				t.Errorf("after a step of %s: %s: %d %s", by, path, code, body)
			}
		}
		n.foreign(a, 2048)
		uid := "new" + strconv.Itoa(int(begin.UnixNano()%1e6))
		manifest(t, manifests, uid, 500, 4096) // its time stamp is out of order
		n.expect(n.pod(model.Burstable, uid, 500), model.Shares, 4096)
		waitFor(t, 20*time.Second, "audits continue", func() bool { return d.metric(v1alpha1.MetricAudits) >= audits+2 },
			d.text)
		took := time.Since(begin).Seconds()
		if got := d.metric(v1alpha1.MetricAudits) - audits; got > took+2 {
			t.Errorf("after a step of %s: %v audits within %.1f s, want one a second", by, got, took)
		}
		if used := (d.cpu() - cpu).Seconds(); used > took/2+0.5 {
			t.Errorf("after a step of %s: %.1f s of CPU within %.1f s", by, used, took)
		}
	}
	n.untouched(other, model.Shares, 512)
	d.finish(5)
}
