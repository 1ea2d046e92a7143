package yarn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

// drain decommissions a node gracefully, and sees that it has begun. When the test ends, the node runs again.
func drain(t *testing.T, i int) {
	t.Helper()
	t.Cleanup(func() {
		// The process ends by itself, and a NodeManager that starts earlier than this is refused.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cluster.Node(i).Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := cluster.Exclude(); err != nil {
			t.Error(err)
		}
		if err := admin.RefreshNodes(ctx); err != nil {
			t.Error(err)
		}
		if err := cluster.Node(i).Start(); err != nil {
			t.Error(err)
		}
		err := bed.Eventually(ctx, func(ctx context.Context) error {
			n, err := rm.Node(ctx, bed.NodeID(i))
			if err == nil && (n.State != yarn.NodeRunning || n.Total != offered) {
				err = fmt.Errorf("it is %+v", n)
			}
			return err
		})
		if err != nil {
			t.Errorf("bringing %s back: %v", bed.NodeID(i), err)
		}
	})
	if err := cluster.Exclude(bed.NodeHost(i)); err != nil {
		t.Fatal(err)
	}
	if err := admin.RefreshNodesGracefully(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	// Its total follows what is used, so nothing more fits.
	waitNode(t, bed.NodeID(i), "draining", func(n yarn.Node) bool {
		return n.State == yarn.NodeDecommissioning && n.Settled() && n.Containers > 0 && n.Available.MemoryMiB <= 0
	})
	nodes, err := admin.DecommissioningNodes(t.Context())
	if err != nil || !slices.Equal(nodes, []string{bed.NodeID(i)}) {
		t.Errorf("decommissioning nodes: %q, %v", nodes, err)
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
	err := bed.Eventually(soon(t), func(ctx context.Context) error {
		a, err := rm.App(ctx, app)
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

// TestDrain checks that a node that is decommissioned gracefully loses no container and fails no task.
func TestDrain(t *testing.T) {
	j, app := job(t, cluster.Sleep(t.Context(), 7, 1, 3*time.Second))
	node := busy(t, app)
	drain(t, node)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := j.Wait(ctx); err != nil {
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
	a, err := rm.App(t.Context(), app)
	if err != nil || a.FinalStatus != "SUCCEEDED" || a.Preempted+a.PreemptedMaster != 0 {
		t.Errorf("the application: %+v, %v", a, err)
	}
	waitNode(t, bed.NodeID(node), "decommissioned", func(n yarn.Node) bool { return n.State == yarn.NodeDecommissioned })
	ended(t, node)
}

// TestRMKilledDuringDrain checks that a sort ends well whose ResourceManager is killed while one of its nodes drains. A
// ResourceManager that starts again decommissions that node at once, with the output of its maps, and does not tell the
// application's master: reduces miss the output, and the master starts these maps again.
func TestRMKilledDuringDrain(t *testing.T) {
	rows, err := cluster.NewRows("rows", 70_000, 7)
	if err != nil {
		t.Fatal(err)
	}
	j, app := job(t, cluster.Sort(t.Context(), rows, 2))
	node := busy(t, app)
	drain(t, node)
	if err := cluster.RM(1).Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := cluster.RM(1).Start(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := j.Wait(ctx); err != nil {
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
