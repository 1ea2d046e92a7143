package cgroup_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// bandwidth is what cgroup v1 holds of one group.
type bandwidth struct{ quota, period, burst int64 }

// ratio is the kernel's fixed-point number (to_ratio in kernel/sched/core.c).
func (b bandwidth) ratio() int64 { return b.quota << 20 / b.period }

// v1 is cgroup v1's rules for a pod and two containers, the first of which is the pod.
type v1 [3]bandwidth

// takes reports whether the kernel accepts these values: bursts fit into quotas, and a child's quota into the pod's.
func (k *v1) takes() bool {
	for i, b := range k {
		if b.quota == model.Unlimited {
			continue
		}
		if b.burst > b.quota || i > 0 && k[0].quota != model.Unlimited && b.ratio() > k[0].ratio() {
			return false
		}
	}
	return true
}

// TestQuotaWrites checks that the kernel takes each single write when the quotas, periods and bursts of a pod and its
// containers change together, and that all values are as wanted then.
func TestQuotaWrites(t *testing.T) {
	dirs := [...]string{"kubepods/burstable/podx", "kubepods/burstable/podx/a", "kubepods/burstable/podx/b"}
	r := rand.New(rand.NewPCG(1, 4))
	valid := func() v1 {
		for {
			var k v1
			for i := range k {
				k[i].period = []int64{100_000, 10_000, 5000}[r.IntN(3)]
				k[i].quota = k[i].period * (1 + r.Int64N(4)) / 2
				k[i].burst = 1000 * r.Int64N(4)
				if r.IntN(4) == 0 {
					k[i].quota = model.Unlimited
				}
			}
			if k.takes() {
				return k
			}
		}
	}
	for range 5000 {
		now, then := valid(), valid()
		before := now
		var steps []cgroup.Step
		for i, dir := range dirs {
			quota := cgroup.Step{
				File: model.File{Dir: dir, Knob: model.Quota},
				From: cgroup.Raw{Number: now[i].quota, Period: now[i].period},
				To:   cgroup.Raw{Number: then[i].quota, Period: then[i].period},
			}
			burst := cgroup.Step{
				File: model.File{Dir: dir, Knob: model.Burst},
				From: cgroup.Raw{Number: now[i].burst}, To: cgroup.Raw{Number: then[i].burst},
			}
			for _, s := range []cgroup.Step{quota, burst} {
				if s.From != s.To {
					steps = append(steps, s)
				}
			}
		}
		cgroup.Steps(steps)
		for _, s := range steps {
			i := 0
			for dirs[i] != s.Dir {
				i++
			}
			if s.Knob == model.Burst {
				if now[i].burst = s.To.Number; !now.takes() {
					t.Fatalf("%v to %v: the kernel refuses the burst of %+v: %v", before, then, s, now)
				}
				continue
			}
			for _, w := range cgroup.QuotaWrites(s.From, s.To) {
				if w.Period {
					now[i].period = w.Micros
				} else {
					now[i].quota = w.Micros
				}
				if !now.takes() {
					t.Fatalf("%v to %v: the kernel refuses %+v of %+v: %v", before, then, w, s, now)
				}
			}
		}
		if now != then {
			t.Fatalf("%v to %v: %v", before, then, now)
		}
	}
}

// TestQuotaText checks how quotas are written: to the kernel, and in the undo record.
func TestQuotaText(t *testing.T) {
	for _, c := range []struct {
		raw                   cgroup.Raw
		v1, v2, encoded, seen string
	}{
		{cgroup.Raw{Number: 5000, Period: 10_000}, "5000", "5000 10000", `"5000 10000"`, "5000 10000"},
		{cgroup.Raw{Number: 50_000, Period: 100_000}, "50000", "50000 100000", `"50000 100000"`, "50000"},
		{cgroup.Raw{Number: model.Unlimited, Period: 10_000}, "-1", "max 10000", `"-1 10000"`, "-1 10000"},
		{cgroup.Raw{Number: model.Unlimited}, "-1", "max", `-1`, "-1"},
		{cgroup.Raw{Number: 50_000}, "50000", "50000", `50000`, "50000"},
	} {
		encoded, err := json.Marshal(c.raw)
		var decoded cgroup.Raw
		if err == nil {
			err = json.Unmarshal(encoded, &decoded)
		}
		if err != nil || decoded != c.raw || string(encoded) != c.encoded || model.Value(c.raw).String() != c.seen {
			t.Errorf("%+v: %s, read again %+v, shown %q, %v", c.raw, encoded, decoded, model.Value(c.raw), err)
		}
		v1 := string(cgroup.Append(nil, cgroup.V1, model.Quota, c.raw))
		if v2 := string(cgroup.Append(nil, cgroup.V2, model.Quota, c.raw)); v1 != c.v1 || v2 != c.v2 {
			t.Errorf("%+v is written %q and %q", c.raw, v1, v2)
		}
	}
	for _, bad := range []string{`"5000 0"`, `"5000 -1"`, `"max 5000"`, `" 5000"`, `"5000 10000 1"`} {
		var v model.Value
		if err := json.Unmarshal([]byte(bad), &v); err == nil {
			t.Errorf("%s is read as %+v", bad, v)
		}
	}
}
