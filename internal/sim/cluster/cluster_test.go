package cluster

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/node"
	"github.com/waterline-io/waterline/internal/sim/trace"
)

// small returns a small cluster on generated use.
func small(nodes int) Options {
	o := Defaults()
	o.Nodes, o.Pods, o.Lifetime, o.Median = nodes, 6, 12*time.Hour, 5*time.Minute
	for seed := range uint64(20) {
		g := trace.GenerateGrid("generated", trace.Online(4), seed)
		g.Limit = float64(1 + seed%4)
		o.Use = append(o.Use, g)
	}
	return o
}

func run(t *testing.T, o Options) Result {
	t.Helper()
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSame checks that the same options give the same figures, however many nodes decide at the same time, and that
// another seed gives others.
func TestSame(t *testing.T) {
	o := small(5)
	one := run(t, o)
	o.Parallel = 3
	if three := run(t, o); !reflect.DeepEqual(one, three) {
		t.Errorf("three at a time:\n%+v\none:\n%+v", three, one)
	}
	o.Seed = 2
	if other := run(t, o); reflect.DeepEqual(one, other) {
		t.Error("another seed gives the same figures")
	}
}

// TestPolicies checks what policies change: one that only observes runs no batch, and a higher waterline runs more.
func TestPolicies(t *testing.T) {
	o := small(6)
	o.Policy.Policy.Mode = model.ModeObserve
	none := run(t, o)
	if none.BatchPercent != 0 || none.NodeWrites != 0 || none.Waiting == 0 {
		t.Errorf("a policy that observes ran batch: %+v", none)
	}
	if math.Abs(none.OnlinePercent-100*o.Online) > 1.5 {
		t.Errorf("online pods use %.1f %%, not %.0f %%", none.OnlinePercent, 100*o.Online)
	}
	last := 0.0
	for _, waterline := range []int64{550, 700, 850} {
		o := small(6)
		o.Policy.Policy.CPU.Waterline = waterline
		r := run(t, o)
		switch {
		case r.BatchPercent <= last:
			t.Errorf("with a waterline of %d, batch used %.1f %%, and %.1f %% with less", waterline, r.BatchPercent, last)
		case r.Goodput > 1.05*r.BatchHours+10 || // some of it was done before the day
			r.BatchPercent > r.OfferedPercent:
			t.Errorf("%.1f core-hours ended of %.1f, %.1f %% of CPU used of %.1f offered", r.Goodput, r.BatchHours,
				r.BatchPercent, r.OfferedPercent)
		case r.NodeWrites == 0 || r.ReportWrites == 0 || r.Ended == 0:
			t.Errorf("nothing was written, or no pod ended: %+v", r)
		}
		last = r.BatchPercent
	}
}

// TestWindow checks that a policy with a window runs batch in it alone.
func TestWindow(t *testing.T) {
	o := small(4)
	o.Policy.Windows = []model.Window{{Name: "night", Start: 0, End: 6 * 60}}
	r := run(t, o)
	night, evening := 0.0, 0.0
	for i, v := range r.Hours.Offered {
		switch {
		case i < 5*4:
			night += v
		case i >= 12*4:
			evening += v
		}
	}
	if night == 0 || evening > night/10 {
		t.Errorf("%.1f offered from 0 to 5, %.1f from 12 to 24", night, evening)
	}
}

// TestBalance checks what the scheduler is for: of pods that request the same and use different amounts, Waterline's
// makes nodes more equal than the stock one does, and meets more weights.
func TestBalance(t *testing.T) {
	both := func(weighted float64) (stock, ours Result) {
		o := small(24)
		o.Use = nil
		random := rand.New(rand.NewPCG(1, 1))
		for range 60 { // a third of the pods use ten times as much as the others
			values := make([]float32, 288)
			use := float32(0.05)
			if random.IntN(3) == 0 {
				use = 0.5
			}
			for k := range values {
				values[k] = use
			}
			o.Use = append(o.Use, trace.Grid{
				Name: "x", Limit: 1, Step: trace.Step, Days: [][]float32{values, values, values, values},
			})
		}
		o.Pods, o.Weighted, o.Requested, o.Load, o.Lifetime = 10, weighted, 0.6, 0, 3*day
		o.Scheduler = Stock
		stock = run(t, o)
		o.Scheduler = Waterline
		return stock, run(t, o)
	}
	stock, ours := both(0)
	if ours.OnlineSpread > 0.85*stock.OnlineSpread || ours.Highest >= stock.Highest {
		t.Errorf("standard deviation %.2f %% and highest %.1f %%, by requests %.2f %% and %.1f %%", ours.OnlineSpread,
			ours.Highest, stock.OnlineSpread, stock.Highest)
	}
	stock, ours = both(0.7)
	if ours.WeightsMet <= stock.WeightsMet {
		t.Errorf("%.1f %% of weights met, by requests %.1f %%", ours.WeightsMet, stock.WeightsMet)
	}
}

// TestInvariants checks in the course of a day that what the scheduler believes is what nodes have, that no node has
// more than it can, and that each pod is on one node.
func TestInvariants(t *testing.T) {
	o := small(5)
	o.Policy.Policy.CPU.Waterline = 950
	o.Policy.Policy.CPU.Method, o.Policy.Policy.Memory.Method = model.SellRealtime, model.SellRealtime
	o.MemoryBase, o.MemoryRise, o.Requested = 0.3, 1, 0.8
	s := newSimulation(&o)
	for s.now < day {
		s.step()
		if s.now%(7*tick) != 0 {
			continue
		}
		online := 0
		for i, n := range s.nodes {
			var sold, requested model.Amount
			var sums place.Sums
			batch := 0
			for k, p := range n.pods {
				if k > 0 && n.pods[k-1].UID >= p.UID {
					t.Fatalf("%v: pods %s and %s", s.now, n.pods[k-1].UID, p.UID)
				}
				requested = requested.Plus(p.place.Requests)
				if p.online == nil {
					batch++
					sold = sold.Plus(p.Batch)
					continue
				}
				online++
				sums = sums.Add(&p.place.Weight)
				if s.on[p.UID] != i {
					t.Fatalf("%v: %s is on node %d, not %d", s.now, p.UID, i, s.on[p.UID])
				}
			}
			for range n.ended { // the scheduler learns of them at the next tick
				sold, requested = sold.Plus(o.Batch), requested.Plus(unset)
			}
			v := &s.schedule.nodes[i]
			switch {
			case batch != n.batch || len(n.View.Tree.Pods) != n.batch:
				t.Fatalf("%v: node %d has %d batch pods, not %d", s.now, i, batch, n.batch)
			case sold != v.Sold || requested != v.Requested || sums != v.sums:
				t.Fatalf("%v: node %d: sold %v and requested %v, but the scheduler has %v and %v", s.now, i, sold, requested,
					v.Sold, v.Requested)
			case n.online+n.used > n.Capacity.CPU || n.used < 0:
				t.Fatalf("%v: node %d uses %d and %d", s.now, i, n.online, n.used)
			case n.since > s.now || n.next < s.now:
				t.Fatalf("%v: node %d decided at %v, and does at %v", s.now, i, n.since, n.next)
			}
		}
		if online != len(s.on) {
			t.Fatalf("%v: %d online pods, %d known", s.now, online, len(s.on))
		}
	}
	r := s.result()
	seconds := int64(0)
	for i := range s.count.parts {
		seconds += s.count.parts[i].seconds
	}
	if seconds != int64(o.Nodes)*86400 {
		t.Errorf("%d seconds of %d nodes were counted", seconds, o.Nodes)
	}
	if r.Evicted == 0 || r.Lost == 0 {
		t.Errorf("no pod was evicted although memory for batch runs out: %+v", r)
	}
}

// TestPool checks that workers run on what online pods leave, are resized with it, and drain when their window ends;
// and that batch pods and workers share the offer.
func TestPool(t *testing.T) {
	o := small(6)
	o.Load, o.Lifetime = 0, 0
	o.Policy.Policy.CPU.Method, o.Policy.Policy.Memory.Method = model.SellRealtime, model.SellRealtime
	p := DefaultPool()
	p.Settings.Settings = pool.Settings{
		Label: "elastic", Floor: pool.Size{MemoryMiB: 4096, VCores: 2}, Ceiling: pool.Size{MemoryMiB: 1 << 17, VCores: 32},
		Step: pool.Size{MemoryMiB: 4096, VCores: 2}, Pause: 30 * time.Second, Window: 10 * time.Minute, Core: 1,
		Grace: time.Minute, Drain: 30 * time.Minute, Register: 3 * time.Minute, Recover: 10 * time.Minute,
		CoolDown: time.Minute, Attempts: 2,
	}
	p.Overhead = model.Amount{CPU: 100, Memory: 1 << 30}
	o.Pool = &p
	alone := run(t, o)
	w := alone.Pool
	if w == nil || w.Hours < 100 || math.Abs(w.Hours-alone.BatchHours) > 0.01 || w.Resizes < 10 ||
		alone.Served > 100.001 || math.Abs(w.Goodput+w.Lost-w.Hours) > 0.05*w.Hours { // some was done before the day
		t.Fatalf("%+v; batch used %.2f core-hours, and got %.3f %%", w, alone.BatchHours, alone.Served)
	}
	o.Parallel = 3
	if again := run(t, o); !reflect.DeepEqual(alone, again) {
		t.Errorf("three at a time: %+v, and %+v", again.Pool, w)
	}
	o.Load = 0.3
	both := run(t, o)
	if both.Pool.Hours >= w.Hours || both.BatchHours <= both.Pool.Hours || both.Ended == 0 {
		t.Errorf("beside batch pods, workers used %.0f of %.0f core-hours, and alone %.0f", both.Pool.Hours,
			both.BatchHours, w.Hours)
	}
	o.Load = 0
	p.Schedule = func(now time.Time, i, n int) (bool, time.Time) {
		end := node.Dawn().Add(6 * time.Hour)
		return pool.Schedule(now, pool.Opening{
			Open: now.Before(end), Start: node.Dawn(), Drain: end.Add(-time.Hour), End: end,
		}, pool.Ramp{Waves: 1}, i, n)
	}
	night := run(t, o)
	for i, v := range night.Hours.Batch {
		if at := time.Duration(i) * Part; at >= time.Hour && at < 5*time.Hour && v < 10 || at > 6*time.Hour && v > 0 {
			t.Errorf("at %s, workers with a window from 0:00 to 6:00 use %.1f %%", at, v)
		}
	}
	if night.Pool.Hours == 0 || night.Pool.Starts != o.Nodes {
		t.Errorf("%+v", night.Pool)
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"use":       {func(o *Options) { o.Use = nil }, "no use"},
		"nodes":     {func(o *Options) { o.Nodes = 0 }, "0 nodes"},
		"scheduler": {func(o *Options) { o.Scheduler = "best" }, `scheduler "best"`},
		"online":    {func(o *Options) { o.Online = math.NaN() }, "NaN"},
		"load":      {func(o *Options) { o.Load = math.NaN() }, "NaN"},
		"day":       {func(o *Options) { o.Use = []trace.Grid{{Name: "short"}} }, "short has no whole day"},
	} {
		o := small(1)
		c.change(&o)
		if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, small(1)); err == nil {
		t.Error("a run that was cancelled has a result")
	}
}

// TestWanted checks the number of scored nodes against that of kube-scheduler 1.36.
func TestWanted(t *testing.T) {
	for nodes, want := range map[int]int{1: 1, 99: 99, 100: 100, 150: 100, 1000: 420, 5000: 500, 6000: 300} {
		if got := wanted(nodes); got != want {
			t.Errorf("%d of %d nodes are scored, not %d", got, nodes, want)
		}
	}
}
