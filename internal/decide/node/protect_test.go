package node_test

import (
	"math/rand/v2"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// TestProtectionProperties checks on random machines what must hold for protected memory on every machine: only online
// pods have it, at most what they request; and each group above has at least what the pods below use of theirs
// (Koordinator's promises nothing by default, and where it does, counts only its own classes) and, unless somebody else
// set more, at most what they were promised.
func TestProtectionProperties(t *testing.T) {
	protected, carried, others, held, lacked := 0, 0, 0, 0, 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 70))
		w := randomMachine(r)
		w.policy.Mode, w.node.PodsKnown, w.node.Tree.ReadOnly = model.ModeEnforce, true, false
		for range 3 {
			plan, next := node.Decide(w.node, w.policy, w.state)
			w.state = next
			check(t, seed, w, &plan, &protected, &carried, &others, &held)
			if len(plan.Unsupported) > 0 {
				lacked++
			}
			w.carryOut(&plan)
			w.node.Now = w.node.Now.Add(time.Second)
			w.node.Load = randomLoad(r, &w.node)
			for i := range w.node.Owned {
				if o := &w.node.Owned[i]; o.Knob.Protects() && r.IntN(4) == 0 {
					o.Theirs = model.Number(one(r, 0, r.Int64N(w.node.Capacity.Memory), model.Unlimited))
				}
			}
		}
	}
	if protected == 0 || carried == 0 || others == 0 || held == 0 || lacked == 0 {
		t.Errorf("%d pods were protected, %d groups above carried it, %d what others had set; %d were held, %d nodes lack "+
			"something", protected, carried, others, held, lacked)
	}
}

func check(t *testing.T, seed uint64, w *world, plan *model.Plan, protected, carried, others, held *int) {
	t.Helper()
	n := &w.node
	off := !w.policy.Protect.Memory || !n.Tree.V2 || n.Tree.NoProtection != "" || n.Kubelet.MemoryQoS
	if r := plan.Reclaim; r != nil && (off || n.Tree.NoReclaim || n.Load == nil || r.Bytes <= 0) {
		t.Fatalf("seed %d: %+v is asked for", seed, r)
	}
	for _, s := range plan.Settings {
		if s.Knob != model.MemoryHigh || s.Release {
			continue
		}
		i := slices.IndexFunc(n.Pods, func(p *model.Pod) bool { return n.Tree.Pods[p.UID].Dir == s.Dir })
		if off || n.Pods[i].Class != model.ClassBE || s.Value.Number <= 0 {
			t.Fatalf("seed %d: %+v", seed, s)
		}
		was := slices.IndexFunc(n.Owned, func(o model.Owned) bool { return o.File == s.File })
		if u := n.Load.Pod(n.Pods[i].UID); u == nil {
			continue
		} else if use := u.Memory.WorkingSet + u.Memory.InactiveFile; s.Value.Number < use && (was < 0 ||
			s.Value.Number < n.Owned[was].Ours.Number) {
			t.Fatalf("seed %d: %+v is tightened below %d, which is used", seed, s, use)
		}
		*held++
	}
	settings, theirs := map[model.File]int64{}, map[model.File]int64{}
	for _, s := range plan.Settings {
		if !s.Knob.Protects() || s.Release {
			continue
		}
		if off {
			t.Fatalf("seed %d: %+v, though nothing is to be protected here", seed, s)
		}
		settings[s.File] = s.Value.Number
	}
	for _, o := range n.Owned {
		theirs[o.File] = o.Theirs.Number
	}
	used, promised := map[model.File]int64{}, map[model.File]int64{}
	for _, p := range n.Pods {
		group, exists := n.Tree.Pods[p.UID]
		low, hard := model.File{Dir: group.Dir, Knob: model.MemoryLow}, model.File{Dir: group.Dir, Knob: model.MemoryMin}
		if p.Class == model.ClassLSE || p.Class == model.ClassLSR {
			low, hard = hard, low // the one that it has, and the one that it has not
		}
		value, has := settings[low]
		_, both := settings[hard]
		should := exists && !off && !p.Ended && p.Class != model.ClassBE && p.Class != model.ClassSystem &&
			p.MemoryRequest > 0
		if exists && (has != should || both || has && value != p.MemoryRequest) {
			t.Fatalf("seed %d: pod %s of class %q requests %d and has %d (%v, %v)", seed, p.Name, p.Class, p.MemoryRequest,
				value, has, both)
		}
		if !should {
			continue
		}
		*protected++
		uses := p.MemoryRequest
		if u := n.Load.Pod(p.UID); u != nil && u.Memory.At != 0 && n.Load.Clock-u.Memory.At <= time.Minute {
			uses = min(uses, u.Memory.WorkingSet+u.Memory.InactiveFile)
		}
		for dir := path.Dir(group.Dir); dir != "."; dir = path.Dir(dir) {
			file := model.File{Dir: dir, Knob: low.Knob}
			used[file], promised[file] = used[file]+uses, promised[file]+p.MemoryRequest
		}
		delete(settings, low)
	}
	for file, sum := range promised {
		value, has := settings[file]
		delete(settings, file)
		switch {
		case !has || value != model.Unlimited && value < used[file]:
			t.Fatalf("seed %d: %v has %d (%v), and below %d is used", seed, file, value, has, used[file])
		case value != model.Unlimited && (theirs[file] > value || theirs[file] == model.Unlimited):
			t.Fatalf("seed %d: %v has %d, and somebody else set %d", seed, file, value, theirs[file])
		case value > sum || value == model.Unlimited:
			if value != theirs[file] {
				t.Fatalf("seed %d: %v has %d, and below %d was promised", seed, file, value, sum)
			}
			*others++
		}
		*carried++
	}
	if len(settings) > 0 {
		t.Fatalf("seed %d: nobody below %v was promised anything", seed, settings)
	}
}
