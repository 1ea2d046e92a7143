package slack_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

const seeds = 4000

// each runs a test on random machines.
func each(t *testing.T, stream uint64, test func(r *rand.Rand, in *input) error) {
	t.Helper()
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, stream))
		if err := test(r, random(r)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// account checks the invariants of an account, in numbers that cannot overflow.
func account(name string, a *model.Account, sell model.SellPolicy, firm bool) error {
	for _, v := range []int64{
		a.Capacity, a.Ceiling, a.Reserved, a.Watermark, int64(a.Use.Age), a.Prod[0], a.Prod[1], a.Allow,
		a.Use.System, a.Use.Daemons, a.Use.Online, a.Use.Unmeasured, a.Use.IdleExclusive, a.Use.Protected, a.Use.Batch,
		a.Use.Unsold, a.Bound.Mid, a.Bound.Batch,
		a.Room.Mid, a.Room.Batch, a.Offer.Mid, a.Offer.Batch,
	} {
		if v < 0 {
			return fmt.Errorf("%s: a number is negative: %+v", name, a)
		}
	}
	if a.Ceiling > a.Capacity {
		return fmt.Errorf("%s: the ceiling exceeds the capacity: %+v", name, a)
	}
	if a.Reason.Code == "" {
		return fmt.Errorf("%s: no reason: %+v", name, a)
	}
	if sell.Method == "" && a.Offer != (model.TierAmounts{}) {
		return fmt.Errorf("%s: sold against the policy: %+v", name, a)
	}
	step := max(a.Capacity*25/1000, 100)
	if firm {
		step = max(a.Capacity*25/1000, 1)
	}
	if a.Offer.Mid%step != 0 || a.Offer.Batch%step != 0 {
		return fmt.Errorf("%s: not a multiple of %d: %+v", name, step, a)
	}
	if !a.Use.Measured {
		if a.Allow != 0 || a.Room != (model.TierAmounts{}) {
			return fmt.Errorf("%s: nothing was measured, but something is sold: %+v", name, a)
		}
		return nil
	}
	if a.Offer.Mid > a.Room.Mid || a.Offer.Batch > a.Room.Batch {
		return fmt.Errorf("%s: the offer exceeds the room: %+v", name, a)
	}
	sum := func(vs ...int64) *big.Int {
		total := new(big.Int)
		for _, v := range vs {
			total.Add(total, big.NewInt(v))
		}
		return total
	}
	online := sum(a.Use.Online, a.Use.Unmeasured, a.Use.IdleExclusive, a.Use.Protected)
	system := sum(max(a.Use.System, a.Reserved), a.Use.Daemons)
	total := sum(a.Watermark, a.Allow)
	total.Add(total, system)
	if total.Add(total, online); a.Allow > 0 && total.Cmp(sum(a.Ceiling)) > 0 {
		return fmt.Errorf("%s: the allowance is too high: %+v", name, a)
	}
	prod := online
	if sell.Method == model.SellPredicted || sell.Method == "" {
		prod = sum(a.Prod[model.Hour])
	}
	left := sum(a.Ceiling)
	for _, v := range []*big.Int{system, sum(a.Watermark, a.Use.Unsold), prod} {
		left.Sub(left, v)
	}
	if left.Sign() < 0 {
		left.SetInt64(0)
	}
	if sell.Method == model.SellStatic && !firm {
		return nil
	}
	if sum(a.Room.Mid, a.Room.Batch).Cmp(left) > 0 || sum(a.Room.Mid, a.Room.Batch).Cmp(sum(a.Allow)) > 0 {
		return fmt.Errorf("%s: sold twice, %v are left: %+v", name, left, a)
	}
	// The promised amount is the higher of offer and bound requests. If the bound requests alone exceed what is left,
	// nothing is added.
	if bound := sum(a.Bound.Mid, a.Bound.Batch); bound.Cmp(left) > 0 {
		left = bound
	}
	if promised := sum(max(a.Offer.Mid, a.Bound.Mid), max(a.Offer.Batch, a.Bound.Batch)); promised.Cmp(left) > 0 {
		return fmt.Errorf("%s: %v are promised of %v: %+v", name, promised, left, a)
	}
	return nil
}

// check checks both accounts, and that decisions are deterministic.
func check(in *input) error {
	s, state, next := in.decide()
	again, state2, next2 := in.decide()
	if next != next2 || state != state2 {
		return fmt.Errorf("two equal decisions differ: %v and %v, %+v and %+v", next, next2, state, state2)
	}
	if !reflect.DeepEqual(s, again) { // cmp takes several times as long
		return fmt.Errorf("two equal decisions differ:\n%s", fixture.Diff(s, again))
	}
	text, err := json.Marshal(state)
	var back slack.State
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil {
		return fmt.Errorf("the state %+v: %w", state, err)
	}
	if back != state {
		return fmt.Errorf("the state %+v is decoded as %+v", state, back)
	}
	if !next.IsZero() && !next.After(in.node.Now) {
		return fmt.Errorf("the next round is due at once: %v", next)
	}
	if err := account("cpu", &s.CPU, in.policy.CPU, false); err != nil {
		return err
	}
	return account("memory", &s.Memory, in.policy.Memory, true)
}

// TestNeverOversold checks for any load that all promises together stay under the ceiling. In particular, mid and
// batch must not sell the same slack. FuzzDecide continues from these cases.
func TestNeverOversold(t *testing.T) {
	each(t, 1, func(_ *rand.Rand, in *input) error { return check(in) })
	for seed := range uint64(4 * seeds) {
		if err := check(absurd(rand.New(rand.NewPCG(seed, 2)))); err != nil {
			t.Fatalf("absurd seed %d: %v", seed, err)
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add(uint64(1), uint64(1), int64(0), int64(0), int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, a, b uint64, waterline, ratio, mid, clock, peak int64) {
		in := absurd(rand.New(rand.NewPCG(a, b)))
		in.policy.CPU.Waterline, in.policy.Memory.Ratio, in.policy.CPU.Mid = waterline, ratio, mid
		in.node.Load.Clock, in.peaks.CPU[model.Hour].Value = time.Duration(clock), peak
		if err := check(in); err != nil {
			t.Fatal(err)
		}
	})
}

// never checks that the first decision gives no more of anything than the second.
func never(less, more *model.Slack) error {
	pairs := func(name string, a, b *model.Account) error {
		if a.Allow > b.Allow || a.Room.Mid > b.Room.Mid || a.Room.Batch > b.Room.Batch ||
			a.Offer.Mid > b.Offer.Mid || a.Offer.Batch > b.Offer.Batch {
			return fmt.Errorf("%s: more is given:\n%+v\n%+v", name, a, b)
		}
		return nil
	}
	if err := pairs("cpu", &less.CPU, &more.CPU); err != nil {
		return err
	}
	return pairs("memory", &less.Memory, &more.Memory)
}

// TestNewPodNeverRaises checks that a bound pod without a measurement gives nothing to batch, by any method.
func TestNewPodNeverRaises(t *testing.T) {
	each(t, 3, func(r *rand.Rand, in *input) error {
		more := in.slack()
		in.bind(model.Pod{
			UID: "new", RequestMilli: r.Int64N(64000), MemoryRequest: r.Int64N(64 * gib), Created: in.node.Now,
		})
		return never(in.slack(), more)
	})
}

// TestAgeNeverSells checks that older measurements never give more.
func TestAgeNeverSells(t *testing.T) {
	each(t, 4, func(r *rand.Rand, in *input) error {
		more := in.slack()
		for range 4 {
			for _, u := range in.usages() {
				if r.IntN(3) == 0 {
					u.CPU.At -= time.Duration(r.IntN(20_000)) * time.Millisecond
				}
				if r.IntN(3) == 0 {
					u.Memory.At -= time.Duration(r.IntN(20_000)) * time.Millisecond
				}
			}
			less := in.slack()
			if err := never(less, more); err != nil {
				return err
			}
			more = less
		}
		return nil
	})
}

// TestEditedNodeNeverRaises checks that an edited Node object changes neither the size of the machine nor its
// reservation. In Koordinator, an amplified allocatable hid the reservation. Steps of offers depend on the capacity,
// so the test compares rooms.
func TestEditedNodeNeverRaises(t *testing.T) {
	each(t, 5, func(r *rand.Rand, in *input) error {
		for i, p := range in.node.Pods { // requests of one tier would leave no room for the other
			pod := *p
			pod.Mid, pod.Batch = model.Amount{}, model.Amount{}
			in.node.Pods[i] = &pod
		}
		truth := in.slack()
		edit := func(v *int64) {
			switch r.IntN(4) {
			case 0:
				*v *= int64(1 + r.IntN(5))
			case 1:
				*v = r.Int64N(*v + 1)
			case 2:
				*v += r.Int64N(*v/4 + 1)
			}
		}
		edit(&in.node.Capacity.CPU)
		edit(&in.node.Capacity.Memory)
		edit(&in.node.Allocatable.CPU)
		edit(&in.node.Allocatable.Memory)
		edited := in.slack()
		for _, pair := range [][2]*model.Account{{&edited.CPU, &truth.CPU}, {&edited.Memory, &truth.Memory}} {
			if a, b := pair[0], pair[1]; a.Allow > b.Allow || a.Room.Mid+a.Room.Batch > b.Room.Mid+b.Room.Batch {
				return fmt.Errorf("more is given:\n%+v\n%+v", a, b)
			}
		}
		return nil
	})
}

// TestBatchUsesWhatItUses checks that the usage of batch pods that bought what they use changes neither the allowance
// nor the offer.
func TestBatchUsesWhatItUses(t *testing.T) {
	each(t, 6, func(r *rand.Rand, in *input) error {
		bought := model.Amount{CPU: 1000, Memory: gib}
		in.add(model.Pod{UID: "zz", Class: model.ClassBE, Batch: bought, Ended: r.IntN(2) == 0}, model.Amount{})
		before := in.slack()
		l := in.node.Load
		burned := model.Amount{CPU: r.Int64N(200_000), Memory: r.Int64N(200 * gib)}
		for _, u := range []*model.Usage{&l.Node, &l.Classes[model.Guaranteed], &l.Pods[len(l.Pods)-1].Usage} {
			in.use(u, burned)
		}
		after := in.slack()
		after.CPU.Use.Batch, after.Memory.Use.Batch = before.CPU.Use.Batch, before.Memory.Use.Batch
		if d := cmp.Diff(before, after); d != "" {
			return fmt.Errorf("batch usage changed the account:\n%s", d)
		}
		return nil
	})
}

// TestUnsold checks what batch pods take from the offer that did not buy it: their requests of CPU and memory, and the
// memory that they use. The allowance is theirs too, so it stays.
func TestUnsold(t *testing.T) {
	for _, tc := range []struct {
		name                string
		pod                 model.Pod
		wantCPU, wantMemory int64
	}{
		{"it requests CPU and memory itself", model.Pod{RequestMilli: 2000, MemoryRequest: 4 * gib}, 2000, 4 * gib},
		{"it uses more memory", model.Pod{RequestMilli: 2000, MemoryRequest: gib}, 2000, 3 * gib},
		{"it requests nothing", model.Pod{}, 0, 3 * gib},
		{"it bought both", model.Pod{Batch: model.Amount{CPU: 1000, Memory: gib}}, 0, 0},
		{
			"a sidecar beside what it bought", model.Pod{
				RequestMilli: 100, MemoryRequest: gib, Mid: model.Amount{CPU: 1000, Memory: gib},
			}, 100, gib,
		},
		{"it has ended", model.Pod{RequestMilli: 2000, MemoryRequest: 4 * gib, Ended: true}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := newInput(model.Amount{CPU: 16_000, Memory: 64 * gib}, model.SellRealtime, 1000)
			tc.pod.UID, tc.pod.Class = "zz", model.ClassBE
			bare := in.slack()
			in.add(tc.pod, model.Amount{CPU: 5000, Memory: 3 * gib})
			with := in.slack()
			cpu, memory := &with.CPU, &with.Memory
			if cpu.Use.Unsold != tc.wantCPU || memory.Use.Unsold != tc.wantMemory {
				t.Errorf("unsold %d and %d, want %d and %d", cpu.Use.Unsold, memory.Use.Unsold, tc.wantCPU, tc.wantMemory)
			}
			sold := bare.CPU.Room.Batch - cpu.Room.Batch
			bytes := bare.Memory.Room.Batch - memory.Room.Batch
			bought := max(tc.pod.Mid.CPU, 0)
			if sold != tc.wantCPU+bought || bytes != tc.wantMemory+tc.pod.Mid.Memory {
				t.Errorf("the room falls by %d and %d, want %d and %d", sold, bytes, tc.wantCPU+bought,
					tc.wantMemory+tc.pod.Mid.Memory)
			}
			if cpu.Allow != bare.CPU.Allow || memory.Allow != bare.Memory.Allow {
				t.Errorf("batch may use %d and %d, could use %d and %d", cpu.Allow, memory.Allow, bare.CPU.Allow,
					bare.Memory.Allow)
			}
		})
	}
}

// TestDaemonsBesideTheReservation checks that daemons in pods do not hide in what is reserved for the system.
func TestDaemonsBesideTheReservation(t *testing.T) {
	in := newInput(model.Amount{CPU: 16_000, Memory: 64 * gib}, model.SellRealtime, 1000)
	in.node.Kubelet.ReservedMilli, in.node.Kubelet.ReservedMemory = 2000, 8*gib
	bare := in.slack()
	in.add(model.Pod{UID: "zz", Class: model.ClassSystem}, model.Amount{CPU: 1500, Memory: gib})
	with := in.slack()
	if cpu, memory := bare.CPU.Allow-with.CPU.Allow, bare.Memory.Allow-with.Memory.Allow; cpu != 1500 || memory != gib {
		t.Errorf("a daemon that uses 1500 milli-cores and a GiB takes %d and %d", cpu, memory)
	}
}

// TestProtectedCache checks that page cache which the kernel keeps for online pods is not sold, up to their request.
func TestProtectedCache(t *testing.T) {
	for _, tc := range []struct{ request, working, inactive, want int64 }{
		{8 * gib, 3 * gib, 2 * gib, 2 * gib},
		{4 * gib, 3 * gib, 2 * gib, gib},
		{2 * gib, 3 * gib, 2 * gib, 0},
	} {
		in := newInput(model.Amount{CPU: 16_000, Memory: 64 * gib}, model.SellRealtime, 1000)
		in.add(model.Pod{UID: "web", Class: model.ClassLS, MemoryRequest: tc.request, Created: epoch.Add(-time.Hour)},
			model.Amount{Memory: tc.working})
		in.node.Load.Pods[0].Memory.InactiveFile = tc.inactive
		account := func(protects func(*model.Pod) bool) model.Account {
			cpu, memory := slack.Tally(&in.node, nil, protects)
			s, _, _ := slack.Decide(&in.node, &in.policy, cpu, memory, in.peaks, in.state)
			return s.Memory
		}
		without := account(func(*model.Pod) bool { return false })
		with := account(func(*model.Pod) bool { return true })
		if got := without.Allow - with.Allow; got != tc.want || without.Room.Batch-with.Room.Batch != tc.want {
			t.Errorf("%+v: batch may use %d less, and may buy %d less", tc, got, without.Room.Batch-with.Room.Batch)
		}
	}
}

// TestUnknownCgroupIsOnline checks that a pod that disappears from the API counts as online with its usage.
func TestUnknownCgroupIsOnline(t *testing.T) {
	each(t, 7, func(r *rand.Rand, in *input) error {
		uses := model.Amount{CPU: r.Int64N(20_000), Memory: r.Int64N(20 * gib)}
		in.add(model.Pod{UID: "zz", Class: model.ClassBE, Batch: model.Amount{CPU: 1000, Memory: gib}}, uses)
		cpu, memory := slack.Tally(&in.node, in.own, nil)
		in.node.Pods = in.node.Pods[:len(in.node.Pods)-1]
		cpu2, memory2 := slack.Tally(&in.node, in.own, nil)
		cpu.Online, cpu.Batch = cpu.Online+uses.CPU, cpu.Batch-uses.CPU
		memory.Online, memory.Batch = memory.Online+uses.Memory, memory.Batch-uses.Memory
		if cpu != cpu2 || memory != memory2 {
			return fmt.Errorf("%+v %+v, want %+v %+v", cpu2, memory2, cpu, memory)
		}
		return nil
	})
}

// TestBytesAreBytes checks that all memory times 1024 gives all memory amounts times 1024, and the same CPU amounts.
// A mix-up of bytes and MiB would fail.
func TestBytesAreBytes(t *testing.T) {
	const k = 1024
	each(t, 8, func(_ *rand.Rand, in *input) error {
		before, state, _ := in.decide()
		big := in.copy()
		n := &big.node
		for _, v := range []*int64{
			&n.Capacity.Memory, &n.Allocatable.Memory, &n.Kubelet.ReservedMemory, &n.Load.Memory, &n.Load.Watermark,
			&big.peaks.Memory[0].Value, &big.peaks.Memory[1].Value,
			&big.state.Memory.Mid.Offer, &big.state.Memory.Batch.Offer,
			&big.state.Memory.Mid.Lowest, &big.state.Memory.Batch.Lowest,
		} {
			*v *= k
		}
		for _, u := range big.usages() {
			u.Memory.WorkingSet *= k
		}
		for i, p := range n.Pods {
			pod := *p
			pod.MemoryRequest *= k
			pod.Mid.Memory *= k
			pod.Batch.Memory *= k
			n.Pods[i] = &pod
		}
		after, state2, _ := big.decide()
		if d := cmp.Diff(before.CPU, after.CPU); d != "" || state.CPU != state2.CPU {
			return fmt.Errorf("CPU amounts changed with memory:\n%s", d)
		}
		a, b := &before.Memory, &after.Memory
		scale := func(v int64) int64 { return v * k }
		exact := [][2]int64{
			{a.Capacity, b.Capacity}, {a.Ceiling, b.Ceiling}, {a.Reserved, b.Reserved}, {a.Watermark, b.Watermark},
			{a.Prod[0], b.Prod[0]}, {a.Prod[1], b.Prod[1]},
			{a.Use.System, b.Use.System}, {a.Use.Online, b.Use.Online}, {a.Use.Unmeasured, b.Use.Unmeasured},
			{a.Use.Batch, b.Use.Batch}, {a.Bound.Mid, b.Bound.Mid}, {a.Bound.Batch, b.Bound.Batch}, {a.Allow, b.Allow},
			{a.Offer.Mid, b.Offer.Mid}, {a.Offer.Batch, b.Offer.Batch},
		}
		for i, pair := range exact {
			if scale(pair[0]) != pair[1] {
				return fmt.Errorf("amount %d: %d became %d:\n%+v\n%+v", i, pair[0], pair[1], a, b)
			}
		}
		// Fractions of fractions are rounded down to bytes.
		for _, pair := range [][2]int64{{a.Room.Mid, b.Room.Mid}, {a.Room.Batch, b.Room.Batch}} {
			if d := pair[1] - scale(pair[0]); d < -k || d > k {
				return fmt.Errorf("a room of %d became %d", pair[0], pair[1])
			}
		}
		return nil
	})
}
