package pools

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestWatch follows a node through rounds: its rest is averaged, shared by its workers, and 0 while it sells nothing. A
// node that is gone is forgotten.
func TestWatch(t *testing.T) {
	const gib = 1 << 30
	k := &keeper{}
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	n := Node{Node: pool.Node{
		Selling: true, Offer: model.Amount{CPU: 9000, Memory: 20 * gib}, Bound: model.Amount{CPU: 1000, Memory: 4 * gib},
		Usable: model.Amount{CPU: 12000, Memory: 30 * gib},
	}}
	var r *round
	look := func(nodes map[string]Node, seconds int) {
		for range seconds {
			now = now.Add(time.Second)
			r = &round{k: k, now: now, nodes: nodes, read: kube.WorkerPool{Window: time.Minute, VCoresPerCPU: 2}}
			r.in.Settings.Floor = pool.Size{MemoryMiB: 1024, VCores: 2}
			r.watch()
		}
	}
	look(map[string]Node{"a": n}, 61)
	f := r.figures("a", 2, r.in.Settings.Floor)
	if want := (pool.Size{MemoryMiB: 1024 + 8192, VCores: 2 + 8}); f.Now != want || f.Whole != want || !f.Watched ||
		f.Spare.VCores != 2+12 || f.Margin != -1 {
		t.Errorf("two workers: %+v, want %s", f, want)
	}
	if other := r.figures("b", 1, r.in.Settings.Floor); other != (pool.Figures{
		Now: r.in.Settings.Floor, Tenth: r.in.Settings.Floor, Half: r.in.Settings.Floor, Whole: r.in.Settings.Floor,
		Lowest: r.in.Settings.Floor, Spare: r.in.Settings.Floor, Margin: other.Margin,
	}) {
		t.Errorf("a node that nobody saw: %+v", other)
	}
	n.Offer.CPU = 5000
	look(map[string]Node{"a": n}, 31)
	if f := r.figures("a", 1, r.in.Settings.Floor); f.Now.VCores != 2+8 || f.Whole.VCores != 2+12 ||
		f.Tenth.VCores != 2+8 {
		t.Errorf("the offer fell half a minute ago: %+v", f)
	}
	n.Selling = false
	look(map[string]Node{"a": n}, 4)
	if f := r.figures("a", 1, r.in.Settings.Floor); f.Now != r.in.Settings.Floor || f.Spare != r.in.Settings.Floor {
		t.Errorf("it sells nothing: %+v", f)
	}
	if look(nil, 1); len(k.watched) != 0 {
		t.Errorf("%d nodes are watched", len(k.watched))
	}
}
