package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestGlance: what was used since the glance before, and nothing where that is not known.
func TestGlance(t *testing.T) {
	const milli = uint64(time.Millisecond)
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		n := newFakeNode(t, v)
		g := NewGlancer(n.mount, n.layout, n.proc)
		g.clock = func(int32) time.Duration { return n.boot }
		t.Cleanup(g.Close)
		glance := func(after time.Duration, idle time.Duration, pods, low uint64) model.Glance {
			t.Helper()
			n.boot += after
			n.idle(idle, 2)
			n.set(n.layout.Class(model.Guaranteed), used{nanos: pods * milli})
			n.set(n.layout.Class(model.BestEffort), used{nanos: low * milli})
			seen, err := g.Glance(nil)
			if err != nil {
				t.Fatal(err)
			}
			return seen
		}
		for _, step := range []struct {
			name            string
			after, idle     time.Duration
			pods, low       uint64
			node, all, best int64 // 0, 0, 0: nothing is seen
		}{
			{"the first", 0, 0, 0, 0, 0, 0, 0},
			{"half of the machine", 100 * time.Millisecond, 100 * time.Millisecond, 80, 30, 1000, 800, 300},
			{"too soon", 20 * time.Millisecond, 120 * time.Millisecond, 100, 30, 0, 0, 0},
			{"since the one before that", 80 * time.Millisecond, 150 * time.Millisecond, 180, 30, 1500, 1000, 0},
			{"too late", time.Second, 250 * time.Millisecond, 200, 40, 0, 0, 0},
			{"after a late one", 100 * time.Millisecond, 450 * time.Millisecond, 200, 40, 0, 0, 0},
		} {
			want := model.Glance{Node: step.node, Pods: step.all, Batch: step.best}
			got := glance(step.after, step.idle, step.pods, step.low)
			if known := got.At != 0; known != (want != model.Glance{} || step.name == "after a late one") {
				t.Errorf("%v, %s: known %v", v, step.name, known)
			}
			if got.At = 0; got != want {
				t.Errorf("%v, %s: %+v, want %+v", v, step.name, got, want)
			}
		}
		if err := os.WriteFile(filepath.Join(n.proc, "stat"), []byte("nonsense\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.boot += 100 * time.Millisecond
		if seen, err := g.Glance(nil); err == nil || seen.At != 0 {
			t.Errorf("%v: nonsense is read as %+v, %v", v, seen, err)
		}
		if seen := glance(100*time.Millisecond, time.Second, 900, 100); seen.At != 0 {
			t.Errorf("%v: after an error there is nothing to compare with, but %+v", v, seen)
		}
	}
}

// TestGlanceBeside reads batch pods outside of class BestEffort, which come and go.
func TestGlanceBeside(t *testing.T) {
	const milli = uint64(time.Millisecond)
	bothVersions(t, func(t *testing.T, v cgroup.Version) {
		n := newFakeNode(t, v, "a", "b")
		g := NewGlancer(n.mount, n.layout, n.proc)
		g.clock = func(int32) time.Duration { return n.boot }
		t.Cleanup(g.Close)
		dirs := []string{n.pods["a"].Dir, n.pods["b"].Dir}
		var ms uint64
		glance := func(beside ...string) model.Glance {
			t.Helper()
			ms += 100
			n.boot += 100 * time.Millisecond
			n.idle(time.Duration(ms)*time.Millisecond, 2)
			n.set(n.layout.Class(model.Guaranteed), used{nanos: ms * milli})
			n.set(n.layout.Class(model.BestEffort), used{nanos: ms * milli / 10})
			n.pod("a", used{nanos: ms * milli / 5})
			n.pod("b", used{nanos: ms * milli / 4})
			seen, err := g.Glance(beside)
			if err != nil {
				t.Fatal(err)
			}
			return seen
		}
		for i, step := range []struct {
			beside []string
			want   int64 // 0: nothing is seen
		}{
			{nil, 0}, {nil, 100}, {dirs[:1], 0}, {dirs[:1], 300}, {dirs, 0}, {dirs, 550}, {dirs[1:], 350}, {nil, 100},
			{[]string{"kubepods/gone"}, 0}, {[]string{"kubepods/gone"}, 100},
		} {
			if got := glance(step.beside...); got.Batch != step.want || (got.At != 0) != (step.want != 0) {
				t.Errorf("step %d: %+v, want %d", i, got, step.want)
			}
		}
		glance(dirs...)
		if allocs := testing.AllocsPerRun(10, func() {
			n.boot += 100 * time.Millisecond
			_, _ = g.Glance(dirs)
		}); allocs != 0 {
			t.Errorf("%v allocations", allocs)
		}
	})
}
