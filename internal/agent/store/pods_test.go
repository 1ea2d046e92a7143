package store

import (
	"os"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// TestPods checks that what the API showed comes back, is written only if it changed and not too often, and is not used
// if it is damaged or of another boot.
func TestPods(t *testing.T) {
	dir := t.TempDir()
	p := NewPods(dir)
	if _, found, err := p.Load(); found || err != nil {
		t.Fatalf("nothing was saved: %v, %v", found, err)
	}
	zone, err := model.LoadTimeZone("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	batch := fixture.BatchPod("a", model.Amount{CPU: 2000, Memory: 1 << 30})
	batch.Created, batch.Labels = fixture.Epoch(), map[string]string{"app": "x"}
	batch.Containers = []model.Container{{Name: "c", ID: "0a", Grant: model.Grant{RequestMilli: 2000}}}
	want := model.Snapshot{
		Pods: []*model.Pod{batch}, Known: true,
		NodeInfo: model.NodeInfo{UID: "7f", Labels: map[string]string{"pool": "web"}, Capacity: model.Amount{CPU: 4000}},
		Policies: []model.ClusterPolicy{{
			Name: "p", Rollout: 50, Windows: []model.Window{{Name: "night", End: 540, Zone: zone}}, Policy: fixture.Policy(),
		}},
	}
	now := fixture.Epoch()
	save := func(s *model.Snapshot, at time.Duration) {
		t.Helper()
		if err := p.Save(s, now.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	save(&want, 0)
	if _, found, _ := p.Load(); found {
		t.Fatal("saved although nothing changed")
	}
	p.Changed()
	save(&model.Snapshot{}, 0)
	save(&want, time.Second)
	got, found, err := p.Load()
	if !found || err != nil || fixture.Diff(want.Pods, got.Pods) != "" ||
		fixture.Diff(want.NodeInfo, got.NodeInfo) != "" || got.Policies[0].Windows[0].Zone.String() != "Asia/Shanghai" ||
		fixture.Diff(want.Policies[0].Policy, got.Policies[0].Policy) != "" {
		t.Fatalf("%v, %v: %+v", found, err, got)
	}
	more := want
	more.Pods = append(more.Pods, fixture.Pod("b", model.Burstable))
	p.Changed()
	save(&more, 2*time.Second)
	if got, _, _ := p.Load(); len(got.Pods) != 1 {
		t.Errorf("saved again after a second")
	}
	save(&more, 20*time.Second)
	if got, _, _ := p.Load(); len(got.Pods) != 2 {
		t.Errorf("%d pods were saved, want 2", len(got.Pods))
	}
	if err := os.WriteFile(p.path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, found, err := p.Load(); found || err == nil {
		t.Errorf("a damaged file: %v, %v", found, err)
	}
	if err := podsKind.Write(p.path, []byte(`{"Boot": "another", "Snapshot": {"Known": true}}`)); err != nil {
		t.Fatal(err)
	}
	if _, found, err := p.Load(); found || err != nil {
		t.Errorf("of another boot: %v, %v", found, err)
	}
}
