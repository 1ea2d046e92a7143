package kernel

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/checkpoint"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/observe/service"
	"github.com/waterline-io/waterline/test/poll"

	acthost "github.com/waterline-io/waterline/internal/act/host"
)

// newKernel returns a kernel whose cgroups are a folder with one pod and one container.
func newKernel(t *testing.T) *Kernel {
	t.Helper()
	layout, _ := cgroup.ParseLayout("kubepods")
	root := t.TempDir()
	for _, dir := range []string{layout.Pod(model.Burstable, "web"), layout.Class(model.BestEffort)} {
		if err := os.MkdirAll(filepath.Join(root, dir, "0123456789aa"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return kernelAt(t, root, filepath.Join(t.TempDir(), UndoFile))
}

// kernelAt returns a kernel with these cgroups and this undo record.
func kernelAt(t *testing.T, root, record string) *Kernel {
	t.Helper()
	layout, _ := cgroup.ParseLayout("kubepods")
	undo, err := acthost.OpenUndo(record)
	if err != nil {
		t.Fatal(err)
	}
	k := &Kernel{cfg: Config{Sys: host.DefaultSys}, log: faillog.New(slog.New(slog.DiscardHandler))}
	k.mount = host.Mount{Version: cgroup.V2, Path: root}
	if k.files, err = acthost.New(cgroup.V2, func(model.Knob) string { return root }, undo); err != nil {
		t.Fatal(err)
	}
	k.tree = host.NewTree(k.mount, layout, nil)
	k.meter = host.NewMeter(k.mount, layout, host.DefaultProc)
	k.looks, k.services = newLooks(k.log), service.New("node")
	t.Cleanup(func() { _ = k.Close() })
	k.Scan()
	return k
}

// TestRestored checks that a kernel is restored only when no newer version of Waterline has something to restore on
// it.
func TestRestored(t *testing.T) {
	root, record := t.TempDir(), filepath.Join(t.TempDir(), UndoFile)
	pod := filepath.Join(root, "kubepods/burstable/podweb")
	if err := os.MkdirAll(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"files":[{"dir":"kubepods/burstable/podweb","knob":"cpu.future","inode":"7"}]}`)
	if err := checkpoint.Kind("waterline-undo 1").Write(record, body); err != nil {
		t.Fatal(err)
	}
	k := kernelAt(t, root, record)
	var n model.Node
	if k.Observe(&n, Once{}); k.Restored() || n.Foreign != 1 {
		t.Errorf("it is restored, and %d files are a newer version's", n.Foreign)
	}
	if err := os.Remove(pod); err != nil {
		t.Fatal(err)
	}
	if k.Observe(&n, Once{}); !k.Restored() || n.Foreign != 0 {
		t.Errorf("the pod is gone, and %d files of it are a newer version's", n.Foreign)
	}
}

// TestNeed checks that a plan is decided anew exactly when it needs something that was not observed so far, and that
// old measurements are dropped when no plan needs them.
func TestNeed(t *testing.T) {
	k := newKernel(t)
	now := time.Now()
	files := model.Observe{Pods: []model.Detail{{UID: "job", Seconds: true}, {UID: "web", Files: true}}}
	for _, step := range []struct {
		name  string
		needs model.Observe
		anew  bool
	}{
		{"nothing", model.Observe{}, false},
		{"the files of a pod", files, true},
		{"the same", files, false},
		{"no files any more", model.Observe{}, false},
		{"the load", model.Observe{Load: true}, true},
		{"the topology", model.Observe{Load: true, Topology: true}, true},
		{"both still", model.Observe{Load: true, Topology: true}, false},
		{"neither", model.Observe{}, false},
	} {
		if got := k.Need(now, &step.needs); got != step.anew {
			t.Errorf("%s: decided anew: %v", step.name, got)
		}
		var n model.Node
		k.Observe(&n, k.ObserveOnce())
		if (n.Load != nil) != step.needs.Load || (n.Topology != nil) != step.needs.Topology {
			t.Errorf("%s: load %v, topology %v", step.name, n.Load, n.Topology)
		}
		if step.needs.Load != !k.NextLoad().IsZero() {
			t.Errorf("%s: the load is measured next at %s", step.name, k.NextLoad())
		}
	}
}

// TestSameFiles checks which differences between details matter to the watcher.
func TestSameFiles(t *testing.T) {
	a, b, c := model.Detail{UID: "a", Files: true}, model.Detail{UID: "b"}, model.Detail{UID: "c", Files: true}
	for name, test := range map[string]struct {
		before, after []model.Detail
		same          bool
	}{
		"nothing":                  {nil, nil, true},
		"a pod without files":      {nil, []model.Detail{b}, true},
		"a pod with files":         {nil, []model.Detail{a}, false},
		"another without between":  {[]model.Detail{a, c}, []model.Detail{a, b, c}, true},
		"the last one went":        {[]model.Detail{a, c}, []model.Detail{a}, false},
		"the first one went":       {[]model.Detail{a, c}, []model.Detail{b, c}, false},
		"another one in its place": {[]model.Detail{a}, []model.Detail{c}, false},
	} {
		if got := sameFiles(test.before, test.after); got != test.same {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestFigures checks that the figures which a plan wants are fetched and observed, and no others.
func TestFigures(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "seconds 0.03\n")
	}))
	t.Cleanup(server.Close)
	where, err := netip.ParseAddrPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	k := newKernel(t)
	ctx, cancel := context.WithCancel(t.Context())
	var fetching sync.WaitGroup
	fetching.Go(func() { k.services.Run(ctx) })
	t.Cleanup(func() { cancel(); fetching.Wait() })
	target := model.ServiceTarget{
		UID: "web", IP: where.Addr().String(), Max: 20_000,
		Source: model.ServiceSource{Port: int64(where.Port()), Path: "/metrics", Metric: "seconds"},
	}
	plan := model.Plan{Observe: model.Observe{Services: []model.ServiceTarget{target}}}
	k.Apply(&plan)
	var n model.Node
	if !poll.Until(time.Minute, 10*time.Millisecond, func() bool {
		k.Observe(&n, k.ObserveOnce())
		return len(n.Figures) > 0 && n.Figures[0].At > 0
	}) {
		t.Fatalf("observed are %+v", n.Figures)
	}
	if f := n.Figures[0]; f.UID != "web" || f.Value != 30_000 || f.Max != 20_000 || f.Failed != "" {
		t.Errorf("observed is %+v", f)
	}
	k.Apply(&model.Plan{})
	if k.Observe(&n, k.ObserveOnce()); len(n.Figures) != 0 {
		t.Errorf("no figure is wanted, and observed are %+v", n.Figures)
	}
}

// TestLooksEvery checks that waits are looked at as often as a plan needs it, and that looks begin at once when a plan
// needs them more often.
func TestLooksEvery(t *testing.T) {
	layout, _ := cgroup.ParseLayout("kubepods")
	l := newLooks(faillog.New(slog.New(slog.DiscardHandler)))
	waits := host.NewWaits(host.Mount{}, layout, host.DefaultProc)
	for _, c := range []struct {
		name   string
		pods   int
		wanted time.Duration
		every  time.Duration
		begins bool
	}{
		{"nothing", 0, 0, 0, false},
		{"seldom", 1, 10 * time.Second, 10 * time.Second, true},
		{"as seldom", 2, 10 * time.Second, 10 * time.Second, false},
		{"more often", 2, lookInterval, lookInterval, true},
		{"far too often", 2, time.Millisecond, lookInterval, false},
		{"seldom again", 2, time.Minute, time.Minute, false},
		{"no pod", 0, lookInterval, 0, false},
		{"a pod again", 1, lookInterval, lookInterval, true},
	} {
		l.compare(waits, &model.Observe{Waits: make([]model.WaitMark, c.pods), WaitsEvery: c.wanted})
		begins := false
		select {
		case <-l.begin:
			begins = true
		default:
		}
		if _, marks, every := l.current(); every != c.every || len(marks) != c.pods || begins != c.begins {
			t.Errorf("%s: every %s, %d pods, begins: %v", c.name, every, len(marks), begins)
		}
	}
	marks := []model.WaitMark{{PodWait: model.PodWait{UID: "web"}}}
	l.look(t.Context(), waits, marks)
	if got := l.take(nil); len(got) != 1 || got[0].UID != "web" {
		t.Errorf("after a look: %+v", got)
	}
}
