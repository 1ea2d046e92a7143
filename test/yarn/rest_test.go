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

// TestLabelBeforeNode checks that a label put on a host is there when a NodeManager registers from it. So nothing of
// the default partition is placed there before.
func TestLabelBeforeNode(t *testing.T) {
	labelled(t)
	node, err := rm.Node(t.Context(), bed.NodeID(elastic))
	if err != nil || !slices.Equal(node.Labels, []string{bed.Label}) {
		t.Errorf("the node: %+v, %v", node, err)
	}
	labels, err := rm.NodeLabels(t.Context())
	if err != nil || labels[bed.NodeHost(elastic)+":0"] != bed.Label || labels[bed.NodeID(1)] != "" {
		t.Errorf("labels of nodes: %v, %v", labels, err)
	}
	var status *yarn.StatusError
	if err := rm.AddLabel(t.Context(), yarn.Label{Name: bed.Label}); !errors.As(err, &status) || status.Status != 400 {
		t.Errorf("a label with another exclusivity: %v", err)
	}
	if err := rm.SetNodeLabels(t.Context(), map[string]string{"nm9.bed": "no-such-label"}); !errors.As(err, &status) {
		t.Errorf("a label that does not exist: %v", err)
	}
}

// TestPartitionOfSubmission checks where an application goes that is submitted to a queue with a default label: to the
// default partition if it names no label, and to the label if it names it.
func TestPartitionOfSubmission(t *testing.T) {
	labelled(t)
	for _, label := range []string{"", bed.Label} {
		app, err := bed.Submit(t.Context(), rm, bed.Submission{
			Name: "sleep", Queue: bed.LabelQueue, Type: "TEST", Command: "exec sleep 300", Label: label, MaxAttempts: 1,
			Master: yarn.Resource{MemoryMiB: 256, VCores: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		id := app.ID
		kill(t, id)
		err = eventually(t, func(ctx context.Context) (err error) {
			if app, err = bed.AppByID(ctx, rm, id); err == nil && app.MasterNode == "" {
				err = fmt.Errorf("the master has no node: %+v", app)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if onLabel := app.MasterNode == bed.NodeID(elastic); onLabel != (label == bed.Label) {
			t.Errorf("with the label %q the master is on %s", label, app.MasterNode)
		}
		if label == "" {
			continue
		}
		queues, err := rm.Scheduler(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		used := yarn.Resource{}
		for _, q := range queues.Queues {
			for _, p := range q.Partitions {
				if q.Path == "root."+bed.LabelQueue && p.Label == label {
					used = p.Used
				}
			}
		}
		if want := (yarn.Resource{MemoryMiB: 256, VCores: 1}); used != want {
			t.Errorf("the queue uses %v of the partition, not %v: %+v", used, want, queues)
		}
	}
}

// TestResize checks that both the ResourceManager and the NodeManager show a node's new total.
func TestResize(t *testing.T) {
	for _, total := range []yarn.Resource{{MemoryMiB: 1024, VCores: 2}, offered} {
		resized(t, 1, total)
	}
}

// TestResizeMany checks that one call changes the totals of two nodes, and of none if the ResourceManager does not know
// a third one.
func TestResizeMany(t *testing.T) {
	first, second := bed.NodeID(1), bed.NodeID(2)
	small := map[string]yarn.Resource{first: {MemoryMiB: 1024, VCores: 1}, second: {MemoryMiB: 512, VCores: 2}}
	t.Cleanup(func() {
		all := map[string]yarn.Resource{first: offered, second: offered}
		if err := bed.ResizeNodes(context.Background(), admin, rm, all, time.Minute); err != nil {
			t.Error(err)
		}
	})
	if err := bed.ResizeNodes(t.Context(), admin, rm, small, time.Minute); err != nil {
		t.Fatal(err)
	}
	err := admin.SendResizes(t.Context(), []yarn.NodeResize{
		{ID: first, Total: offered, OverCommit: time.Minute}, {ID: "nm9.bed:1", Total: offered, OverCommit: time.Minute},
	})
	if err == nil {
		t.Error("a node that the ResourceManager does not know is no error")
	}
	if node, err := rm.Node(t.Context(), first); err != nil || node.Total != small[first] {
		t.Errorf("the first node after the error: %+v, %v", node, err)
	}
}

// resized gives a node another total, and waits until the NodeManager has heard of it.
func resized(t *testing.T, i int, total yarn.Resource) {
	t.Helper()
	if node, err := bed.Resize(t.Context(), rm, bed.NodeID(i), total, time.Minute); err != nil || node.Total != total {
		t.Fatalf("the ResourceManager shows %+v: %v", node, err)
	}
	err := eventually(t, func(ctx context.Context) error {
		info, err := nm.Info(ctx, bed.NodeURL(i))
		if err == nil && info.Total != total {
			err = fmt.Errorf("the NodeManager shows %v, not %v", info.Total, total)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestJob checks that a MapReduce job succeeds, whose reduce gets the maps' output from NodeManagers, and that the
// client reads its end.
func TestJob(t *testing.T) {
	// The bed shortens how long reduces try to fetch. These times are at least as long as Hadoop's own.
	j, app := job(t, cluster.Sleep(t.Context(), 2, 1, time.Millisecond,
		"-Dmapreduce.reduce.shuffle.connect.timeout=180000", "-Dmapreduce.reduce.shuffle.fetch.retry.timeout-ms=60000",
		"-Dmapreduce.reduce.shuffle.retry-delay.max.ms=60000"))
	if err := j.Wait(within(t, 10*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if maps, reduces := j.Counter("Launched map tasks"), j.Counter("Launched reduce tasks"); maps != 2 || reduces != 1 {
		t.Errorf("%d maps and %d reduces were started: %s", maps, reduces, j.Output())
	}
	// The client may end before the ResourceManager knows.
	err := eventually(t, func(ctx context.Context) error {
		a, err := bed.AppByID(ctx, rm, app)
		if err == nil && (a.State != bed.AppFinished || a.FinalStatus != "SUCCEEDED") {
			err = fmt.Errorf("the application is %+v", a)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestResizeDeadline checks that a node that shrinks keeps its containers before the deadline, that the ResourceManager
// kills the newest ones at the deadline and the master not, and that nothing is started in between.
func TestResizeDeadline(t *testing.T) {
	labelled(t)
	id := bed.NodeID(elastic)
	command, err := cluster.Shell(t.Context(), "sleep 300", 3, bed.Label)
	if err != nil {
		t.Fatal(err)
	}
	_, app := job(t, command)
	const all = 4 // with the master
	waitNode(t, id, "full", func(n yarn.Node) bool { return n.Containers == all })
	before, err := nm.Containers(t.Context(), bed.NodeURL(elastic))
	if err != nil {
		t.Fatal(err)
	}

	small := yarn.Resource{MemoryMiB: 600, VCores: 4} // room for the master and one more
	node, err := bed.Resize(t.Context(), rm, id, small, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := bed.Resize(context.Background(), rm, id, offered, time.Minute); err != nil {
			t.Error(err)
		}
	})
	if node.Total != small || node.Available.MemoryMiB >= 0 || node.Containers != all {
		t.Errorf("read back: %+v", node)
	}
	// The NodeManager has the new total from the answer to a heartbeat. At a deadline, the ResourceManager kills at the
	// next heartbeat.
	err = eventually(t, func(ctx context.Context) error {
		info, err := nm.Info(ctx, bed.NodeURL(elastic))
		if err == nil && info.Total != small {
			err = fmt.Errorf("the NodeManager shows %v", info.Total)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // more heartbeats
	if node, err := rm.Node(t.Context(), id); err != nil || node.Containers != all || node.Available.MemoryMiB >= 0 {
		t.Errorf("before the deadline: %+v, %v", node, err)
	}

	// A deadline counts together with another total only.
	small.MemoryMiB++
	if _, err := bed.Resize(t.Context(), rm, id, small, time.Second); err != nil {
		t.Fatal(err)
	}
	node = waitNode(t, id, "smaller", func(n yarn.Node) bool {
		return n.Settled() && n.Used.MemoryMiB <= small.MemoryMiB
	})
	oldest := slices.MinFunc(before, func(a, b yarn.Container) int { return compare(a.ID, b.ID) })
	if node.Containers != 2 {
		t.Errorf("%d containers run, not the master and one more", node.Containers)
	}
	err = eventually(t, func(ctx context.Context) error {
		after, err := nm.Containers(ctx, bed.NodeURL(elastic))
		var alive []string
		for _, c := range after {
			if c.State == "RUNNING" {
				alive = append(alive, c.ID)
			}
		}
		if err == nil && (len(alive) != 2 || !slices.Contains(alive, oldest.ID)) {
			err = fmt.Errorf("%q run; before that %+v; the master is %s", alive, before, oldest.ID)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	state, err := bed.AppByID(t.Context(), rm, app)
	if err != nil || state.State != bed.AppRunning || state.Preempted != 2 {
		t.Errorf("the application: %+v, %v", state, err)
	}
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestResizeSurvives checks what a new total outlives: the ResourceManager's death, but not a start of the NodeManager,
// which then has its own configuration's.
func TestResizeSurvives(t *testing.T) {
	labelled(t)
	small := yarn.Resource{MemoryMiB: 1024, VCores: 2}
	// The ResourceManager stores no total. It learns it from the NodeManager, which must have heard of it.
	resized(t, 1, small)
	restartRM(t)
	if node := running(t, 1); node.Total != small {
		t.Errorf("after the ResourceManager was killed: %+v", node)
	}
	if node := running(t, elastic); !slices.Equal(node.Labels, []string{bed.Label}) {
		t.Errorf("after the ResourceManager was killed, the label: %+v", node)
	}
	daemon := cluster.Node(1)
	if err := daemon.Stop(soon(t)); err != nil {
		t.Fatal(err)
	}
	waitNode(t, bed.NodeID(1), "shut down", func(n yarn.Node) bool { return n.State == yarn.NodeShutdown })
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	if node := running(t, 1); node.Total != offered {
		t.Errorf("after the NodeManager was started again: %+v", node)
	}
}

// restartRM kills the ResourceManager and starts it again, and waits until the nodes are back that ran before.
func restartRM(t *testing.T) {
	t.Helper()
	before, err := rm.Nodes(t.Context(), yarn.NodeRunning)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.RM(1).Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := rm.Nodes(t.Context()); !errors.Is(err, yarn.ErrNoActive) {
		t.Errorf("a killed ResourceManager answered: %v", err)
	}
	if err := cluster.RM(1).Start(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Ready(soon(t), len(before)); err != nil {
		t.Fatal(err)
	}
	// Nodes register while a ResourceManager becomes active, before it says that it is.
	if err := eventually(t, func(ctx context.Context) error {
		_, err := rm.Active(ctx)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("the ResourceManager is back with %d nodes after %.1f s", len(before), time.Since(start).Seconds())
}
