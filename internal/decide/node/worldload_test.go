package node_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// unknownPeak is the peak of a node without samples.
var unknownPeak = model.Peak{Value: math.MaxInt64}

// load is what the world measures in each round.
type load struct {
	node, pods model.Amount
	age        time.Duration
	off        bool                      // there is no measurement at all
	none       bool                      // nothing was measured yet
	real       model.Amount              // capacity
	watermark  int64                     // in bytes
	used       map[string]podLoad        // by UID
	best       model.Amount              // of class BestEffort
	set        time.Duration             // how far the wall clock was set
	stolen     int64                     // in milli-cores
	brief      bool                      // accounts are not printed
	inside     []model.InsideUsage       // of containers
	figures    map[string]figure         // of services, by UID
	seen       map[string]model.Pressure // last, by UID
	sampled    time.Duration             // when waits were sampled last
}

// figure is what a service says of itself, in millionths.
type figure struct {
	value  int64
	age    time.Duration
	failed string
}

// podLoad is what one pod is measured to use.
type podLoad struct {
	model.Amount
	age         time.Duration
	waits       int64 // for a CPU, in thousandths of the time
	delays      int64 // of its tasks, in thousandths of the time that they ran; -1: they are not sampled
	throttled   int64 // periods
	cold, cache int64 // page cache, in bytes
	thrashes    int64 // waits for memory, likewise
	stalls      int64 // all its tasks at once
}

// ensure makes the world one that measures.
func (w *world) ensure() *load {
	if w.load == nil {
		w.load = &load{
			used: map[string]podLoad{}, figures: map[string]figure{}, seen: map[string]model.Pressure{}, off: true,
		}
	}
	return w.load
}

func (w *world) doLoad(command string, args []string) error {
	l := w.ensure()
	switch command {
	case "own": // UID of a group of the node's own services
		used := l.used[args[0]]
		for _, arg := range args[1:] {
			if key, value, _ := strings.Cut(arg, "="); key == "used" {
				used.CPU = milli(value)
			} else {
				used.delays = number(value)
			}
		}
		l.used[args[0]] = used
	case "load":
		l.off, l.none, l.age, l.stolen = false, false, 0, 0
		for _, arg := range args {
			key, value, _ := strings.Cut(arg, "=")
			switch key {
			case "node":
				l.node = amounts(value)
			case "pods":
				l.pods = amounts(value)
			case "best":
				l.best = amounts(value)
			case "stolen":
				l.stolen = milli(value)
			case "age":
				l.age = duration(value)
			case "none":
				l.none = true
			case "off":
				l.off = true
			default:
				return fmt.Errorf("load has no %q", key)
			}
		}
	case "peak":
		for _, arg := range args {
			key, value, _ := strings.Cut(arg, "=")
			h := model.Hour
			if key == "learning" {
				for _, p := range []*model.Peak{&w.peaks.CPU[h], &w.peaks.Memory[h]} {
					p.Known, p.Learning = false, true
				}
				continue
			}
			if key == "day" {
				h = model.Day
			}
			w.peaks.CPU[h], w.peaks.Memory[h] = unknownPeak, unknownPeak
			if value != "unknown" {
				a := amounts(value)
				w.peaks.CPU[h], w.peaks.Memory[h] = model.Peak{Value: a.CPU, Known: true}, model.Peak{Value: a.Memory, Known: true}
			}
		}
	case "run": // DURATION [STEP]
		step := time.Second
		if len(args) > 1 {
			step = duration(args[1])
		}
		for end := w.node.Now.Add(duration(args[0])); w.node.Now.Before(end); {
			w.node.Now = w.node.Now.Add(step)
			w.decide()
		}
	case "reclaiming":
		w.node.Reclaiming = args[0] == "yes"
	case "reclaimed": // UID ASKED FREED [ERROR]
		w.node.Reclaimed = &model.Reclaimed{UID: args[0], Requested: bytes(args[1]), Freed: bytes(args[2]),
			Failed: strings.Join(args[3:], " ")}
	case "withdrawn":
		w.node.Withdrawn = args[0] == "yes"
	case "inside": // POD CONTAINER CPUS [PERIODS]: what the container uses, and in how many periods its quota stops it
		u := model.InsideUsage{UID: args[0], Name: args[1], CPUUsage: model.CPUUsage{Milli: milli(args[2]), Periods: 10}}
		if len(args) > 3 {
			u.Throttled = number(args[3])
		}
		same := func(v model.InsideUsage) bool { return v.UID == u.UID && v.Name == u.Name }
		l.inside = append(slices.DeleteFunc(l.inside, same), u)
		slices.SortFunc(l.inside, func(a, b model.InsideUsage) int {
			return cmp.Or(strings.Compare(a.UID, b.UID), strings.Compare(a.Name, b.Name))
		})
	case "figure": // POD VALUE [age=DURATION] [failed=WHY]
		f := figure{value: millionths(args[1])}
		for _, arg := range args[2:] {
			if age, is := strings.CutPrefix(arg, "age="); is {
				f.age = duration(age)
			}
			if failed, is := strings.CutPrefix(arg, "failed="); is {
				f.failed = failed
			}
		}
		l.figures[args[0]] = f
	case "brief":
		l.brief = true
	case "clock":
		l.set += duration(args[0])
		w.node.Now = w.node.Now.Add(duration(args[0]))
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

func (w *world) setNodeLoad(key, value string) bool {
	l := w.ensure()
	switch key {
	case "real": // the Node object keeps this until a command changes it
		l.real = amounts(value)
		w.node.Capacity, w.node.Allocatable = l.real, l.real
	case "capacity":
		w.node.Capacity = amounts(value)
	case "allocatable":
		w.node.Allocatable = amounts(value)
	case "reservedcpu":
		w.node.Kubelet.ReservedMilli = milli(value)
	case "reservedmemory":
		w.node.Kubelet.ReservedMemory = bytes(value)
	case "noidle":
		w.node.Tree.NoIdle = true
	case "noidentity":
		w.node.Tree.NoIdentity = value
	case "noreclaim":
		w.node.Tree.NoReclaim = true
	case "noprotection":
		w.node.Tree.NoProtection = value
	case "qoscontainers":
		w.node.Tree.MemoryQoS = value != "no"
	case "nopressure":
		w.node.Tree.NoPressure = true
	case "watermark":
		l.watermark = bytes(value)
	default:
		return false
	}
	return true
}

func (w *world) setSelling(key, value string) bool {
	if key == "koordinator" {
		w.node.Koordinator = true
		return true
	}
	if key == "class" {
		w.policy.Weight.Batch = model.BatchClass(value)
		return true
	}
	if key == "interference" {
		w.policy.Protect.Interference = true
		return true
	}
	if key == "evict" {
		w.policy.Protect.EvictPerHour = number(value)
		return true
	}
	if key == "service" { // KEY:VALUE:MAX[:prometheus]
		parts := strings.Split(value+":", ":")
		rule := model.ServiceRule{
			Selector: model.Selector{{Key: parts[0], Op: model.In, Values: parts[1:2]}}, Max: millionths(parts[2]),
			Source: model.ServiceSource{Port: 8080, Path: "/metrics", Metric: "seconds"},
		}
		if parts[3] != "" {
			rule.Source = model.ServiceSource{URL: "http://prometheus", Query: "seconds"}
		}
		w.policy.Services = append(w.policy.Services, rule)
		return true
	}
	if key == "suppress" {
		by, floor, _ := strings.Cut(value, ":")
		w.policy.Suppress = model.SuppressPolicy{By: model.SuppressMethod(by), MinBatch: optional(floor)}
		return true
	}
	if key != "cpu" && key != "memory" {
		return false
	}
	parts := strings.Split(value+":::", ":")
	sell := model.SellPolicy{Method: model.SellMethod(strings.TrimPrefix(parts[0], "none")), Waterline: number(parts[1]),
		Mid: optional(parts[2]), Ratio: optional(parts[3])}
	if key == "cpu" {
		w.policy.CPU = sell
	} else {
		w.policy.Memory = sell
	}
	return true
}

func (w *world) setPodLoad(pod *model.Pod, key, value string) bool {
	used := w.ensure().used[pod.UID]
	switch key {
	case "qos":
		pod.Class = model.Class(value)
	case "used":
		used.Amount = amounts(value)
	case "waits":
		used.waits = number(value)
	case "delays":
		used.delays = number(value)
	case "throttled":
		used.throttled = number(value)
	case "cache": // COLD/ALL
		cold, all, _ := strings.Cut(value, "/")
		used.cold, used.cache = bytes(cold), bytes(all)
	case "thrashes":
		used.thrashes = number(value)
	case "stalls":
		used.thrashes, used.stalls = number(value), number(value)
	case "usedage":
		used.age = duration(value)
	case "memory":
		pod.MemoryRequest = bytes(value)
		return true
	case "koordinator":
		pod.Koordinator = true
		return true
	case "evict":
		pod.Annotations.Evict = model.EvictPreference(value)
		return true
	case "held":
		pod.Held = bytes(value)
		return true
	case "leaving":
		pod.Leaving, pod.Grace = true, duration(value)
		return true
	case "mid":
		pod.Mid, pod.Tier = amounts(value), model.TierMid
		return true
	case "batch":
		pod.Batch, pod.Tier = amounts(value), model.TierBatch
		return true
	default:
		return false
	}
	if key != "qos" {
		w.load.used[pod.UID] = used
	}
	return true
}

// addJob adds a running container that requests batch resources, CPUS[:LIMIT[:MEMORY]], and returns the name of its
// cgroup. MEMORY is its limit.
func addJob(pod *model.Pod, name, asks string) string {
	c := model.Container{Name: name, ID: fmt.Sprintf("%012x", 0xb0+len(pod.Containers))}
	parts := strings.Split(asks+"::", ":")
	c.Grant = model.Grant{RequestMilli: milli(parts[0]), LimitMilli: milli(cmp.Or(parts[1], "0")), Memory: bytes(parts[2])}
	sum := &pod.Grant
	if len(pod.Containers) == 0 {
		*sum = c.Grant
	} else {
		*sum = model.Grant{
			RequestMilli: sum.RequestMilli + c.Grant.RequestMilli,
			LimitMilli:   together(sum.LimitMilli, c.Grant.LimitMilli), Memory: together(sum.Memory, c.Grant.Memory),
		}
	}
	pod.Containers = append(pod.Containers, c)
	return c.ID
}

// together sums two limits. If either is missing, the sum has no limit.
func together(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return a + b
}

// measure does what the agent does each second: it observes what the last plan asked for, as often as that said.
func (w *world) measure() {
	l := w.load
	w.node.Load = nil
	if l == nil || l.off {
		return
	}
	clock := time.Hour + w.node.Now.Sub(epoch) - l.set // nobody can set this one
	age := l.age
	usage := func(a model.Amount, age time.Duration) model.Usage {
		return fixture.Usage(clock-age, a.CPU, a.Memory)
	}
	m := &model.Load{Clock: clock, CPUMilli: l.real.CPU, Memory: l.real.Memory, Watermark: l.watermark}
	w.node.Load = m
	if l.none {
		return
	}
	for _, u := range l.inside {
		if from := model.FindDetail(w.asked.Pods, u.UID).Inside; from > 0 && l.used[u.UID].CPU >= from {
			u.At = clock - age
			m.Inside = append(m.Inside, u)
		}
	}
	m.Stolen = l.stolen
	m.Node, m.Classes[model.Guaranteed], m.Classes[model.BestEffort] = usage(l.node, age), usage(l.pods, age),
		usage(l.best, age)
	for uid, used := range l.used {
		if model.IsSystem(uid) {
			continue
		}
		u := usage(used.Amount, max(age, used.age))
		u.CPU.Throttled = used.throttled
		if used.waits > 0 {
			u.Pressure = model.Pressure{At: u.CPU.At, CPU: model.Stall{Some: used.waits}}
		}
		if used.thrashes > 0 || used.stalls > 0 {
			u.Pressure.At, u.Pressure.Memory = u.CPU.At, model.Stall{Some: used.thrashes, Full: used.stalls}
		}
		u.Memory.InactiveFile, u.Memory.ActiveFile = used.cold, used.cache-used.cold
		if was := l.seen[uid]; was.At != 0 && !model.FindDetail(w.asked.Pods, uid).Seconds && was.At <= clock &&
			u.Pressure.At-was.At < 5*time.Second {
			u.Pressure = was // without a plan that needs more, each fifth second
		}
		l.seen[uid] = u.Pressure
		m.Pods = append(m.Pods, model.PodUsage{UID: uid, Usage: u})
	}
	slices.SortFunc(m.Pods, func(a, b model.PodUsage) int { return strings.Compare(a.UID, b.UID) })
	w.sample(clock - age)
	w.fetch(clock)
}

// fetch fetches the figures that the last round wanted.
func (w *world) fetch(clock time.Duration) {
	w.node.Figures = nil
	for _, t := range w.asked.Services {
		f, known := w.load.figures[t.UID]
		s := model.ServiceFigure{UID: t.UID, Max: t.Max, Failed: f.failed}
		if known && f.failed == "" {
			s.At, s.Value = clock-f.age, f.value
		}
		w.node.Figures = append(w.node.Figures, s)
	}
}

// sample samples the tasks of the pods that the last plan named.
func (w *world) sample(at time.Duration) {
	l := w.load
	before := w.node.Waits
	due := at-l.sampled >= w.asked.WaitsEvery-50*time.Millisecond || at < l.sampled
	if w.node.Waits = nil; due {
		l.sampled = at
	}
	for _, mark := range w.asked.Waits {
		s := model.PodWait{UID: mark.UID}
		if old := model.FindWait(before, mark.UID); old != nil {
			s = *old
		}
		if used := l.used[mark.UID]; used.delays >= 0 && due {
			if since := at - s.At; s.At > 0 && since > 0 {
				ran := since * time.Duration(used.CPU) / 1000
				s.Ran, s.Waited = s.Ran+ran, s.Waited+ran*time.Duration(used.delays)/1000
			}
			s.At = at
		}
		w.node.Waits = append(w.node.Waits, s)
	}
}

// printAccount prints the uses of a resource, as a sum with its results.
func printAccount(out *strings.Builder, name string, a *model.Account, show func(int64) string) {
	fmt.Fprintf(out, "%s capacity=%s ceiling=%s reserved=%s system=%s online=%s unmeasured=%s whole=%s batch=%s\n", name,
		show(a.Capacity),
		show(a.Ceiling), show(a.Reserved), show(a.Use.System), show(a.Use.Online), show(a.Use.Unmeasured),
		show(a.Use.IdleExclusive), show(a.Use.Batch))
	for _, use := range []struct {
		what string
		of   int64
	}{
		{"stolen", a.Use.Stolen}, {"daemons", a.Use.Daemons}, {"protected", a.Use.Protected}, {"unsold", a.Use.Unsold},
	} {
		if use.of > 0 {
			fmt.Fprintf(out, "%s %s=%s\n", name, use.what, show(use.of))
		}
	}
	fmt.Fprintf(out, "%s allowance=%s room mid=%s batch=%s bound mid=%s batch=%s\n", name, show(a.Allow), show(a.Room.Mid),
		show(a.Room.Batch), show(a.Bound.Mid), show(a.Bound.Batch))
	fmt.Fprintf(out, "%s offer mid=%s batch=%s  %s\n", name, show(a.Offer.Mid), show(a.Offer.Batch), a.Reason)
}

// printSuppression prints what batch may use.
func printSuppression(out *strings.Builder, s *model.Suppression, clock time.Duration) {
	fmt.Fprintf(out, "batch may use %s", cores(s.Milli))
	if s.CPUs > 0 {
		fmt.Fprintf(out, " on %d", s.CPUs)
	}
	for _, p := range s.Parts {
		fmt.Fprintf(out, " %s=%s/%s", p.UID, cores(p.Milli), gib(p.Memory))
	}
	if s.Quotas {
		out.WriteString(" by quota")
	}
	fmt.Fprintf(out, "  %s\n", s.Reason)
	if r := &s.Reaction; r.At != 0 && clock-r.At < 5*time.Second {
		fmt.Fprintf(out, "%s ago %s -> %s, used %s, expected relief %s", clock-r.At, cores(r.From), cores(r.To),
			cores(r.Used), cores(r.Expected))
		if r.Seen {
			fmt.Fprintf(out, ", observed %s", cores(r.Observed))
		}
		out.WriteByte('\n')
	}
}

// printInterference prints the suspects of an online pod, and the throttled pods.
func printInterference(out *strings.Builder, b *model.Interference) {
	if f := &b.Finding; f.Victim != "" {
		fmt.Fprintf(out, "%s waits", f.Victim)
		if f.Suspect != "" {
			fmt.Fprintf(out, " for %s", f.Suspect)
		}
		if b.Waits {
			out.WriteString(", which is not throttled now")
		}
		fmt.Fprintf(out, "  %s\n", f.Reason())
	}
	for i := range b.Throttles {
		t := &b.Throttles[i]
		fmt.Fprintf(out, "%s may use %s for %s\n", t.UID, cores(t.Milli), t.Victim)
	}
}

// printEvictions prints the requested evictions and their results.
func printEvictions(out *strings.Builder, e *model.Evictions, clock time.Duration) {
	if e.Hot.Code != "" {
		fmt.Fprintf(out, "hot  %s\n", e.Hot)
	}
	if r := e.Request; r != nil {
		fmt.Fprintf(out, "%s should leave  %s", r.Name, r.Reason)
		if r.Withheld != nil {
			fmt.Fprintf(out, "  held: %s", r.Withheld)
		}
		out.WriteByte('\n')
	}
	if l := &e.Last; l.UID != "" {
		fmt.Fprintf(out, "%s left %s ago, expected relief %s", l.UID, clock-l.At, gib(l.Expected))
		if l.Seen {
			fmt.Fprintf(out, ", observed %s", gib(l.Observed))
		}
		out.WriteByte('\n')
	}
}

// printPublication prints what is to stand on the Node.
func printPublication(out *strings.Builder, p *model.Publication) {
	switch {
	case !p.Decided:
		fmt.Fprintln(out, "publish as it is")
		return
	case len(p.Resources) == 0:
		out.WriteString("publish nothing")
	default:
		out.WriteString("publish")
	}
	for _, r := range p.Resources {
		name, amount := string(r.Tier)+"-cpu", cores(r.Amount)
		if r.Memory {
			name, amount = string(r.Tier)+"-memory", gib(r.Amount)
		}
		if r.Koordinator {
			name = "koordinator's " + name
		}
		fmt.Fprintf(out, " %s=%s", name, amount)
	}
	fmt.Fprintf(out, "%s\n", strings.TrimRight("  "+p.Reason.String(), " "))
}

// cores shows milli-cores.
func cores(v int64) string { return strconv.FormatFloat(float64(v)/1000, 'f', -1, 64) }

// gib shows bytes, rounded.
func gib(v int64) string {
	return strconv.FormatFloat(math.Round(float64(v)/(1<<30)*100)/100, 'f', -1, 64) + "Gi"
}

// amounts reads CPUS/MEMORY.
func amounts(s string) model.Amount {
	if s == "unknown" {
		return model.Amount{}
	}
	cpu, memory, _ := strings.Cut(s, "/")
	return model.Amount{CPU: milli(cpu), Memory: bytes(memory)}
}

// bytes reads a number of gibibytes; nothing is 0.
func bytes(s string) int64 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, "Gi"), 64)
	if err != nil {
		panic(err)
	}
	return int64(n * (1 << 30))
}

func optional(s string) int64 {
	if s == "" {
		return 0
	}
	return number(s)
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

// theirs is the value of a file before Waterline's first write.
func theirs(k model.Knob) model.Value {
	switch k {
	case model.Cpuset:
		return model.Value{List: model.Inherited}
	case model.MemoryMax, model.MemoryHigh:
		return model.Number(model.Unlimited)
	case model.Burst, model.Idle, model.Identity, model.MemoryMin, model.MemoryLow:
		return model.Number(0)
	}
	return model.Number(1024)
}

// idle applies changes of cpu.idle to the imagined host.
func (w *world) idle(plan *model.Plan) {
	for uid, group := range w.node.Tree.Pods {
		i := slices.IndexFunc(plan.Settings,
			func(s model.Setting) bool { return s.File == model.File{Dir: group.Dir, Knob: model.Idle} })
		if i >= 0 && plan.Settings[i].Deferred == nil {
			group.Idle = plan.Settings[i].Value.Number == 1
			w.node.Tree.Pods[uid] = group
		}
	}
}

// millionths reads a figure.
func millionths(s string) int64 {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	return int64(math.Round(n * 1e6))
}

// milli reads a number of CPUs.
func milli(cpus string) int64 {
	n, err := strconv.ParseFloat(cpus, 64)
	if err != nil {
		panic(err)
	}
	return int64(n * 1000)
}
