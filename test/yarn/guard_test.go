package yarn_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/poll"
	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
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
func startGuard(t *testing.T, node int, a shed.Allowance) (*guard.Guard, *ledger) {
	t.Helper()
	allowance := filepath.Join(t.TempDir(), "allowance")
	text := fmt.Sprintf(`{"memoryMiB":%d,"vcores":%d,"until":%q}`, a.MemoryMiB, a.VCores, a.Until.Format(time.RFC3339))
	if err := os.WriteFile(allowance, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	written := &ledger{}
	g, err := guard.New(guard.Options{
		Settings: shed.DefaultSettings(), Allowance: allowance, NodeManager: bed.NodeURL(node), User: "root",
		PID: cluster.Node(node).PID(), Cgroup: t.TempDir(), // the machine's: it has no limit
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
	if _, err := rm.Resize(t.Context(), bed.NodeID(node), small, deadline); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := rm.Resize(context.Background(), bed.NodeID(node), offered, time.Minute); err != nil {
			t.Error(err)
		}
	}()
	_, written := startGuard(t, node, shed.Allowance{
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

// TestGuard lowers what a NodeManager may use while no ResourceManager runs. The guard beside it ends the youngest
// containers until the rest fits, and the job of these containers, whose master it spares, ends well.
func TestGuard(t *testing.T) {
	j, app := job(t, cluster.Sleep(t.Context(), 8, 1, time.Minute))
	// The node of the master, with two other containers at least.
	node, before := 0, []yarn.Container(nil)
	err := eventually(t, func(ctx context.Context) error {
		a, err := rm.App(ctx, app)
		if err != nil {
			return err
		}
		if node = 1; a.MasterNode == bed.NodeID(2) {
			node = 2
		}
		all, err := nm.Containers(ctx, bed.NodeURL(node))
		before = slices.DeleteFunc(all, func(c yarn.Container) bool {
			return c.State != yarn.ContainerRunning || !strings.Contains(c.ID, strings.TrimPrefix(app, "application_"))
		})
		if err == nil && (len(before) < 3 || !slices.ContainsFunc(before, isMaster)) {
			err = fmt.Errorf("%s runs %+v", bed.NodeID(node), all)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(before, func(a, b yarn.Container) int { return strings.Compare(a.ID, b.ID) })
	if err := cluster.RM(1).Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	allowed := int64(0)
	for _, c := range before[:len(before)-2] {
		allowed += c.Size.MemoryMiB
	}
	g, written := startGuard(t, node, shed.Allowance{MemoryMiB: allowed, VCores: 99, Until: time.Now()})
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
