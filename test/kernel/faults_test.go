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
	fight(t)
}

// figures are what a test measured on its way, by name. Benches judge them.
type figures map[string]float64

func fight(t *testing.T) figures {
	t.Helper()
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
	within(t, "the agent reports the fight", func() bool {
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
	f := figures{"seconds": time.Since(begin).Seconds(), "cpu_seconds": (d.cpu() - cpu).Seconds(),
		"repairs_before": before, "repairs": repairs() - before}

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
	checkAnswers(t, runDir, model.File{Dir: a, Knob: model.Shares})
	return f
}

// checkAnswers checks in an agent's journal that the agent answered another writer of a file at most once a second, by
// its own clock, from the round on that reported the fight.
func checkAnswers(t *testing.T, runDir string, file model.File) {
	t.Helper()
	deferred, answers := 0, 0
	var last time.Time
	for round, err := range journal.Read(runDir) {
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range round.State.Files {
			if f.File != file || !f.Fighting {
				continue
			}
			i := slices.IndexFunc(round.Plan.Settings, func(s model.Setting) bool { return s.File == file })
			if i < 0 {
				continue
			}
			switch s := &round.Plan.Settings[i]; {
			case s.Deferred != nil && s.Deferred.Code == model.ForeignWriter:
				deferred++
			case s.Deferred == nil:
				if pause := round.Node.Now.Sub(last); pause < time.Second {
					t.Errorf("the agent answered again after %s", pause)
				}
				answers, last = answers+1, round.Node.Now
			}
		}
	}
	t.Logf("the journal has %d answers, and %d rounds without an answer", answers, deferred)
	if deferred == 0 || answers == 0 {
		t.Error("the journal does not have the fight")
	}
}

// TestOverflow stops the agent while more events occur than the kernel queues, and while pods come and go. After it
// continues, it must find the dropped changes without an audit.
func TestOverflow(t *testing.T) {
	liveKernel(t, "the queue of events is the same with cgroup v2")
	overflow(t)
}

func overflow(t *testing.T) figures {
	t.Helper()
	n, f := newNode(t), figures{}
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
		f["cpu_seconds"] = max(f["cpu_seconds"], (d.cpu() - cpu).Seconds())
		n.remove(n.layout.Pod(model.Burstable, "come"))
		n.foreign(gone, 8192) // the new directory is watched
		if t.Failed() {
			t.Fatalf("time %d", i)
		}
	}
	d.finish(5)
	return f
}

// TestNoWatches starts an agent that gets no inotify instance, or too few watches, as on a node where other processes
// use them up. The agent must read more often instead, log this once, and watch as soon as it can. The limits are those
// of a user namespace, so that no other process is affected.
func TestNoWatches(t *testing.T) {
	t.Parallel()
	for limit, value := range watchLimits {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			noWatches(t, limit, value)
		})
	}
}

// watchLimits are limits of a user namespace with values under which an agent cannot watch.
var watchLimits = map[string]string{"max_inotify_instances": "0", "max_inotify_watches": "2"}

func noWatches(t *testing.T, limit, value string) figures {
	t.Helper()
	n, f := newNode(t), figures{}
	manifests := t.TempDir()
	a, other := n.pod(model.Burstable, "a", 500), n.pod(model.Burstable, "other", 500)
	manifest(t, manifests, "a", 500, 2048)
	manifest(t, manifests, "other", 500, 0)
	s := newStage(t, "-U", "-r")
	s.do("echo %s >/proc/sys/user/%s", value, limit)
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
	d.restsBetween(2)
	f["cpu_seconds"] = (d.cpu() - cpu).Seconds()
	if got := d.logged("no inotify watches left"); got != 1 {
		t.Errorf("the agent logged this %d times, want once", got)
	}

	s.do("echo 1000 >/proc/sys/user/%s", limit)
	within(t, "watching", func() bool { return d.metric(v1alpha1.MetricWatching) == 1 }, d.text)
	audits := d.metric(v1alpha1.MetricAudits)
	time.Sleep(2500 * time.Millisecond)
	if got := d.metric(v1alpha1.MetricAudits); got > audits+1 { // the next one is due in an hour
		t.Errorf("it still audits every second: %v audits, then %v", audits, got)
	}
	n.foreign(a, 2048)
	n.foreign(b, 4096)
	n.untouched(other, model.Shares, 512)
	if d.logged("recovered") != 1 {
		t.Error("it does not report that it watches again")
	}
	d.finish(6)
	return f
}

// restsBetween waits until an agent that audits about once a second has made more audits, and checks that it rests
// between two.
func (d *daemon) restsBetween(audits float64) {
	d.t.Helper()
	firstAudit, firstRound := d.metric(v1alpha1.MetricAudits), d.metric(v1alpha1.MetricRounds)
	within(d.t, "audits", func() bool { return d.metric(v1alpha1.MetricAudits) >= firstAudit+audits }, d.text)
	d.rested(firstAudit, firstRound)
}

// rested checks how many rounds an agent has decided since it had made so many audits and rounds. An audit leads to one
// round, and each of the test's own changes to one or two more. A loop without a rest decides hundreds. Audits are read
// first and last, so those that the agent makes between two readings allow rounds and add none.
func (d *daemon) rested(audits, rounds float64) {
	d.t.Helper()
	rounds = d.metric(v1alpha1.MetricRounds) - rounds
	audits = d.metric(v1alpha1.MetricAudits) - audits
	if most := 4 + 2*audits; rounds > most {
		d.t.Errorf("%v rounds with %v audits, want at most %v", rounds, audits, most)
	}
}

// TestMount walks an agent through the possible states of its cgroup mount: read-only at first, then writable,
// unmounted, covered by another mount, and writable again.
func TestMount(t *testing.T) {
	t.Parallel() // it mostly waits
	movingMount(t)
}

func movingMount(t *testing.T) figures {
	t.Helper()
	n, f := newNode(t), figures{}
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
	cpu := d.cpu()
	d.restsBetween(2)
	n.untouched(a, model.Shares, 512)
	f["read_only_cpu_seconds"] = (d.cpu() - cpu).Seconds()

	t.Log("writable")
	s.do("mount -o remount,bind,rw %s", target)
	n.expect(a, model.Shares, 2048)
	d.ready()
	n.foreign(a, 2048)

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
		d.restsBetween(1)
		f["unmounted_cpu_seconds"] = max(f["unmounted_cpu_seconds"], (d.cpu() - cpu).Seconds())
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
	if d.logged("is no longer the directory") == 0 {
		t.Error("the missing mount was not logged")
	}
	d.finish(8)
	return f
}

// TestFullDisk fills the file system of the run directory. The agent must not write a file without an undo record then.
// It must keep up the files already on record. When there is space again, every file must become right without help.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	fullDisk(t)
}

func fullDisk(t *testing.T) figures {
	t.Helper()
	n, f := newNode(t), figures{}
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
	cpu, audits, rounds := d.cpu(), d.metric(v1alpha1.MetricAudits), d.metric(v1alpha1.MetricRounds)

	t.Log("a weight on record is kept up")
	n.foreign(a, 2048)
	n.set(a, model.Shares, 3027)
	n.expect(a, model.Shares, 2048)

	t.Log("a kill and a restart change nothing")
	n.untouched(b, model.Shares, 512)
	d.rested(audits, rounds)
	f["cpu_seconds"] = (d.cpu() - cpu).Seconds()
	first := d
	d.end(unix.SIGKILL)
	if strings.Contains(first.text(), "panic") || first.lines() > 6 {
		t.Errorf("the log of the first agent: %s", first.text())
	}
	d = s.daemon(n, manifests, runDir, "--sync-period", "1s")
	d.ready()
	n.foreign(a, 2048)
	n.set(a, model.Shares, 3054) // restored, if all goes well
	n.expect(a, model.Shares, 2048)
	d.restsBetween(2)
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
	return f
}

// TestClock steps the wall clock, which is possible only in a virtual machine. The agent must not be affected.
func TestClock(t *testing.T) {
	if !emulated() {
		t.Skip("the test must not set the clock of this machine; it runs in the virtual machine")
	}
	clockSteps(t)
}

func clockSteps(t *testing.T) figures {
	t.Helper()
	n, f := newNode(t), figures{}
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
		within(t, "audits continue", func() bool { return d.metric(v1alpha1.MetricAudits) >= audits+2 }, d.text)
		took, more := time.Since(begin).Seconds(), d.metric(v1alpha1.MetricAudits)-audits
		if more > 300 { // the audits of five minutes; an agent that caught up would make those of an hour
			t.Errorf("after a step of %s: %v audits", by, more)
		}
		f["audits_too_many"] = max(f["audits_too_many"], more-took)
		f["cpus"] = max(f["cpus"], ((d.cpu()-cpu).Seconds()-0.5)/took)
	}
	n.untouched(other, model.Shares, 512)
	d.finish(5)
	return f
}
