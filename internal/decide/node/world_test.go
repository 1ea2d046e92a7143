package node_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// world is an imagined node on which every plan succeeds. It is built by the commands of golden cases, which set nearly
// every field of a node, a pod and a policy.
type world struct {
	node   model.Node
	policy model.Policy
	state  node.State
	layout cgroup.Layout
	busy   bool
	room   bool                       // print the room for pods that request their own CPUs
	peaks  slack.Peaks                // of online pods
	load   *load                      // nil: the world does not measure
	uses   map[string]int64           // memory by directory, in bytes
	wrote  map[model.File]model.Value // by others, since the last round
	saved  node.State
	asked  model.Observe // what the last plan asked to observe
}

func newWorld() *world {
	unknown := [model.Horizons]model.Peak{unknownPeak, unknownPeak}
	w := &world{
		node: fixture.Node(model.Amount{CPU: 4000}), policy: fixture.Policy(),
		layout: cgroup.Layout{Driver: cgroup.Cgroupfs, Root: "kubepods"},
		peaks:  slack.Peaks{CPU: unknown, Memory: unknown},
		uses:   map[string]int64{}, wrote: map[model.File]model.Value{},
	}
	w.node.Capacity = model.Amount{} // not known until a command sets it
	return w
}

func (w *world) do(line string) error {
	words := strings.Fields(line)
	args := words[1:]
	switch words[0] {
	case "node":
		return w.setNode(args)
	case "policy":
		return w.setPolicy(args)
	case "pod":
		return w.setPod(args[0], args[1:])
	case "gone":
		fixture.Delete(&w.node, args[0])
	case "deleted":
		w.node.Pods = slices.DeleteFunc(w.node.Pods, func(p *model.Pod) bool { return p.Name == args[0] })
	case "pods":
		w.node.PodsKnown, w.node.PodsKept = args[0] != "unknown", args[0] == "kept"
	case "saves":
		w.saved = w.state.Saved()
	case "killed": // the agent, and started again with what it saved last
		w.state = w.saved
	case "tick":
		d, err := time.ParseDuration(args[0])
		w.node.Now = w.node.Now.Add(d)
		return err
	case "overwritten", "rejected":
		incident := model.Incident{File: model.File{Dir: args[0], Knob: knob(args[1])}, Kind: model.Overwritten,
			Value: value(knob(args[1]), args[2])}
		if words[0] == "rejected" {
			incident.Kind, incident.Errno = model.Rejected, args[3]
		}
		w.node.Incidents = append(w.node.Incidents, incident)
		if incident.Kind == model.Overwritten && incident.Knob.Protects() {
			w.wrote[incident.File] = incident.Value
		}
	case "fight": // DIR KNOB DURATION: another writer overwrites the file every 10 ms
		d, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		file := model.File{Dir: args[0], Knob: knob(args[1])}
		for end := w.node.Now.Add(d); w.node.Now.Before(end); w.node.Now = w.node.Now.Add(10 * time.Millisecond) {
			var plan model.Plan
			plan, w.state = node.DecideKnowing(w.peaks, w.node, w.policy, w.state)
			w.node.Incidents = nil
			if slices.ContainsFunc(plan.Settings, func(s model.Setting) bool { return s.File == file && s.Deferred == nil }) {
				w.node.Incidents = []model.Incident{{File: file, Kind: model.Overwritten, Value: model.Number(2)}}
			}
		}
	case "confined": // the group's parents allow it other CPUs than its list says
		w.node.Confined = []model.Confined{{File: model.File{Dir: args[0], Knob: model.Cpuset},
			To: model.Value{List: args[1]}}}
	case "decide": // a round that is not shown
		w.decide()
	case "uses":
		w.uses[args[0]] = bytes(args[1])
	case "busy":
		w.busy = true
	case "room":
		w.room = true
	default:
		return w.doLoad(words[0], args)
	}
	return nil
}

func (w *world) setNode(args []string) error {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "cpu":
			w.node.Allocatable.CPU = number(value) * 1000
		case "kubelet":
			w.node.Kubelet = model.Kubelet{Known: value != "unknown", CFSQuota: value != "noquota",
				QuotaPeriod: model.DefaultQuotaPeriod, StaticCPUs: value == "static", NoPodCgroups: value == "nopodcgroups",
				MemoryQoS: value == "memoryqos"}
		case "readonly":
			w.node.Tree.ReadOnly = value != "no"
		case "cpus": // SOCKETSxNODESxCACHESxCORESxTHREADS, each in one of what is before it
			w.node.Topology = topology(value)
			w.node.Allocatable.CPU = int64(len(w.node.Topology.CPUs)) * 1000
		case "offline":
			off := cpus(value)
			online := *w.node.Topology
			online.CPUs = slices.DeleteFunc(slices.Clone(online.CPUs), func(c model.CPU) bool { return off.Has(c.ID) })
			w.node.Topology = &online
		case "reserved":
			w.node.Kubelet.ReservedCPUs = cpus(value)
		case "isolated":
			w.node.Isolated = cpus(value)
		case "pool": // of a kubelet with policy static
			w.node.Kubelet.PoolKnown, w.node.Kubelet.AllocatableCPUs = true, cpus(value)
		case "taken":
			w.node.Kubelet.TakenCPUs = cpus(value)
		case "v2":
			w.node.Tree.V2 = true
		case "noburst", "burst":
			w.node.Tree.NoBurst = key == "noburst"
		case "allowed": // CPUs on which pods may run at all
			w.node.Tree.CPUs = cpus(value)
		case "outside": // none, or POD:DIR, where a container of the pod runs
			w.node.Tree.Outside = nil
			if pod, dir, given := strings.Cut(value, ":"); given {
				w.node.Tree.Outside = []model.Outside{{UID: pod, Dir: dir}}
			}
		case "unread": // how to have the kubelet's settings read
			w.node.Kubelet.Unread = strings.ReplaceAll(value, "_", " ")
		case "nocpusets":
			w.node.Tree.NoCpusets = true
		default:
			if !w.setNodeLoad(key, value) {
				return fmt.Errorf("node has no %q", key)
			}
		}
	}
	return nil
}

func (w *world) setPolicy(args []string) error {
	w.policy, w.node.Koordinator = fixture.Policy(), false
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		parts := strings.Split(value, ":")
		switch key {
		case "mode":
			w.policy.Mode = model.Mode(value)
		case "scope":
			w.policy.Weight.Scope = model.Scope(value)
		case "quota":
			w.policy.Weight.Quota = model.QuotaMode(value)
		case "max":
			w.policy.Weight.Max = number(value)
		case "allow": // none, or KEY:VALUE:PRIVILEGE[+PRIVILEGE...]
			if value == "none" {
				w.policy.Privileges = nil
				continue
			}
			rule := model.PrivilegeRule{Namespaces: model.Selector{{Key: parts[0], Op: model.In, Values: parts[1:2]}}}
			for _, name := range strings.Split(parts[2], "+") {
				rule.Allow = append(rule.Allow, model.Privilege(name))
			}
			w.policy.Privileges = append(w.policy.Privileges, rule)
		case "burst":
			w.policy.Protect.Burst = true
		case "isolated":
			w.policy.UseIsolated = true
		case "protectmemory":
			w.policy.Protect.Memory = true
		case "override":
			w.policy.Weight.OverrideGuaranteed = true
		case "namespace":
			w.policy.Weight.Namespaces = append(w.policy.Weight.Namespaces, model.NamespaceMax{
				Selector: model.Selector{{Key: parts[0], Op: model.In, Values: parts[1:2]}}, Max: number(parts[2]),
			})
		case "cpus":
			w.policy.Pods = append(w.policy.Pods, model.PodRule{
				Selector: model.Selector{{Key: parts[0], Op: model.In, Values: parts[1:2]}}, CPUs: model.CPUMode(parts[2]),
			})
		case "pods":
			w.policy.Pods = append(w.policy.Pods, model.PodRule{
				Selector: model.Selector{{Key: parts[0], Op: model.In, Values: parts[1:2]}}, Shares: number(parts[2]),
			})
		default:
			if !w.setSelling(key, value) {
				return fmt.Errorf("policy has no %q", key)
			}
		}
	}
	return nil
}

func (w *world) setPod(name string, args []string) error {
	pod := fixture.Pod(name, model.Guaranteed)
	pod.Labels, pod.NamespaceLabels = map[string]string{}, map[string]string{}
	group := model.PodGroup{}
	exists := true
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		k, v, _ := strings.Cut(value, ":")
		switch key {
		case "class":
			pod.QoS = map[string]model.QoSClass{"Guaranteed": model.Guaranteed, "Burstable": model.Burstable,
				"BestEffort": model.BestEffort}[value]
		case "request":
			pod.RequestMilli = number(value)
		case "limit":
			pod.LimitMilli = number(value)
		case "weight":
			pod.Annotations.Shares = number(value)
		case "quota":
			pod.Annotations.Quota = model.QuotaMode(value)
		case "bad":
			pod.Annotations.Notices = append(pod.Annotations.Notices, model.Reason{Code: model.BadAnnotation, Key: k, Text: v,
				Fix: "write a number"})
			if k == "waterline.io/cpu-manager" {
				pod.Annotations.BadCPUs = pod.Annotations.Notices[0]
			}
		case "badlabel":
			pod.Annotations.Notices = append(pod.Annotations.Notices, model.Reason{Code: model.BadLabel, Key: k, Text: v,
				Fix: "write BE"})
		case "both":
			pod.Annotations.Notices = append(pod.Annotations.Notices, model.Reason{Code: model.BothSpellings, Key: k, Text: v,
				Fix: "remove one"})
		case "cpus":
			pod.Annotations.CPUs = model.CPUMode(value)
		case "list": // of the last container
			group.CPUs = make([]model.CPUSet, len(group.Containers))
			group.CPUs[len(group.CPUs)-1] = cpus(value)
		case "worker":
			pod.Pool = "workers"
		case "hint":
			pod.Annotations.Hint = cpus(value)
		case "place":
			pod.Annotations.Placement = model.CPUPlacement(value)
		case "localmemory":
			pod.Annotations.LocalMemory, pod.MemoryLimit = true, number(value)
			for i := range pod.Containers {
				pod.Containers[i].MemoryLimit = number(value)
			}
		case "age": // seconds before the first moment
			pod.Created = epoch.Add(-time.Duration(number(value)) * time.Second)
		case "app": // NAME:LIMIT[:REQUEST], in CPUs: a container that runs
			limit, request, both := strings.Cut(v, ":")
			if !both {
				request = limit
			}
			c := model.Container{Name: k, ID: fmt.Sprintf("%012x", 0xa0+len(pod.Containers)), LimitMilli: milli(limit),
				RequestMilli: milli(request)}
			pod.RequestMilli, pod.LimitMilli = pod.RequestMilli+c.RequestMilli, pod.LimitMilli+c.LimitMilli
			c.LeastMilli, pod.LeastMilli = c.LimitMilli, pod.LimitMilli
			pod.Containers = append(pod.Containers, c)
			group.Containers = append(group.Containers, c.ID)
		case "becomes": // NAME:LIMIT, in CPUs: a resize of that container to less is under way
			for i := range pod.Containers {
				if c := &pod.Containers[i]; c.Name == k {
					c.LeastMilli, pod.LeastMilli = milli(v), pod.LeastMilli-c.LeastMilli+milli(v)
				}
			}
		case "job":
			group.Containers = append(group.Containers, addJob(pod, k, v))
		case "podlevel": // CPUs of the pod as a whole
			pod.PodLevelCPU, pod.LimitMilli, pod.RequestMilli = true, milli(value), milli(value)
		case "self":
			pod.Self = true
		case "mirror":
			pod.APIUID = name + "-mirror"
		case "namespace":
			pod.Namespace = value
		case "critical":
			pod.Critical = true
		case "ended":
			pod.Ended = true
		case "idle":
			group.Idle = true
		case "nocgroup":
			exists = false
		case "label":
			pod.Labels[k] = v
		case "space":
			pod.NamespaceLabels[k] = v
		case "containers":
			for _, c := range strings.Split(value, ",") {
				id, limit, _ := strings.Cut(c, ":")
				group.Containers = append(group.Containers, id)
				if limit != "" {
					pod.Containers = append(pod.Containers, model.Container{Name: id, ID: id, LimitMilli: number(limit)})
				}
			}
		default:
			if !w.setPodLoad(pod, key, value) {
				return fmt.Errorf("a pod has no %q", key)
			}
		}
	}
	fixture.Bind(&w.node, pod)
	delete(w.node.Tree.Pods, name)
	if exists {
		group.Dir, group.Inode = w.layout.Pod(pod.QoS, name), 1
		w.node.Tree.Pods[name] = group
	}
	return nil
}

// decide runs a round, prints it and imagines that the host did what it says.
func (w *world) decide() string {
	w.measure()
	plan := w.settled()
	var out strings.Builder
	for _, s := range plan.Settings {
		fmt.Fprintf(&out, "%s %s %s", s.Dir, s.Knob, s.Value)
		if s.Release {
			out.WriteString(" (restored)")
		}
		fmt.Fprintf(&out, "  %s", s.Reason)
		if s.Deferred != nil {
			fmt.Fprintf(&out, "  deferred: %s", s.Deferred)
		}
		out.WriteByte('\n')
	}
	if c := plan.CPUs; c != nil {
		fmt.Fprintf(&out, "cpus reserved=%s exclusive=%s share=%s shared=%s", c.Reserved, c.Exclusive, c.Share, c.Shared)
		if !c.Batch.Empty() {
			fmt.Fprintf(&out, " batch=%s", c.Batch)
		}
		out.WriteByte('\n')
		for _, o := range c.Own {
			if o.Memory.Len() > 0 {
				fmt.Fprintf(&out, "memory of %s: nodes %s\n", o.UID, o.Memory)
			}
		}
	}
	if room := plan.Report.CPUs; w.room && room != nil {
		fmt.Fprintf(&out, "room free=%s exclusive=%d\n", room.Free, room.Exclusive)
	}
	for _, c := range plan.Conditions {
		fmt.Fprintf(&out, "condition %q %v %s %s\n", c.Name, c.Met, c.Reason, c.Message)
	}
	if r := plan.Reclaim; r != nil {
		fmt.Fprintf(&out, "reclaim %s from %s in %s  %s\n", gib(r.Bytes), r.UID, r.Dir, r.Reason)
	}
	for _, why := range plan.Unsupported {
		fmt.Fprintf(&out, "unsupported %s\n", why)
	}
	for _, n := range plan.Notices {
		fmt.Fprintf(&out, "notice %q %s\n", n.Name, n.Reason)
	}
	if plan.Interference != nil {
		printInterference(&out, plan.Interference)
	}
	if plan.Evict != nil {
		printEvictions(&out, plan.Evict, w.node.Load.Clock)
	}
	if plan.Suppress != nil {
		printSuppression(&out, plan.Suppress, w.node.Load.Clock)
	}
	if plan.Harm != nil {
		for _, why := range plan.Harm.Services {
			fmt.Fprintf(&out, "figure %s\n", why)
		}
		for _, why := range plan.Harm.Starved {
			fmt.Fprintf(&out, "the node waits  %s\n", why)
		}
	}
	if w.load != nil && !w.load.brief {
		if plan.Slack != nil {
			printAccount(&out, "cpu", &plan.Slack.CPU, cores)
			printAccount(&out, "memory", &plan.Slack.Memory, gib)
		}
		if plan.Slack != nil || len(plan.Publish.Resources) > 0 {
			printPublication(&out, &plan.Publish)
		}
	}
	if !plan.Next.IsZero() {
		fmt.Fprintf(&out, "again in %s\n", plan.Next.Sub(w.node.Now))
	}
	if w.busy {
		cpus := whenBusy(&w.node, &plan)
		for _, pod := range w.node.Pods {
			if !pod.Ended {
				fmt.Fprintf(&out, "busy %s %.2f CPU\n", pod.Name, cpus[pod.UID])
			}
		}
		w.busy = false
	}
	w.carryOut(&plan)
	return out.String()
}

// carryOut imagines that the host, and the API, did what a plan says.
func (w *world) carryOut(plan *model.Plan) {
	if plan.Publish.Decided {
		w.node.Object.Published = slices.Clone(plan.Publish.Resources)
	}
	w.asked = plan.Observe
	w.node.Incidents, w.node.Reclaimed = nil, nil
	owned := map[model.File]model.Owned{}
	for _, o := range w.node.Owned {
		owned[o.File] = o
	}
	for _, s := range plan.Settings {
		switch {
		case s.Deferred != nil:
		case s.Knob == model.MemoryMax && s.Value.Number != model.Unlimited && w.uses[s.Dir] > s.Value.Number:
			w.node.Incidents = append(w.node.Incidents, model.Incident{File: s.File, Kind: model.Exceeded, Value: s.Value,
				Use: w.uses[s.Dir]})
		case s.Release:
			delete(owned, s.File)
		default:
			o, known := owned[s.File]
			if !known {
				o = model.Owned{File: s.File, Theirs: theirs(s.Knob)}
			}
			if wrote, other := w.wrote[s.File]; other {
				o.Theirs = wrote
				delete(w.wrote, s.File)
			}
			o.Ours = s.Value
			owned[s.File] = o
		}
	}
	for i, p := range w.node.Pods {
		told := *p
		told.CPUCondition = model.PodCondition{}
		for _, c := range plan.Conditions {
			if c.UID == p.APIUID {
				told.CPUCondition = c.PodCondition
			}
		}
		w.node.Pods[i] = &told
	}
	w.idle(plan)
	w.node.Owned = nil
	for _, o := range owned {
		w.node.Owned = append(w.node.Owned, o)
	}
	slices.SortFunc(w.node.Owned, func(a, b model.Owned) int { return a.File.Compare(b.File) })
}

// whenBusy returns the CPU that each pod gets while all of them want everything there is: the kernel's arithmetic over
// the plan, and over what the kubelet sets where the plan says nothing.
func whenBusy(n *model.Node, plan *model.Plan) map[string]float64 {
	value := func(dir string, knob model.Knob, otherwise int64) int64 {
		for _, s := range plan.Settings {
			if s.Dir == dir && s.Knob == knob && s.Deferred == nil {
				return s.Value.Number
			}
		}
		return otherwise
	}
	claim := func(p *model.Pod) model.Claim {
		shares := model.MilliCPUToShares(p.RequestMilli)
		if p.QoS == model.BestEffort {
			shares = model.MinShares
		}
		dir := n.Tree.Pods[p.UID].Dir
		limit := math.Inf(1)
		enforced := !n.Kubelet.Known || n.Kubelet.CFSQuota
		if p.LimitMilli > 0 && enforced && value(dir, model.Quota, 0) != model.Unlimited {
			limit = float64(p.LimitMilli) / 1000
		}
		if quota := value(dir, model.Quota, 0); quota > 0 {
			limit = float64(quota) / model.DefaultQuotaPeriod
		}
		weight := value(dir, model.Shares, shares)
		if value(dir, model.Idle, 0) == 1 {
			weight = 3 // which is what the kernel gives it
		}
		return model.Claim{Weight: float64(weight), Limit: limit}
	}
	var inside [3][]model.Claim
	var uids [3][]string
	var milli int64
	for _, p := range n.Pods {
		if p.Ended {
			continue
		}
		inside[p.QoS] = append(inside[p.QoS], claim(p))
		uids[p.QoS] = append(uids[p.QoS], p.UID)
		if p.QoS == model.Burstable {
			milli += p.RequestMilli
		}
	}
	claims := append([]model.Claim{}, inside[model.Guaranteed]...)
	names := append([]string{}, uids[model.Guaranteed]...)
	for q, shares := range map[model.QoSClass]int64{
		model.Burstable:  value(n.Tree.Burstable, model.Shares, model.MilliCPUToShares(milli)),
		model.BestEffort: value(n.Tree.BestEffort, model.Shares, model.MinShares),
	} {
		if len(inside[q]) == 0 {
			continue
		}
		var limit float64
		for _, c := range inside[q] {
			limit += c.Limit
		}
		claims = append(claims, model.Claim{Weight: float64(shares), Limit: limit})
		names = append(names, q.String())
	}
	got := map[string]float64{}
	for i, amount := range model.Divide(float64(n.Allocatable.CPU)/1000, claims) {
		got[names[i]] = amount
	}
	for _, q := range []model.QoSClass{model.Burstable, model.BestEffort} {
		for i, amount := range model.Divide(got[q.String()], inside[q]) {
			got[uids[q][i]] = amount
		}
	}
	return got
}

// epoch is the first moment of every transcript.
var epoch = fixture.Epoch()

// topology makes a machine of equal parts. The threads of a core are numbered one after the other.
func topology(spec string) *model.Topology {
	var n [5]int
	for i, part := range strings.Split(spec, "x") {
		n[i] = int(number(part))
	}
	t := &model.Topology{}
	for id := range n[0] * n[1] * n[2] * n[3] * n[4] {
		core := id - id%n[4]
		cache := id - id%(n[4]*n[3])
		node := id / (n[4] * n[3] * n[2])
		if node == len(t.Nodes) {
			t.Nodes = append(t.Nodes, model.NUMANode{ID: node, Memory: 64 << 30})
		}
		t.CPUs = append(t.CPUs, model.CPU{ID: id, Socket: node / n[1], Node: node, L3: cache, Core: core})
	}
	return t
}

func cpus(list string) model.CPUSet {
	set, err := model.ParseCPUs(list)
	if err != nil {
		panic(err)
	}
	return set
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func knob(name string) model.Knob {
	i := slices.IndexFunc(model.Knobs(), func(k model.Knob) bool { return k.String() == name })
	return model.Knobs()[i]
}

// value reads a number or a list of CPUs as a transcript shows it.
func value(k model.Knob, s string) model.Value {
	if k == model.Cpuset {
		return model.Value{List: s}
	}
	return model.Number(number(s))
}
