package yarn_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
	"github.com/waterline-io/waterline/test/poll"
)

const (
	grownLimit = 1450 // MiB, of the NodeManager's cgroup
	// Three maps and the master exceed the limit. Two, the master and the map that is started again do not reach the
	// guard's mark.
	grownEach  = 440
	grownQuick = grownLimit * 88 / 100 << 20
)

// grown is a cgroup with a memory limit, on the version that this machine has.
type grown struct {
	version cgroup.Version
	dir     string // of the memory controller
	guard   string // the directory as a guard sees it
}

// newGrown makes the cgroup. It is removed when the test ends, so its processes must have ended by then.
func newGrown(t *testing.T) grown {
	t.Helper()
	m, err := host.FindMount(host.DefaultRoot)
	if err != nil {
		t.Fatal(err)
	}
	g := grown{version: m.Version, dir: filepath.Join(m.Memory, fmt.Sprintf("waterline-guard-%d", time.Now().UnixNano()))}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !poll.Until(time.Minute, 100*time.Millisecond, func() bool { err = os.Remove(g.dir); return err == nil }) {
			t.Error(err)
		}
	})
	limit := strconv.Itoa(grownLimit << 20)
	if err := os.WriteFile(g.path(cgroup.FileName(g.version, model.MemoryMax)), []byte(limit), 0); err != nil {
		t.Fatal(err)
	}
	if g.guard = g.dir; g.version == cgroup.V1 {
		g.guard = t.TempDir()
		if err := os.Symlink(g.dir, filepath.Join(g.guard, "memory")); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func (g *grown) path(file string) string { return filepath.Join(g.dir, file) }

// TestGuardMemory lets three containers of a NodeManager grow until they have more memory than its cgroup may have. The
// guard ends one, the kernel kills nobody, and the job ends well.
func TestGuardMemory(t *testing.T) {
	g := newGrown(t)
	java, err := exec.LookPath("java")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cluster.ConfDir(), "../grown")
	growth := bed.Growth{Dir: dir, There: dir, Java: java, Stat: g.path("memory.stat"), Each: grownEach, Quick: grownQuick}
	grow, err := growth.Begin()
	if err != nil {
		t.Fatal(err)
	}
	// All containers are to run on the first node.
	if _, err := bed.Resize(t.Context(), rm, bed.NodeID(2), yarn.Resource{MemoryMiB: bed.MinMemory, VCores: 1},
		time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := bed.Resize(context.Background(), rm, bed.NodeID(2), offered, time.Minute); err != nil {
			t.Error(err)
		}
	})
	first := cluster.Node(1)
	err = os.WriteFile(g.path("cgroup.procs"), []byte(strconv.Itoa(first.PID())), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // it leaves the cgroup by starting anew
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := errors.Join(first.Stop(ctx), first.Start()); err != nil {
			t.Fatal(err)
		}
		running(t, 1)
	})
	_, written := startGuard(t, 1, g.guard, shed.Allowance{MemoryMiB: offered.MemoryMiB, VCores: 99})
	j, _ := job(t, cluster.Sleep(t.Context(), 3, 1, time.Second, grow, "-Dmapreduce.map.memory.mb=512",
		"-Dyarn.app.mapreduce.am.command-opts="+bed.JavaOptions+" -Xmx128m"))
	ended := func() (n int) {
		for _, r := range written.records() {
			if r.Left && len(r.Tried) > 0 {
				n++
			}
		}
		return n
	}
	held := ""
	if !poll.Until(20*time.Minute, time.Second, func() bool {
		content, err := os.ReadFile(g.path("memory.stat"))
		held = fmt.Sprintf("%s, %v", content, err)
		return ended() > 0
	}) {
		t.Fatalf("the guard ends no container: %+v; %s; %s", written.records(), held, j.Output())
	}
	if err := growth.End(); err != nil {
		t.Fatal(err)
	}
	err = j.Wait(within(t, 20*time.Minute))
	for _, r := range written.records() {
		t.Logf("%+v", r)
		if r.Signal != "" && (r.Master || r.Reason != string(model.MemoryAtHardMark)) {
			t.Errorf("a signal not for the memory: %+v", r)
		}
	}
	again := j.Counter("Failed map tasks") + j.Counter("Killed map tasks")
	kills, readErr := bed.OOMKills(g.version, func(file string) ([]byte, error) { return os.ReadFile(g.path(file)) })
	if err := errors.Join(err, readErr); err != nil || kills > 0 || ended() != 1 || again != 1 {
		t.Errorf("cgroup %v: %d OOM kills, %d containers were ended, %d maps ran again: %v", g.version, kills, ended(),
			again, err)
	}
}
