package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	acthost "github.com/waterline-io/waterline/internal/act/host"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// TestWatchedForIdentity checks that online pods are watched for the identities that the policy wants them to have only where
// the kernel has identities, as soon as that is known.
func TestWatchedForIdentity(t *testing.T) {
	layout, _ := cgroup.ParseLayout("kubepods")
	for _, has := range []bool{true, false} {
		root := t.TempDir()
		for _, dir := range []string{layout.Pod(model.Burstable, "web"), layout.Class(model.BestEffort)} {
			if err := os.MkdirAll(filepath.Join(root, dir, "0123456789aa"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		names := []string{"cpu.max", "cpu.bvt_warp_ns"}
		if !has {
			names = names[:1]
		}
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(root, layout.Root, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		a := onTree(t, root, layout)
		a.pods.Pods = []*model.Pod{{UID: "web", QoS: model.Burstable, Class: model.ClassLS}}
		a.ruling.effect.Policy.Weight.Identity = true
		a.refollow()
		a.scan()
		has = has && a.tree.Model().NoIdentity == "" // unless the tests' own kernel has them switched off
		if a.follows("web") != has || len(a.tree.Model().Pods) != 1 {
			t.Errorf("identities: %v (%q), watched: %v of %+v", has, a.tree.Model().NoIdentity, a.follows("web"), a.tree.Model().Pods)
		}
		a.tree.Close()
	}
}

// onTree returns an agent of a node whose cgroups are a folder, and that looked at nothing yet.
func onTree(t *testing.T, root string, layout cgroup.Layout) *Agent {
	t.Helper()
	undo, err := acthost.OpenUndo(filepath.Join(t.TempDir(), "undo"))
	if err != nil {
		t.Fatal(err)
	}
	a := New(Config{Log: slog.New(slog.DiscardHandler)})
	if a.host, err = acthost.New(cgroup.V2, func(model.Knob) string { return root }, undo); err != nil {
		t.Fatal(err)
	}
	a.tree = host.NewTree(host.Mount{Version: cgroup.V2, Path: root}, layout, nil)
	a.ruling.effect.Policy = model.DefaultPolicy()
	return a
}
