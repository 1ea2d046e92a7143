package yarn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

// TestFairScheduler shows what of a pool holds with the FairScheduler: nodes that shrink end what does not fit at their
// deadline. Labels do not hold: a master that asks for none lands on a node with an exclusive label.
func TestFairScheduler(t *testing.T) {
	if !*fair {
		t.Skip("the cluster has the CapacityScheduler; -fair starts one with the FairScheduler")
	}
	var other *yarn.OtherSchedulerError
	if _, err := rm.Scheduler(t.Context()); !errors.As(err, &other) || other.Kind != "fairScheduler" {
		t.Errorf("the queues: %v", err)
	}
	if _, err := rm.Pending(t.Context(), bed.Label); err == nil {
		t.Error("it says what waits for a label")
	}
	labelled(t)
	on := ""
	for range 12 {
		app, err := bed.Submit(t.Context(), rm, bed.Submission{
			Name: "sleep", Queue: "root." + bed.DefaultQueue, Type: "TEST", Command: "exec sleep 600", MaxAttempts: 1,
			Master: yarn.Resource{MemoryMiB: 512, VCores: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		kill(t, app.ID)
		if err := eventually(t, func(ctx context.Context) (err error) {
			if app, err = bed.AppByID(ctx, rm, app.ID); err == nil && app.MasterNode == "" {
				err = fmt.Errorf("no node: %+v", app)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if app.MasterNode == bed.NodeID(elastic) {
			on = app.ID
			break
		}
	}
	if on == "" {
		t.Fatal("no master without a label is on the node with an exclusive one")
	}
	small := yarn.Resource{MemoryMiB: 256, VCores: 4}
	node, err := bed.Resize(t.Context(), rm, bed.NodeID(elastic), small, time.Second)
	if err != nil || node.Total != small {
		t.Fatalf("the ResourceManager shows %+v: %v", node, err)
	}
	waitNode(t, bed.NodeID(elastic), "empty", func(n yarn.Node) bool { return n.Settled() && n.Containers == 0 })
	app, err := bed.AppByID(t.Context(), rm, on)
	if err != nil || app.PreemptedMaster != 1 {
		t.Errorf("the application: %+v, %v", app, err)
	}
}
