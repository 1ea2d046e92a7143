package yarn_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
	"github.com/waterline-io/waterline/test/poll"
)

// ledger collects what a guard writes.
type ledger struct {
	stop func() // ends the guard

	mu  sync.Mutex
	all []guardlog.Record
}

func (l *ledger) Write(p []byte) (int, error) {
	var r guardlog.Record
	if err := json.Unmarshal(p, &r); err != nil {
		return 0, fmt.Errorf("%q is no record: %w", p, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
	return len(p), nil
}

func (l *ledger) records() []guardlog.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// startGuard runs a guard beside a NodeManager, which has an allowance, until it is stopped or the test ends.
func startGuard(t *testing.T, node int, dir string, a shed.Allowance) (*guard.Guard, *ledger) {
	t.Helper()
	allowance := filepath.Join(t.TempDir(), "allowance")
	text := fmt.Sprintf(`{"memoryMiB":%d,"vcores":%d,"until":%q}`, a.MemoryMiB, a.VCores, a.Until.Format(time.RFC3339))
	if err := os.WriteFile(allowance, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	written := &ledger{}
	g, err := guard.New(guard.Options{
		Settings: shed.DefaultSettings(), Allowance: allowance, NodeManager: bed.NodeURL(node), User: "root",
		PID: cluster.Node(node).PID(), Cgroup: dir,
		Out: written, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { g.Run(ctx); close(done) }()
	written.stop = func() { cancel(); <-done }
	t.Cleanup(written.stop)
	return g, written
}

// TestGuardSpark lowers what a NodeManager is to have below what its Spark executor needs, with a deadline. The guard
// tells the executor to decommission: it moves its data, leaves by itself before the deadline, and no task runs again.
func TestGuardSpark(t *testing.T) {
	if !soak {
		t.Skip("WATERLINE_SOAK is not set: TestSpark shows how executors leave, and TestGuard how the guard ends containers")
	}
	if _, err := os.Stat(sparkDir); err != nil && os.Getenv("CI") == "" {
		t.Skipf("no Spark; run test/bed/yarn/build.sh spark: %v", err)
	}
	startWorkers(t)
	events := t.TempDir()
	// The stage that runs starts its last task before the executor ends, and its data is needed after that.
	l := leaving{interval: "1s", sleeps: bed.Sleeps{First8: time.Second, Others: time.Second / 5, Last: 40 * time.Second}}
	command, err := cluster.Spark(t.Context(), sparkDir, bed.ShuffleProgram(l.sleeps), l.settings(t, events))
	if err != nil {
		t.Fatal(err)
	}
	j, _ := job(t, command)
	firstStage(t, j, events)
	// A node with an executor and without the master.
	node, executor := 0, yarn.Container{}
	for _, i := range sparkWorkers {
		all, err := nm.Containers(t.Context(), bed.NodeURL(i))
		if err != nil {
			t.Fatal(err)
		}
		all = slices.DeleteFunc(all, func(c yarn.Container) bool { return c.State != yarn.ContainerRunning })
		if len(all) == 1 && !isMaster(all[0]) {
			node, executor = i, all[0]
		}
	}
	if node == 0 {
		t.Fatal("no node runs an executor alone")
	}
	began := time.Now()
	const deadline = time.Minute
	small := yarn.Resource{MemoryMiB: 256, VCores: 1}
	if _, err := bed.Resize(t.Context(), rm, bed.NodeID(node), small, deadline); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := bed.Resize(context.Background(), rm, bed.NodeID(node), offered, time.Minute); err != nil {
			t.Error(err)
		}
	}()
	_, written := startGuard(t, node, t.TempDir(), shed.Allowance{
		MemoryMiB: small.MemoryMiB, VCores: small.VCores, Until: began.Add(deadline),
	})
	if err := j.Wait(within(t, 20*time.Minute)); err != nil {
		t.Fatal(err)
	}
	written.stop()
	var signals []string
	for _, r := range written.records() {
		t.Logf("%.1f s: %+v", r.At.Sub(began).Seconds(), r)
		if r.Signal != "" && r.Container == executor.ID {
			signals = append(signals, r.Signal)
		}
	}
	if !slices.Equal(signals, []string{string(shed.Decommission)}) {
		t.Errorf("the executor got %q", signals)
	}
	s, err := bed.ReadSparkTasks(events)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d tasks ran again: %v; executors were removed after %v", len(s.Again), s.Tasks, s.Why(),
		s.RemovedAfter(began))
	// Only one left, by itself: at the deadline, the guard would have sent another signal.
	if len(s.Removed) != 1 {
		t.Errorf("%d executors left, not one: %+v", len(s.Removed), s.Removed)
	}
	if s.Percent() > 0 || !strings.Contains(j.Output(), bed.ShuffleAnswer) {
		t.Errorf("%.1f %% of the tasks ran again: %+v; %s", s.Percent(), s.Again, j.Output())
	}
}

// crowded runs a job, and returns it with the node of its master, which runs two other containers at least, and the
// containers of that node by their ids.
func crowded(t *testing.T) (j *bed.Job, node int, all []yarn.Container) {
	t.Helper()
	j, app := job(t, cluster.Sleep(t.Context(), 8, 1, time.Minute))
	err := eventually(t, func(ctx context.Context) error {
		a, err := bed.AppByID(ctx, rm, app)
		if err != nil {
			return err
		}
		if node = 1; a.MasterNode == bed.NodeID(2) {
			node = 2
		}
		listed, err := nm.Containers(ctx, bed.NodeURL(node))
		all = slices.DeleteFunc(slices.Clone(listed), func(c yarn.Container) bool {
			return c.State != yarn.ContainerRunning || !strings.Contains(c.ID, strings.TrimPrefix(app, "application_"))
		})
		if err == nil && (len(all) < 3 || !slices.ContainsFunc(all, isMaster)) {
			err = fmt.Errorf("%s runs %+v", bed.NodeID(node), listed)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b yarn.Container) int { return strings.Compare(a.ID, b.ID) })
	return j, node, all
}

// memoryOf returns the MiB that containers asked for.
func memoryOf(all []yarn.Container) (mib int64) {
	for _, c := range all {
		mib += c.Size.MemoryMiB
	}
	return mib
}

// TestGuard lowers what a NodeManager may use while no ResourceManager runs. The guard beside it ends the youngest
// containers until the rest fits, and the job of these containers, whose master it spares, ends well.
func TestGuard(t *testing.T) {
	j, node, before := crowded(t)
	if err := cluster.RM(1).Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	allowed := memoryOf(before[:len(before)-2])
	g, written := startGuard(t, node, t.TempDir(), shed.Allowance{MemoryMiB: allowed, VCores: 99, Until: time.Now()})
	// The ResourceManager has its turn first. Until then containers that it had allocated start; the last look before a
	// signal counts.
	var order []string
	if !poll.Until(3*time.Minute, 50*time.Millisecond, func() bool {
		seen := youngest(t, g)
		if len(written.records()) > 0 {
			return true
		}
		order = seen
		return false
	}) {
		t.Fatalf("the guard sees %q, and sends no signal", order)
	}
	using := int64(0)
	var left []yarn.Container
	if err := eventually(t, func(ctx context.Context) (err error) {
		if left, err = nm.Containers(ctx, bed.NodeURL(node)); err != nil {
			return err
		}
		using = 0
		for _, c := range left {
			if c.State == yarn.ContainerRunning {
				using += c.Size.MemoryMiB
			}
		}
		if using > allowed {
			err = fmt.Errorf("%d MiB of %d are in use by %+v", using, allowed, left)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	ended := 0
	for _, r := range written.records() {
		t.Logf("%+v", r)
		if r.Master || strings.HasSuffix(r.Container, "_000001") {
			t.Errorf("the master got a signal: %+v", r)
		}
		if r.Signal == string(shed.Terminate) {
			if ended++; r.Container != order[ended-1] {
				t.Errorf("signal %d went to %s, not to the youngest of %q", ended, r.Container, order)
			}
		}
	}
	if ended == 0 || using > allowed || !slices.ContainsFunc(left, isMaster) {
		t.Errorf("%d containers were ended; %d MiB of %d are in use by %+v", ended, using, allowed, left)
	}
	written.stop()
	if err := cluster.RM(1).Start(); err != nil {
		t.Fatal(err)
	}
	if err := j.Wait(within(t, 10*time.Minute)); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 2; i++ {
		running(t, i)
	}
}

// TestGuardAsks lowers what a NodeManager may use beside a guard whose user may neither look at its containers nor
// signal them. The ResourceManager has the NodeManager end the youngest one, the rest stays, and the job ends well.
func TestGuardAsks(t *testing.T) {
	if bin == "" {
		t.Fatal("WATERLINE_BIN is not set")
	}
	j, node, before := crowded(t)
	// Nothing new is placed, and the ResourceManager itself kills nothing meanwhile.
	small := yarn.Resource{MemoryMiB: 256, VCores: 1}
	if _, err := bed.Resize(t.Context(), rm, bed.NodeID(node), small, time.Hour); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := bed.Resize(context.Background(), rm, bed.NodeID(node), offered, time.Minute); err != nil {
			t.Error(err)
		}
	}()
	err := eventually(t, func(ctx context.Context) error { // what was allocated before has started
		n, err := rm.Node(ctx, bed.NodeID(node))
		if err != nil {
			return err
		}
		all, err := nm.Containers(ctx, bed.NodeURL(node))
		before = slices.DeleteFunc(all, func(c yarn.Container) bool { return c.State != yarn.ContainerRunning })
		if err == nil && n.Used.MemoryMiB != memoryOf(before) {
			err = fmt.Errorf("%+v are used by %+v", n.Used, before)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(before, func(a, b yarn.Container) int { return strings.Compare(a.ID, b.ID) })
	last := before[len(before)-1]
	dir := t.TempDir()
	text := fmt.Sprintf(`{"memoryMiB":%d,"vcores":99,"until":%q}`, memoryOf(before)-last.Size.MemoryMiB,
		time.Now().Format(time.RFC3339))
	err = errors.Join(os.Chmod(filepath.Dir(dir), 0o755),
		os.WriteFile(filepath.Join(dir, "allowance"), []byte(text), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	c := exec.CommandContext(t.Context(), filepath.Join(bin, "waterline-guard"), "--user=root", "--listen=",
		"--allowance="+filepath.Join(dir, "allowance"), "--cgroup="+dir,
		"--nodemanager="+bed.NodeURL(node), "--resourcemanager="+cluster.URLs()[0],
		fmt.Sprintf("--pid=%d", cluster.Node(node).PID()))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	c.Stderr = os.Stderr
	lines, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := func() { _, _ = c.Process.Kill(), c.Wait() }
	defer stop()
	var records []guardlog.Record
	for in := json.NewDecoder(lines); len(records) == 0 || !records[len(records)-1].Left; {
		var r guardlog.Record
		if err := in.Decode(&r); err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", r)
		records = append(records, r)
	}
	first, end := &records[0], &records[len(records)-1]
	if first.Container != last.ID || first.Signal != string(shed.Terminate) || !first.Asked || first.Processes != 0 ||
		end.Container != last.ID || end.Exit == 0 {
		t.Errorf("%s was to end: %+v", last.ID, records)
	}
	stop()
	all, err := nm.Containers(t.Context(), bed.NodeURL(node))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range before[:len(before)-1] {
		runs := func(o yarn.Container) bool { return o.ID == c.ID && o.State == yarn.ContainerRunning }
		if !slices.ContainsFunc(all, runs) {
			t.Errorf("%s has ended too: %+v", c.ID, all)
		}
	}
	if err := j.Wait(within(t, 10*time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// youngest returns the containers that a guard sees, the youngest first.
func youngest(t *testing.T, g *guard.Guard) (ids []string) {
	t.Helper()
	to := httptest.NewRecorder()
	g.Handler().ServeHTTP(to, httptest.NewRequest("GET", "/state", nil))
	var state struct {
		Containers []shed.Container `json:"containers"`
	}
	if err := json.Unmarshal(to.Body.Bytes(), &state); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(state.Containers, func(a, b shed.Container) int {
		return cmp.Or(b.Started.Compare(a.Started), strings.Compare(b.ID, a.ID))
	})
	for _, c := range state.Containers {
		if c.Processes > 0 {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func isMaster(c yarn.Container) bool { return strings.HasSuffix(c.ID, "_000001") }
