package yarn_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

// startAgain starts NodeManagers whose processes have ended, and waits until they run as before.
func startAgain(t *testing.T, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		if err := cluster.Node(i).Start(); err != nil {
			t.Error(err)
		}
	}
	for _, i := range nodes {
		err := eventually(t, func(ctx context.Context) error {
			n, err := rm.Node(ctx, bed.NodeID(i))
			if err == nil && (n.State != yarn.NodeRunning || n.Total != offered) {
				err = fmt.Errorf("it is %+v", n)
			}
			return err
		})
		if err != nil {
			t.Errorf("bringing %s back: %v", bed.NodeID(i), err)
		}
	}
}

// leave decommissions nodes, gracefully if there is a deadline. When the test ends, they run again.
func leave(t *testing.T, deadline time.Duration, nodes ...int) {
	t.Helper()
	t.Cleanup(func() {
		// The processes end by themselves, and a NodeManager that starts earlier than this is refused.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		for _, i := range nodes {
			if err := cluster.Node(i).Stop(ctx); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(cluster.Exclude(), admin.RefreshNodes(ctx)); err != nil {
			t.Error(err)
		}
		startAgain(t, nodes...)
	})
	var hosts []string
	for _, i := range nodes {
		hosts = append(hosts, bed.NodeHost(i))
	}
	refresh := admin.RefreshNodes
	if deadline > 0 {
		refresh = func(ctx context.Context) error { return admin.RefreshNodesGracefully(ctx, deadline) }
	}
	if err := errors.Join(cluster.Exclude(hosts...), refresh(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// drain decommissions a node gracefully, and sees that it has begun. When the test ends, the node runs again.
func drain(t *testing.T, i int) {
	t.Helper()
	leave(t, 10*time.Minute, i)
	// Its total follows what is used, so nothing more fits.
	waitNode(t, bed.NodeID(i), "draining", func(n yarn.Node) bool {
		return n.State == yarn.NodeDecommissioning && n.Settled() && n.Containers > 0 && n.Available.MemoryMiB <= 0
	})
	// A refresh for others does not end it: the host has no timeout in the list.
	if err := admin.RefreshNodesGracefully(t.Context(), yarn.ConfiguredTimeout); err != nil {
		t.Fatal(err)
	}
	nodes, err := rm.Nodes(t.Context(), yarn.NodeDecommissioning)
	if err != nil || len(nodes) != 1 || nodes[0].ID != bed.NodeID(i) {
		t.Errorf("decommissioning nodes: %+v, %v", nodes, err)
	}
}

// ended waits until the process of a decommissioned node has ended by itself.
func ended(t *testing.T, i int) {
	t.Helper()
	select {
	case <-cluster.Node(i).Done():
	case <-soon(t).Done():
		t.Errorf("the process of %s has not ended", bed.NodeID(i))
	}
}

// busy waits until an application's containers run on a node of the default partition that its master is not on, and
// returns the node's number. It asks the NodeManager, because the ResourceManager counts containers that it has only
// allocated, and these do not keep it from decommissioning the node.
func busy(t *testing.T, app string) int {
	t.Helper()
	other := 0
	err := eventually(t, func(ctx context.Context) error {
		a, err := bed.AppByID(ctx, rm, app)
		if err != nil {
			return err
		}
		switch a.MasterNode {
		case bed.NodeID(1):
			other = 2
		case bed.NodeID(2):
			other = 1
		default:
			return fmt.Errorf("the master is on %q: %+v", a.MasterNode, a)
		}
		containers, err := nm.Containers(ctx, bed.NodeURL(other))
		if err == nil && !slices.ContainsFunc(containers, func(c yarn.Container) bool { return c.State == "RUNNING" }) {
			err = fmt.Errorf("%s runs no container: %+v", bed.NodeID(other), containers)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// TestDrain checks that a node that is decommissioned gracefully loses no container and fails no task. The maps take as
// long as a busy machine may need to begin the drain.
func TestDrain(t *testing.T) {
	j, app := job(t, cluster.Sleep(t.Context(), 7, 1, 20*time.Second))
	node := busy(t, app)
	drain(t, node)
	if err := j.Wait(within(t, 10*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if maps := j.Counter("Launched map tasks"); maps != 7 {
		t.Errorf("%d maps were started, not 7: %s", maps, j.Output())
	}
	for _, counter := range []string{
		"Failed map tasks", "Killed map tasks", "Failed reduce tasks", "Killed reduce tasks",
	} {
		if n := j.Counter(counter); n != 0 {
			t.Errorf("%s: %d", counter, n)
		}
	}
	a, err := bed.AppByID(t.Context(), rm, app)
	if err != nil || a.FinalStatus != "SUCCEEDED" || a.Preempted+a.PreemptedMaster != 0 {
		t.Errorf("the application: %+v, %v", a, err)
	}
	waitNode(t, bed.NodeID(node), "decommissioned", func(n yarn.Node) bool { return n.State == yarn.NodeDecommissioned })
	ended(t, node)
}

// TestRMKilledDuringDrain checks that a sort ends well whose ResourceManager is killed while one of its nodes drains. A
// ResourceManager that starts again decommissions that node at once, with the output of its maps, and does not tell the
// application's master: reduces miss the output, and the master starts these maps again. Maps that ran there count as
// running until mapreduce.task.timeout, ten minutes by default.
func TestRMKilledDuringDrain(t *testing.T) {
	rows, err := cluster.NewRows("rows", 70_000, 7)
	if err != nil {
		t.Fatal(err)
	}
	j, app := job(t, cluster.Sort(t.Context(), rows, 2,
		"-Dmapreduce.task.timeout=30000", "-Dmapreduce.task.timeout.check-interval-ms=5000"))
	node := busy(t, app)
	drain(t, node)
	if err := cluster.RM(1).Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := cluster.RM(1).Start(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := j.Wait(within(t, 10*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := rows.Check(); err != nil {
		t.Error(err)
	}
	t.Logf("the sort ended %.1f s after the ResourceManager was killed; it started %d maps for 7, and killed %d",
		time.Since(start).Seconds(), j.Counter("Launched map tasks"), j.Counter("Killed map tasks"))
	ended(t, node)
	// It never registered with this ResourceManager.
	if n, err := rm.Node(t.Context(), bed.NodeID(node)); !errors.Is(err, yarn.ErrNotFound) {
		t.Errorf("the ResourceManager that has started again knows the node: %+v, %v", n, err)
	}
}

// TestMapOutput checks what becomes of the output of maps whose node leaves a sort. When the node is decommissioned
// gracefully, it stays up for its shuffle only, and no map runs again. When it is killed, the output is lost: the full
// form shows that too.
func TestMapOutput(t *testing.T) {
	const maps = 7
	ways := []string{"Drained"}
	if soak {
		ways = append(ways, "Killed")
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			rows, err := cluster.NewRows("rows-"+way, 70_000, maps)
			if err != nil {
				t.Fatal(err)
			}
			j, app := job(t, cluster.Sort(t.Context(), rows, 2))
			node := busy(t, app)
			err = eventually(t, func(context.Context) error {
				if len(mapOutput(node, app)) == 0 {
					return fmt.Errorf("%s has no output of a map", bed.NodeID(node))
				}
				return nil
			})
			if err != nil {
				t.Fatalf("%v: %s", err, j.Output())
			}
			began := time.Now()
			var only func() int
			if way == "Drained" {
				leave(t, 10*time.Minute, node)
				only = shuffleOnly(t, node, app)
			} else {
				if err := cluster.Node(node).Kill(soon(t)); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { startAgain(t, node) })
			}
			if err := j.Wait(within(t, 10*time.Minute)); err != nil {
				t.Fatal(err)
			}
			if err := rows.Check(); err != nil {
				t.Error(err)
			}
			again := j.Counter("Launched map tasks") - maps
			t.Logf("the sort ended after %.1f s; %d of %d maps ran again", time.Since(began).Seconds(), again, maps)
			if way == "Killed" {
				if again == 0 {
					t.Errorf("no map ran again: %s", j.Output())
				}
				return
			}
			alone := only()
			if again != 0 || alone == 0 {
				t.Errorf("%d maps ran again, and the node was seen %d times to be up for its shuffle only: %s", again, alone,
					j.Output())
			}
		})
	}
}

// mapOutput returns the files with the output of maps that a node has.
func mapOutput(node int, app string) []string {
	files, _ := filepath.Glob(filepath.Join(cluster.LocalDir(node), "usercache/*/appcache", app,
		"output/attempt_*_m_*/file.out"))
	return files
}

// shuffleOnly returns a function that says how often a node that drains has been seen to run no container while it has
// the output of maps. The function is called when the application has ended.
func shuffleOnly(t *testing.T, node int, app string) func() int {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		seen := 0
		for ctx.Err() == nil {
			n, err := rm.Node(ctx, bed.NodeID(node))
			if err == nil && n.State == yarn.NodeDecommissioning && n.Containers == 0 && len(mapOutput(node, app)) > 0 {
				seen++
			}
			time.Sleep(50 * time.Millisecond)
		}
		done <- seen
	}()
	return func() int { cancel(); return <-done }
}
