package yarn_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

// TestPending checks that what waits for a label is shown while no node has it, and is gone when one has come and
// runs it.
func TestPending(t *testing.T) {
	labelled(t)
	daemon := cluster.Node(elastic)
	if err := daemon.Stop(soon(t)); err != nil {
		t.Fatal(err)
	}
	waitNode(t, bed.NodeID(elastic), "shut down", func(n yarn.Node) bool { return n.State == yarn.NodeShutdown })
	app, err := bed.Submit(t.Context(), rm, bed.Submission{
		Name: "sleep", Queue: bed.LabelQueue, Type: "TEST", Command: "exec sleep 300", Label: bed.Label, MaxAttempts: 1,
		Master: yarn.Resource{MemoryMiB: 256, VCores: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	kill(t, app.ID)
	waits := func(want yarn.Resource) {
		t.Helper()
		if err := eventually(t, func(ctx context.Context) error {
			got, err := rm.Pending(ctx, bed.Label)
			if err == nil && got != want {
				err = fmt.Errorf("%v waits, not %v", got, want)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	waits(yarn.Resource{MemoryMiB: 256, VCores: 1})
	if other, err := rm.Pending(t.Context(), ""); err != nil || other != (yarn.Resource{}) {
		t.Errorf("%v waits for the default partition: %v", other, err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	running(t, elastic)
	waits(yarn.Resource{})
}
