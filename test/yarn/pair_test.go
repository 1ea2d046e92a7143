package yarn_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

// TestPairFailover checks that both clients find the ResourceManager that is active, also after the other was killed,
// and that totals and labels outlive that.
func TestPairFailover(t *testing.T) {
	if !*pair {
		t.Skip("there is one ResourceManager; -pair starts two")
	}
	first, err := rm.Active(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	active := 1
	if first.Address == bed.RMURL(2) {
		active = 2
	}
	if err := rm.AddLabel(t.Context(), yarn.Label{Name: bed.Label, Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	small := yarn.Resource{MemoryMiB: 1024, VCores: 2}
	id := bed.NodeID(1)
	if err := bed.ResizeNodes(t.Context(), admin, rm, map[string]yarn.Resource{id: small}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := rm.SetNodeLabels(t.Context(), map[string]string{bed.NodeHost(2): bed.Label}); err != nil {
		t.Fatal(err)
	}
	err = eventually(t, func(ctx context.Context) error {
		info, err := nm.Info(ctx, bed.NodeURL(1))
		if err == nil && info.Total != small {
			err = fmt.Errorf("the NodeManager knows %v", info.Total)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := cluster.RM(active).Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var second yarn.Info
	err = eventually(t, func(ctx context.Context) (err error) {
		second, err = rm.Active(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if second.Address == first.Address {
		t.Errorf("%s was killed and is active", first.Address)
	}
	t.Logf("%s is active %.1f s after %s was killed", second.Address, time.Since(start).Seconds(), first.Address)
	if n := running(t, 1); n.Total != small {
		t.Errorf("the node after failover: %+v", n)
	}
	if err := admin.RefreshNodes(soon(t)); err != nil {
		t.Errorf("the administration protocol after failover: %v", err)
	}
	if _, err := bed.Resize(t.Context(), rm, id, offered, time.Minute); err != nil {
		t.Errorf("resizing after failover: %v", err)
	}
	labels, err := rm.NodeLabels(t.Context())
	if err != nil || labels[bed.NodeHost(2)+":0"] != bed.Label {
		t.Errorf("labels after failover: %v, %v", labels, err)
	}

	if err := cluster.RM(active).Start(); err != nil {
		t.Fatal(err)
	}
	err = eventually(t, func(ctx context.Context) error {
		infos, err := rm.Infos(ctx)
		if err == nil && (len(infos) != 2 || infos[active-1].HAState != "STANDBY") {
			err = fmt.Errorf("%+v", infos)
		}
		return err
	})
	if err != nil {
		t.Errorf("the one that was killed does not come back on standby: %v", err)
	}
	// The first in the list is not the active one if that was killed.
	for _, clientOf := range []int{active, 3 - active} {
		one, err := yarn.NewRM([]string{bed.RMURL(clientOf), bed.RMURL(3 - clientOf)},
			yarn.HTTPOptions{Auth: yarn.Auth{User: "root"}})
		if err != nil {
			t.Fatal(err)
		}
		if nodes, err := one.Nodes(t.Context(), yarn.NodeRunning); err != nil || len(nodes) != 2 {
			t.Errorf("asking %s first: %+v, %v", bed.RMURL(clientOf), nodes, err)
		}
	}
}
