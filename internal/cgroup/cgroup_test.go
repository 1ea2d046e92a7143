package cgroup_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestConversions are the kubelet's and the runtimes' own numbers: k8s.io/kubernetes 1.36, runc 1.3.2.
func TestConversions(t *testing.T) {
	for _, c := range []struct{ milli, shares, linear, quadratic int64 }{
		{0, 2, 1, 1}, {1, 2, 1, 1}, {10, 10, 1, 4}, {100, 102, 4, 17}, {250, 256, 10, 35}, {500, 512, 20, 59},
		{1000, 1024, 39, 100},
		{2000, 2048, 79, 174}, {8000, 8192, 313, 532}, {32000, 32768, 1250, 1681}, {64000, 65536, 2500, 3023},
		{256000, 262144, 10000, 10000},
		{512000, 262144, 10000, 10000},
	} {
		shares := model.MilliCPUToShares(c.milli)
		if shares != c.shares || cgroup.SharesToWeight(shares) != c.linear || cgroup.ContainerWeight(shares) != c.quadratic {
			t.Errorf("%d mCPU: shares %d, weight %d, container weight %d; want %+v", c.milli, shares,
				cgroup.SharesToWeight(shares), cgroup.ContainerWeight(shares), c)
		}
	}
	for weight := int64(1); weight <= 10000; weight++ {
		shares := cgroup.WeightToShares(weight)
		if cgroup.SharesToWeight(shares) != weight {
			t.Fatalf("weight %d becomes %d shares, which become %d", weight, shares, cgroup.SharesToWeight(shares))
		}
		if shares > model.MinShares && cgroup.SharesToWeight(shares-1) == weight {
			t.Fatalf("weight %d: %d shares are not the fewest", weight, shares)
		}
	}
	for _, c := range []struct{ milli, period, quota int64 }{
		{0, 100_000, 0}, {1, 100_000, 1000}, {9, 100_000, 1000}, {10, 100_000, 1000}, {11, 100_000, 1100},
		{1500, 100_000, 150_000}, {100, 5_000, 1000}, {1500, 50_000, 75_000},
	} {
		if got := model.MilliCPUToQuota(c.milli, c.period); got != c.quota {
			t.Errorf("%d mCPU in %d us: quota %d, want %d", c.milli, c.period, got, c.quota)
		}
	}
}

func TestLayout(t *testing.T) {
	const uid, escaped = "6016fc45-0a1b-4c2d-8e3f-123456789abc", "6016fc45_0a1b_4c2d_8e3f_123456789abc"
	for _, c := range []struct {
		name, root string
		class      model.QoSClass
		dir        string
	}{
		{"cgroupfs", "kubepods", model.Burstable, "kubepods/burstable/pod" + uid},
		{"cgroupfs, Guaranteed", "kubepods", model.Guaranteed, "kubepods/pod" + uid},
		{"cgroupfs below a root", "x/y/kubepods", model.BestEffort, "x/y/kubepods/besteffort/pod" + uid},
		{
			"systemd", "kubepods.slice", model.Burstable,
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + escaped + ".slice",
		},
		{"systemd, Guaranteed", "kubepods.slice", model.Guaranteed, "kubepods.slice/kubepods-pod" + escaped + ".slice"},
		{"kind", "kubelet.slice/kubelet-kubepods.slice", model.BestEffort,
			"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod" + escaped +
				".slice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, ok := cgroup.ParseLayout(c.root)
			if !ok {
				t.Fatal("not recognised")
			}
			dir := l.Pod(c.class, uid)
			if dir != c.dir {
				t.Errorf("the pod is at %s, want %s", dir, c.dir)
			}
			if got, ok := l.ParsePod(dir[strings.LastIndexByte(dir, '/')+1:]); !ok || got != uid {
				t.Errorf("its name is read as pod %q", got)
			}
			for _, q := range []model.QoSClass{model.Burstable, model.BestEffort} {
				class := l.Class(q)
				if got, ok := l.ParsePod(class[strings.LastIndexByte(class, '/')+1:]); ok {
					t.Errorf("the %s class is taken for pod %q", q, got)
				}
			}
		})
	}
	for _, name := range []string{"", "system.slice", "kubepodsx", "kubelet"} {
		if l, ok := cgroup.ParseLayout(name); ok {
			t.Errorf("%q is taken for kubepods: %+v", name, l)
		}
	}
}

func TestContainerID(t *testing.T) {
	const id = "1c4c0416f2a89d2f6b5a0e7c3d9b8a7f1c4c0416f2a89d2f6b5a0e7c3d9b8a7f"
	for name, want := range map[string]string{
		id:                                   id, // containerd and Docker, cgroupfs
		"crio-" + id:                         id,
		"cri-containerd-" + id + ".scope":    id,
		"crio-" + id + ".scope":              id,
		"docker-" + id + ".scope":            id,
		"crio-conmon-" + id + ".scope":       "", // CRI-O's monitor
		"kata_" + id:                         "",
		"kata_overhead":                      "",
		"container":                          "", // crun's sub-cgroup, should it ever be asked about
		"kubepods-burstable-podx_y.slice":    "",
		"../../" + id:                        "",
		"cri-containerd-nothexadecimalatall": "",
	} {
		if got, ok := cgroup.ContainerID(name); got != want && ok || ok != (want != "") {
			t.Errorf("%s: id %q, %v; want %q", name, got, ok, want)
		}
	}
}

func TestValidUID(t *testing.T) {
	for uid, want := range map[string]bool{
		"6016fc45-0a1b-4c2d-8e3f-123456789abc": true, "5e2f1c8a9b7d5e2f1c8a9b7d5e2f1c8a": true, "": false, "..": false,
		"a/b": false, "-a": false,
		"a_b": false, "a\x00": false, "a.slice": false, strings.Repeat("a", 64): false,
	} {
		if cgroup.ValidUID(uid) != want {
			t.Errorf("%q: %v", uid, !want)
		}
	}
}

// TestSteps checks the order of writes against a model of cgroup v1's rule: a child's quota fits into its parent's at
// every moment. Memory limits, for which the kernel has no such rule, are written in the same order.
func TestSteps(t *testing.T) {
	const parent, a, b = "kubepods/burstable/podx", "kubepods/burstable/podx/a", "kubepods/burstable/podx/b"
	r := rand.New(rand.NewPCG(1, 1))
	quota := func() int64 {
		if r.IntN(3) == 0 {
			return model.Unlimited
		}
		return 1000 * (1 + r.Int64N(50))
	}
	fits := func(now map[string]int64) bool {
		if now[parent] == model.Unlimited {
			return true
		}
		for _, child := range []string{a, b} {
			if now[child] == model.Unlimited || now[child] <= now[parent] {
				continue
			}
			return false
		}
		return true
	}
	valid := func() map[string]int64 {
		for {
			if now := map[string]int64{parent: quota(), a: quota(), b: quota()}; fits(now) {
				return now
			}
		}
	}
	for i := range 5000 {
		knob := []model.Knob{model.Quota, model.MemoryMax, model.MemoryHigh, model.MemoryLow}[i%4]
		now, then := valid(), valid()
		var steps []cgroup.Step
		for dir, from := range now {
			if then[dir] != from {
				steps = append(steps, cgroup.Step{
					File: model.File{Dir: dir, Knob: knob}, From: cgroup.Raw{Number: from}, To: cgroup.Raw{Number: then[dir]},
				})
			}
		}
		shuffled := slices.Clone(steps)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		cgroup.Steps(steps)
		cgroup.Steps(shuffled)
		if !slices.Equal(steps, shuffled) {
			t.Fatalf("the order depends on the input's: %v, %v", steps, shuffled)
		}
		for _, s := range steps {
			now[s.Dir] = s.To.Number
			if !fits(now) {
				t.Fatalf("after writing %d to %s in %v a child does not fit: %v", s.To.Number, s.Dir, steps, now)
			}
		}
	}
}

// TestStepsOfBursts checks the order of writes against the kernel's rule that what a group may save up fits into its
// quota at every moment (Koordinator #2778: nothing could be scaled down while it burst), together with v1's for
// quotas.
func TestStepsOfBursts(t *testing.T) {
	const parent, child = "kubepods/burstable/podx", "kubepods/burstable/podx/a"
	r := rand.New(rand.NewPCG(1, 3))
	type setting map[model.File]int64
	file := func(dir string, k model.Knob) model.File { return model.File{Dir: dir, Knob: k} }
	taken := func(s setting) bool {
		for _, dir := range []string{parent, child} {
			if quota := s[file(dir, model.Quota)]; quota != model.Unlimited && s[file(dir, model.Burst)] > quota {
				return false
			}
		}
		above, below := s[file(parent, model.Quota)], s[file(child, model.Quota)]
		return above == model.Unlimited || below == model.Unlimited || below <= above
	}
	valid := func() setting {
		for {
			s := setting{}
			for _, dir := range []string{parent, child} {
				s[file(dir, model.Quota)], s[file(dir, model.Burst)] = 1000*(1+r.Int64N(5)), 1000*r.Int64N(6)
				if r.IntN(3) == 0 {
					s[file(dir, model.Quota)] = model.Unlimited
				}
			}
			if taken(s) {
				return s
			}
		}
	}
	for range 5000 {
		now, then := valid(), valid()
		var steps []cgroup.Step
		for f, from := range now {
			if then[f] != from {
				steps = append(steps, cgroup.Step{File: f, From: cgroup.Raw{Number: from}, To: cgroup.Raw{Number: then[f]}})
			}
		}
		cgroup.Steps(steps)
		for _, s := range steps {
			now[s.File] = s.To.Number
			if !taken(now) {
				t.Fatalf("the kernel refuses %+v of %+v: %v", s, steps, now)
			}
		}
	}
}

// TestStepsOfCPUs checks that nobody enters a CPU before those have left it that only leave CPUs in the same plan, and
// that where a parent and its children are narrowed or widened together, each child's list is within its parent's at
// every moment, as cgroup v1 wants it.
func TestStepsOfCPUs(t *testing.T) {
	const parent, a, b = "kubepods/podx", "kubepods/podx/a", "kubepods/podx/b"
	r := rand.New(rand.NewPCG(1, 2))
	some := func(of model.CPUSet) model.CPUSet {
		for {
			set := of
			for id := range of.All() {
				if r.IntN(2) == 0 {
					set.Remove(id)
				}
			}
			if !set.Empty() {
				return set
			}
		}
	}
	all := model.CPUs(0, 1, 2, 3)
	for i := range 6000 {
		wide := map[string]model.CPUSet{parent: some(all)}
		wide[a], wide[b] = some(wide[parent]), some(wide[parent])
		narrow := map[string]model.CPUSet{a: some(wide[a]), b: some(wide[b])}
		narrow[parent] = narrow[a].Or(narrow[b])
		now, then, hierarchical := wide, narrow, i%3 < 2
		switch i % 3 {
		case 1:
			now, then = narrow, wide
		case 2: // containers that move, in a parent that stays
			now = map[string]model.CPUSet{a: some(all), b: some(all)}
			then = map[string]model.CPUSet{a: some(all), b: some(all)}
		}
		var steps []cgroup.Step
		for dir, from := range now {
			if then[dir] != from {
				steps = append(steps, cgroup.Step{
					File: model.File{Dir: dir, Knob: model.Cpuset}, From: cgroup.Raw(model.List(from)),
					To: cgroup.Raw(model.List(then[dir])),
				})
			}
		}
		cgroup.Steps(steps)
		for i, s := range steps {
			if !then[s.Dir].Within(now[s.Dir]) {
				for _, later := range steps[i+1:] {
					if then[later.Dir].Within(now[later.Dir]) {
						t.Fatalf("%s enters CPUs before %s is narrowed: %+v", s.Dir, later.Dir, steps)
					}
				}
			}
			now[s.Dir] = then[s.Dir]
			if hierarchical && (!now[a].Within(now[parent]) || !now[b].Within(now[parent])) {
				t.Fatalf("after %+v of %+v a child is not within its parent: %v", s, steps, now)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		v    cgroup.Version
		k    model.Knob
		text string
		want model.Value
		bad  bool
	}{
		{cgroup.V1, model.Shares, "1024\n", model.Number(1024), false},
		{cgroup.V2, model.Shares, "100\n", model.Number(100), false},
		{cgroup.V2, model.Shares, "0\n", model.Number(cgroup.IdleWeight), false},
		{cgroup.V1, model.Quota, "-1\n", model.Number(model.Unlimited), false},
		{cgroup.V1, model.Quota, "50000\n", model.Number(50000), false},
		{cgroup.V1, model.Quota, "-1\n10000\n", model.Value{Number: model.Unlimited, Period: 10_000}, false},
		{cgroup.V1, model.Quota, "50000\n100000\n", model.Value{Number: 50_000, Period: 100_000}, false},
		{cgroup.V1, model.Quota, "50000\n\n", model.Value{}, true},
		{cgroup.V1, model.Quota, "50000\n0\n", model.Value{}, true},
		{cgroup.V2, model.Quota, "max 100000\n", model.Value{Number: model.Unlimited, Period: 100_000}, false},
		{cgroup.V2, model.Quota, "5000 10000\n", model.Value{Number: 5000, Period: 10_000}, false},
		// vendor kernels print the burst
		{cgroup.V2, model.Quota, "max 100000 0\n", model.Value{Number: model.Unlimited, Period: 100_000}, false},
		{cgroup.V2, model.Quota, "50000 100000 20000\n", model.Value{Number: 50_000, Period: 100_000}, false},
		{cgroup.V1, model.Cpuset, "0-3,8\n", model.List(model.CPUs(0, 1, 2, 3, 8)), false},
		{cgroup.V2, model.Cpuset, "0-0,2,1\n", model.Value{List: "0-2"}, false},
		{cgroup.V2, model.Cpuset, "\n", model.Value{List: model.Inherited}, false},
		{cgroup.V2, model.Cpuset, "2-1\n", model.Value{}, true},
		{cgroup.V2, model.Cpuset, "max\n", model.Value{}, true},
		{cgroup.V1, model.Shares, "", model.Value{}, true},
		{cgroup.V1, model.Shares, "-1\n", model.Value{}, true},
		{cgroup.V1, model.Shares, "12 34\n", model.Value{}, true},
		{cgroup.V1, model.Quota, "-2\n", model.Value{}, true},
		{cgroup.V2, model.Quota, "max\n", model.Value{}, true},
		{cgroup.V2, model.Quota, "-1 100000\n", model.Value{}, true},
		{cgroup.V2, model.Quota, "50000 \n", model.Value{}, true},
		{cgroup.V1, model.Shares, "99999999999999999999\n", model.Value{}, true},
		{cgroup.V1, model.Burst, "0\n", model.Number(0), false},
		{cgroup.V2, model.Burst, "50000\n", model.Number(50000), false},
		{cgroup.V2, model.Burst, "max\n", model.Value{}, true},
		{cgroup.V2, model.Burst, "-1\n", model.Value{}, true},
		{cgroup.V1, model.MemoryMax, "9223372036854771712\n", model.Number(model.Unlimited), false}, // pages of 4 KiB
		{cgroup.V1, model.MemoryMax, "9223372036854710272\n", model.Number(model.Unlimited), false}, // of 64 KiB
		{cgroup.V1, model.MemoryMax, "1073741824\n", model.Number(1 << 30), false},
		{cgroup.V2, model.MemoryMax, "max\n", model.Number(model.Unlimited), false},
		{cgroup.V2, model.MemoryMax, "0\n", model.Number(0), false},
		{cgroup.V1, model.MemoryMax, "max\n", model.Value{}, true},
		{cgroup.V2, model.MemoryMax, "-1\n", model.Value{}, true},
		{cgroup.V2, model.MemoryMax, "\n", model.Value{}, true},
		{cgroup.V2, model.MemoryMin, "0\n", model.Number(0), false},
		{cgroup.V2, model.MemoryLow, "1073741824\n", model.Number(1 << 30), false},
		{cgroup.V2, model.MemoryLow, "max\n", model.Number(model.Unlimited), false},
		{cgroup.V2, model.MemoryHigh, "max\n", model.Number(model.Unlimited), false},
		{cgroup.V2, model.MemoryHigh, "-1\n", model.Value{}, true},
	} {
		raw, err := cgroup.Parse(c.v, c.k, []byte(c.text), cgroup.Raw{})
		if c.bad != errors.Is(err, cgroup.ErrMalformed) || c.bad != (err != nil) || raw != cgroup.Raw(c.want) {
			t.Errorf("%s %s %q: %+v, %v", c.v, c.k, c.text, raw, err)
		}
	}
}

// TestKnobsOfMemory checks in which files they stand, and what is written there. Cgroup v1 has only a limit.
func TestKnobsOfMemory(t *testing.T) {
	for k, names := range map[model.Knob][2]string{
		model.MemoryMax: {"memory.limit_in_bytes", "memory.max"}, model.MemoryMin: {"", "memory.min"},
		model.MemoryLow: {"", "memory.low"}, model.MemoryHigh: {"", "memory.high"},
	} {
		for i, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
			if got := cgroup.FileName(v, k); got != names[i] || !k.OfMemory() {
				t.Errorf("%s %s stands in %q, want %q", v, k, got, names[i])
			}
			if got, ok := cgroup.KnobOf(v, names[i]); ok != (names[i] != "") || ok && got != k {
				t.Errorf("%s %q is %s, %v", v, names[i], got, ok)
			}
		}
		if got := string(cgroup.Append(nil, cgroup.V2, k, cgroup.Raw{Number: model.Unlimited})); got != "max" {
			t.Errorf("all that there is, is written %q to %s", got, k)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"1024\n", "max 100000\n", "-1\n", "", "50000 100000\n", "0x10\n", "1e3\n", "9223372036854771712\n", "max\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
			for _, k := range model.Knobs() {
				raw, err := cgroup.Parse(v, k, content, cgroup.Raw{})
				if err != nil {
					if !errors.Is(err, cgroup.ErrMalformed) {
						t.Errorf("%v", err)
					}
					continue
				}
				text := cgroup.Append(nil, v, k, raw)
				switch {
				case v == cgroup.V1 && k == model.Quota && raw.Period > 0:
					text = fmt.Appendf(text, "\n%d", raw.Period)
				case v == cgroup.V1 && k.OfMemory() && raw.Number == model.Unlimited:
					text = []byte("9223372036854771712") // what -1 reads
				}
				if again, err := cgroup.Parse(v, k, text, cgroup.Raw{}); err != nil || again != raw {
					t.Errorf("%q reads %+v, is written %q, which reads %+v, %v", content, raw, text, again, err)
				}
			}
		}
	})
}

func FuzzNames(f *testing.F) {
	for _, seed := range []string{
		"kubepods-burstable-pod6016fc45_0a1b.slice", "podx", "pod../..", "cri-containerd-0123456789ab.scope",
		"kubelet.slice/kubelet-kubepods.slice",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if id, ok := cgroup.ContainerID(name); ok && !cgroup.ValidContainerID(id) {
			t.Errorf("%q gives container id %q", name, id)
		}
		if l, ok := cgroup.ParseLayout(name); ok && strings.HasPrefix(l.Root, "/") {
			t.Errorf("%q gives root %q", name, l.Root)
		}
		for _, l := range []cgroup.Layout{
			{Driver: cgroup.Cgroupfs, Root: "kubepods"}, {Driver: cgroup.Systemd, Root: "kubepods.slice"},
		} {
			uid, ok := l.ParsePod(name)
			if ok && (!cgroup.ValidUID(uid) || strings.Contains(l.Pod(model.Burstable, uid), "..")) {
				t.Errorf("%q gives UID %q", name, uid)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	content, list := []byte("50000 100000\n"), []byte("0-7,16-23\n")
	last, err := cgroup.Parse(cgroup.V2, model.Cpuset, list, cgroup.Raw{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cgroup.Parse(cgroup.V2, model.Quota, content, cgroup.Raw{}); err != nil {
			b.Fatal(err)
		}
		if _, err := cgroup.Parse(cgroup.V2, model.Cpuset, list, last); err != nil {
			b.Fatal(err)
		}
	}
}
