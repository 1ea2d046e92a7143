package slack_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/publish"
	"github.com/waterline-io/waterline/internal/model"
)

// koordinator computes the batch resources of Koordinator's policy "usage": the capacity up to the margin, minus the
// system or its reservation, minus pods that are not batch. It is written for comparison, from the description of
// that system and not from its source. Mid resources, which that formula does not know, are left out.
func koordinator(
	in *input, waterline int64, capacity, allocatable func(*model.Amount) int64,
	used func(*model.Usage) int64, request func(*model.Pod) int64, cpu bool,
) int64 {
	n := &in.node
	whole := capacity(&n.Capacity)
	system := used(&n.Load.Node)
	online := int64(0)
	for _, u := range n.Load.Pods {
		system -= used(&u.Usage)
		if !slices.ContainsFunc(n.Pods, func(p *model.Pod) bool { return p.UID == u.UID }) {
			online += used(&u.Usage) // "dangling"
		}
	}
	for _, p := range n.Pods {
		u := n.Load.Pod(p.UID)
		switch {
		case p.Class == model.ClassBE || p.Class == model.ClassLS && p.QoS == model.BestEffort:
		case u == nil && !p.Ended, cpu && p.Class == model.ClassLSE:
			online += request(p)
		case u != nil:
			online += used(&u.Usage)
		}
	}
	reserved := max(whole-allocatable(&n.Allocatable), 0)
	return max(whole-whole*(1000-waterline)/1000-max(system, reserved)-online, 0)
}

// theirs returns the batch CPU and memory of Koordinator's formula.
func theirs(in *input) model.Amount {
	milli, bytes := func(a *model.Amount) int64 { return a.CPU }, func(a *model.Amount) int64 { return a.Memory }
	usedMilli := func(u *model.Usage) int64 { return u.CPU.Milli }
	usedBytes := func(u *model.Usage) int64 { return u.Memory.WorkingSet }
	return model.Amount{
		CPU: koordinator(in, in.policy.CPU.Waterline, milli, milli, usedMilli,
			func(p *model.Pod) int64 { return p.RequestMilli }, true),
		Memory: koordinator(in, in.policy.Memory.Waterline, bytes, bytes, usedBytes,
			func(p *model.Pod) int64 { return p.MemoryRequest }, false),
	}
}

// common returns a machine on which both systems sell something. Its pods are old. Tests add the cases in which the
// systems differ.
func common(r *rand.Rand) *input {
	capacity := model.Amount{CPU: int64(8+r.IntN(120)) * 1000, Memory: int64(16+r.IntN(240)) * 1000 * 1024 * 1024}
	in := newInput(capacity, model.SellRealtime, int64(500+r.IntN(501)))
	in.node.Koordinator = true
	some := func() model.Amount {
		return model.Amount{CPU: r.Int64N(capacity.CPU / 20), Memory: r.Int64N(capacity.Memory / 20)}
	}
	reserved := some()
	in.node.Kubelet.ReservedMilli, in.node.Kubelet.ReservedMemory = reserved.CPU, reserved.Memory
	in.node.Allocatable = model.Amount{CPU: capacity.CPU - reserved.CPU, Memory: capacity.Memory - reserved.Memory}
	in.use(&in.node.Load.Node, some())
	for i := range 1 + r.IntN(8) {
		request := some()
		pod := model.Pod{
			UID: fmt.Sprintf("p%02d", i), Class: model.ClassLS, QoS: model.Burstable,
			RequestMilli: request.CPU, MemoryRequest: request.Memory, Created: epoch.Add(-time.Hour),
		}
		if r.IntN(3) == 0 {
			pod.Class, pod.QoS, pod.Koordinator, pod.Batch = model.ClassBE, model.BestEffort, true, request
			pod.RequestMilli, pod.MemoryRequest = 0, 0
		}
		in.add(pod, some())
	}
	return in
}

// TestSteadyAsKoordinator checks that in a steady state both systems sell the same, except for the step size. In
// compatibility mode the offer has Koordinator's resource names. Otherwise, a cluster that migrates would lose batch
// capacity.
func TestSteadyAsKoordinator(t *testing.T) {
	sold := 0
	for seed := range uint64(100) {
		in := common(rand.New(rand.NewPCG(seed, 20)))
		want := theirs(in)
		s := in.run(15 * time.Minute)
		published := publish.Decide(&in.node, &in.policy, s, model.Reason{})
		for _, c := range []struct {
			a      *model.Account
			want   int64
			least  int64 // step
			memory bool
		}{{&s.CPU, want.CPU, 100, false}, {&s.Memory, want.Memory, 1, true}} {
			step := max(c.a.Capacity*25/1000, c.least)
			if c.a.Room.Batch != c.want || c.a.Offer.Batch > c.want || 2*(c.want-c.a.Offer.Batch) >= 3*step {
				t.Fatalf("seed %d: room %d, offer %d, theirs is %d: %+v",
					seed, c.a.Room.Batch, c.a.Offer.Batch, c.want, c.a)
			}
			bound := c.a.Bound.Batch
			for _, p := range published.Resources {
				wrong := p.Memory == c.memory && p.Amount != max(c.a.Offer.Batch, bound)
				if !p.Koordinator || p.Tier != model.TierBatch || wrong {
					t.Fatalf("seed %d: %+v is published, the offer is %d", seed, p, c.a.Offer.Batch)
				}
				sold++
			}
		}
	}
	if sold < 200 {
		t.Errorf("only %d amounts were sold: nothing was compared", sold)
	}
}

// TestNeverAboveKoordinator checks, while load changes and pods come and go, that the offer never exceeds
// Koordinator's formula on the same measurements. Koordinator follows its formula within minutes, Waterline at once.
func TestNeverAboveKoordinator(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 21))
		in := common(r)
		in.policy.CPU.Mid, in.policy.Memory.Mid = int64(r.IntN(2)*r.IntN(300)), int64(r.IntN(2)*r.IntN(300))
		in.node.Load.Watermark = r.Int64N(in.node.Capacity.Memory / 50)
		class := map[int]model.Class{0: model.ClassSystem, 1: model.ClassLSE, 2: model.ClassLSR}[r.IntN(4)]
		if class != "" {
			cpus := model.CPUs(0, 1)
			special := model.Pod{UID: "special", Class: class, RequestMilli: 2000, Created: epoch.Add(-time.Hour)}
			in.add(special, model.Amount{CPU: 1500, Memory: gib})
			if class == model.ClassLSE {
				in.own = []model.OwnCPUs{{UID: "special", Mode: model.CPUExclusive, CPUs: cpus}}
			}
		}
		for i := range 400 {
			disturb(r, in, i)
			want := theirs(in)
			s, _, _ := in.decide()
			for _, c := range []struct {
				a    *model.Account
				want int64
			}{{&s.CPU, want.CPU}, {&s.Memory, want.Memory}} {
				if c.a.Offer.Mid+c.a.Offer.Batch > c.want || c.a.Room.Mid+c.a.Room.Batch > c.want {
					t.Fatalf("seed %d, second %d: offer %+v in room %+v, theirs is %d: %+v", seed, i, c.a.Offer, c.a.Room, c.want,
						c.a)
				}
			}
			in.tick()
		}
	}
}

// disturb changes something on the machine, or nothing.
func disturb(r *rand.Rand, in *input, i int) {
	l := in.node.Load
	more := model.Amount{CPU: r.Int64N(in.node.Capacity.CPU / 10), Memory: r.Int64N(in.node.Capacity.Memory / 10)}
	switch r.IntN(30) {
	case 0: // the usage of a pod grows, or ends
		u := &l.Pods[r.IntN(len(l.Pods))].Usage
		if r.IntN(2) == 0 {
			more = model.Amount{CPU: -u.CPU.Milli, Memory: -u.Memory.WorkingSet}
		}
		for _, u := range []*model.Usage{u, &l.Classes[model.Guaranteed], &l.Node} {
			in.use(u, more)
		}
	case 1: // a pod is bound
		in.bind(model.Pod{
			UID: fmt.Sprintf("n%03d", i), Class: model.ClassLS,
			RequestMilli: more.CPU, MemoryRequest: more.Memory, Created: in.node.Now,
		})
	case 2: // an unlabelled pod starts
		in.add(model.Pod{
			UID: fmt.Sprintf("n%03d", i), Class: model.ClassLS, QoS: model.BestEffort, Created: in.node.Now,
		}, more)
	case 3: // a pod disappears from the API
		in.node.Pods = slices.Delete(in.node.Pods, 0, min(1, len(in.node.Pods)))
	case 4: // the system uses more
		in.use(&l.Node, more)
	case 5: // a cgroup without a known pod
		in.use(&l.Node, more)
		in.use(&l.Classes[model.Guaranteed], more)
	case 6: // a pod ends
		if len(in.node.Pods) == 0 {
			return
		}
		p := *in.node.Pods[len(in.node.Pods)-1]
		p.Ended = true
		in.node.Pods[len(in.node.Pods)-1] = &p
	}
}
