package cpuset

import (
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Of returns the CPUs that a container of a pod is to run on. An init container, which ends before the others start, has
// those of all of them. A pod that is not known yet, nil, has none of its own.
func Of(plan *model.CPUPlan, pod *model.Pod, container string) model.CPUSet {
	if pod == nil {
		return plan.Shared
	}
	return of(plan, ownedBy(plan, pod.UID), pod, container)
}

// of is [Of] for a pod whose part of plan.Own is known.
func of(plan *model.CPUPlan, own []model.OwnCPUs, pod *model.Pod, container string) model.CPUSet {
	if len(own) == 0 {
		return others(plan, pod)
	}
	var union model.CPUSet
	for i := range own {
		if o := &own[i]; o.Container == "" || o.Container == container {
			return o.CPUs
		}
		union = union.Or(own[i].CPUs)
	}
	for i := range pod.Containers {
		if c := &pod.Containers[i]; c.Name == container && !c.Init {
			return others(plan, pod)
		}
	}
	return union // also for one that is not known, such as the sandbox's own
}

// others returns where what has no CPUs of its own runs of a pod.
func others(plan *model.CPUPlan, pod *model.Pod) model.CPUSet {
	if pod.Class == model.ClassBE && !plan.Batch.Empty() {
		return plan.Batch
	}
	return plan.Shared
}

// ownedBy returns the part of plan.Own that is a pod's.
func ownedBy(plan *model.CPUPlan, uid string) []model.OwnCPUs {
	from := sort.Search(len(plan.Own), func(i int) bool { return plan.Own[i].UID >= uid })
	to := from
	for to < len(plan.Own) && plan.Own[to].UID == uid {
		to++
	}
	return plan.Own[from:to]
}

// plan says who has which CPUs.
func (r *round) plan() {
	plan := &model.CPUPlan{
		Node: r.online, Reserved: r.reserved, Exclusive: r.exclusive, Shared: r.pool.Minus(r.exclusive), Own: make([]model.OwnCPUs, 0, len(r.state.Allocations)),
	}
	for _, h := range r.state.Allocations {
		if h.Mode == model.CPUShare {
			plan.Share = plan.Share.Or(h.CPUs)
		}
		plan.Own = append(plan.Own, model.OwnCPUs{UID: h.UID, Container: h.Container, Mode: h.Mode, CPUs: h.CPUs})
	}
	r.result.CPUs = plan
	r.localMemory(plan)
}

// Settle says what a plan means for each cgroup, and notes in it where batch runs: on so many CPUs, 0 for all that are
// nobody's alone. There is no plan, nil, where nobody asks for CPUs.
//
// On v1 a container that is made gets its pod's list, and a list must fit within the one above it: only containers are
// told where to run, so that no container that somebody else gives CPUs can fail to start. On v2 what counts is what all
// lists down to a container allow; there it is enough to tell the pod, and what is made in it later is bound from its
// start. The QoS classes are told too, so that a pod that is new is bound before its own cgroup is found.
func Settle(n *model.Node, plan *model.CPUPlan, state *State, batch int) []model.Setting {
	if plan == nil {
		return nil
	}
	shared := plan.Shared
	if batch > 0 && batch < shared.Len() {
		plan.Batch = Batch(n.Topology, shared, plan.Exclusive, plan.Share, batch)
	}
	w := writer{
		n: n, v2: n.Tree.V2, plan: plan,
		shared: place{model.List(shared), model.Reason{Code: model.CPUsShared, Operands: []model.Operand{
			{Name: "node", Value: int64(plan.Node.Len()), Unit: model.UnitCPUs},
			{Name: "exclusive", Value: int64(plan.Exclusive.Len()), Unit: model.UnitCPUs},
		}}},
		batch: place{model.List(plan.Batch), model.Reason{Code: model.BatchCPUs, Operands: []model.Operand{{Name: "cpus", Value: int64(batch), Unit: model.UnitCPUs}}}},
	}
	w.settings = make([]model.Setting, 0, groups(&n.Tree))
	narrow := shared != plan.Node // otherwise everybody may run everywhere, as without us
	var classes [3]model.CPUSet
	if w.v2 && narrow {
		classes = w.classes()
	}
	for _, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || pod.Ended {
			continue
		}
		if own := ownedBy(plan, pod.UID); len(own) > 0 {
			w.pod(pod, group, own)
			continue
		}
		if n.Kubelet.StaticCPUs && pod.QoS == model.Guaranteed && ofKubelet(pod) {
			plan.Left = append(plan.Left, pod.UID)
			continue
		}
		_, once := slices.BinarySearch(state.Once, pod.UID)
		to, batch := w.shared, pod.Class == model.ClassBE && !plan.Batch.Empty()
		if batch {
			to = w.batch
		}
		if once || (narrow || batch) && !w.v2 {
			for _, name := range group.Containers {
				w.set(group.Dir+"/"+name, to)
			}
		}
		if w.v2 && (once || batch || narrow && classes[pod.QoS] != shared) {
			w.set(group.Dir, to)
		}
	}
	return w.settings
}

// groups returns how many cgroups there are to tell something at most.
func groups(tree *model.Tree) int {
	n := 0
	if tree.V2 {
		n += 2 + len(tree.Pods) // classes and pods
	}
	for _, group := range tree.Pods {
		n += len(group.Containers)
	}
	return n
}

// classes tells the QoS classes on v2 to keep off the CPUs that pods outside of them have alone, and returns where pods of
// each class may run. Guaranteed pods have no class above them but the root of all.
func (w *writer) classes() [3]model.CPUSet {
	var own [3]model.CPUSet // exclusive CPUs of the class's own pods
	unknown := w.plan.Exclusive
	for _, o := range w.plan.Own {
		if pod := model.FindPod(w.n.Pods, o.UID); pod != nil && o.Mode == model.CPUExclusive {
			own[pod.QoS] = own[pod.QoS].Or(o.CPUs)
			unknown = unknown.Minus(o.CPUs)
		}
	}
	var classes [3]model.CPUSet
	for _, q := range []model.QoSClass{model.Burstable, model.BestEffort} {
		// Whose pod is not known could be of any class.
		classes[q] = w.plan.Shared.Or(own[q]).Or(unknown)
		w.set(w.n.Tree.Class(q), place{model.List(classes[q]), model.Reason{Code: model.CPUsOfClass, Operands: []model.Operand{
			{Name: "own", Value: int64(own[q].Len()), Unit: model.UnitCPUs},
			{Name: "exclusive", Value: int64(w.plan.Exclusive.Len()), Unit: model.UnitCPUs},
		}}})
	}
	return classes
}

// place is a list of CPUs, and why it is that.
type place struct {
	value model.Value
	why   model.Reason
}

// writer gathers settings.
type writer struct {
	n             *model.Node
	v2            bool
	plan          *model.CPUPlan
	shared, batch place // of what has no CPUs of its own
	settings      []model.Setting
}

func (w *writer) set(dir string, to place) {
	w.settings = append(w.settings, model.Setting{File: model.File{Dir: dir, Knob: model.Cpuset}, Value: to.value, Reason: to.why})
}

// pod tells the cgroups of a pod that has CPUs of its own.
func (w *writer) pod(pod *model.Pod, group model.PodGroup, own []model.OwnCPUs) {
	var all model.CPUSet
	for _, o := range own {
		all = all.Or(o.CPUs)
	}
	for _, name := range group.Containers {
		set := of(w.plan, own, pod, containerOf(pod, name))
		w.set(group.Dir+"/"+name, w.place(own, set))
		if w.v2 {
			all = all.Or(set)
		}
	}
	if w.v2 {
		w.set(group.Dir, place{model.List(all), model.Reason{Code: model.CPUsOfPod, Operands: []model.Operand{{Name: "own", Value: int64(all.Len()), Unit: model.UnitCPUs}}}})
	}
}

func (w *writer) place(own []model.OwnCPUs, set model.CPUSet) place {
	if !slices.ContainsFunc(own, func(o model.OwnCPUs) bool { return o.CPUs == set }) {
		for _, p := range []place{w.batch, w.shared} {
			if p.value == model.List(set) {
				return p
			}
		}
	}
	code := model.CPUsExclusive
	if own[0].Mode == model.CPUShare {
		code = model.CPUsShare
	}
	return place{model.List(set), model.Reason{Code: code, Operands: []model.Operand{{Name: "own", Value: int64(set.Len()), Unit: model.UnitCPUs}}}}
}

// containerOf returns the name of the container whose cgroup has this name; "" if it is not known.
func containerOf(pod *model.Pod, name string) string {
	if c := cgroup.ContainerOf(pod, name); c != nil {
		return c.Name
	}
	return ""
}

// localMemory decides from which NUMA nodes the memory of new containers comes, for the pods that ask for it.
func (r *round) localMemory(plan *model.CPUPlan) {
	for _, pod := range r.n.Pods {
		if !pod.Annotations.LocalMemory {
			continue
		}
		own := ownedBy(plan, pod.UID)
		for i := range own {
			o := &own[i]
			limit := pod.MemoryLimit
			for k := range pod.Containers {
				if pod.Containers[k].Name == o.Container {
					limit = pod.Containers[k].MemoryLimit
				}
			}
			nodes, there := r.memoryOf(o.CPUs)
			if limit <= 0 || limit > there {
				r.notice(pod, model.Reason{Code: model.MemoryTooLarge, Operands: []model.Operand{
					{Name: "limit", Value: limit, Unit: model.UnitBytes}, {Name: "nodes", Value: there, Unit: model.UnitBytes},
				}, Fix: "set a memory limit that the NUMA nodes " + nodes.String() + " have"})
				continue
			}
			o.Memory = nodes
		}
	}
}

// memoryOf returns the NUMA nodes of CPUs, and the memory that these have together.
func (r *round) memoryOf(cpus model.CPUSet) (nodes model.CPUSet, memory int64) {
	for i := range r.n.Topology.CPUs {
		if cpu := &r.n.Topology.CPUs[i]; cpus.Has(cpu.ID) {
			nodes.Add(cpu.Node)
		}
	}
	for _, node := range r.n.Topology.Nodes {
		if nodes.Has(node.ID) {
			memory += node.Memory
		}
	}
	return nodes, memory
}

// wait leaves the pod's condition as it is: what it says will be known in a moment.
func (r *round) wait(p *model.Pod) {
	if p.CPUCondition.Reason != "" {
		r.condition(p, p.CPUCondition)
	}
}

// grant says in the pod's condition which CPUs it has.
func (r *round) grant(c *claim) {
	var parts []string
	for _, h := range c.base {
		part := h.CPUs.String()
		if h.Container != "" {
			part = h.Container + " " + part
		}
		parts = append(parts, part)
	}
	code := model.CPUsExclusive
	if c.mode == model.CPUShare {
		code = model.CPUsShare
	}
	r.condition(c.pod, model.PodCondition{Met: true, Reason: code, Message: strings.Join(parts, ", ")})
}

// report says in the pod's condition, and in an event, why it has no CPUs of its own.
func (r *round) report(p *model.Pod, mode model.CPUMode, why model.Reason) {
	why.Key, why.Text = "cpu-manager", string(mode)
	r.notice(p, why)
	r.condition(p, model.PodCondition{Reason: why.Code, Message: why.Details()})
}

func (r *round) notice(p *model.Pod, why model.Reason) {
	r.result.Notices = append(r.result.Notices, model.Notice{UID: p.APIUID, Namespace: p.Namespace, Name: p.Name, Reason: why})
}

func (r *round) condition(p *model.Pod, c model.PodCondition) {
	r.result.Conditions = append(r.result.Conditions, model.Condition{UID: p.APIUID, Namespace: p.Namespace, Name: p.Name, PodCondition: c})
}

// adopt gathers what a pod had before, when the state was lost, from what its cgroups were told: CPUs in exactly the
// number that it asks for, unless its condition says that it had none.
func adopt(n *model.Node, c *claim) []Allocation {
	if had := c.pod.CPUCondition; had.Reason != "" && !had.Met {
		return nil
	}
	group := n.Tree.Pods[c.pod.UID]
	var all []Allocation
	for _, w := range c.wants {
		for _, name := range group.Containers {
			file := model.File{Dir: group.Dir + "/" + name, Knob: model.Cpuset}
			owned := n.Wrote(file)
			if owned == nil || w.container != "" && containerOf(c.pod, path.Base(file.Dir)) != w.container {
				continue
			}
			set, err := model.ParseCPUs(owned.Ours.List)
			if err == nil && set.Len() == w.cpus {
				all = append(all, Allocation{UID: c.pod.UID, Container: w.container, Mode: c.mode, CPUs: set})
				break
			}
		}
	}
	return all
}

// above reports whether a directory is that of a pod or of a QoS class.
func above(n *model.Node, dir string) bool {
	if dir == n.Tree.Burstable || dir == n.Tree.BestEffort {
		return true
	}
	for _, group := range n.Tree.Pods {
		if group.Dir == dir {
			return true
		}
	}
	return false
}

// Release returns what a list of CPUs that we no longer decide goes back to: all CPUs that the kubelet lets containers run
// on. On v2 a list that once was written cannot be emptied again while processes run (ENOSPC), so there too it is a list. It
// has every CPU that may ever come: nobody would add the one that comes online, or that a parent allows again, later. v2
// takes those that are offline, v1 does not.
func Release(n *model.Node, o model.Owned) (model.Value, model.Reason) {
	if n.Topology == nil || n.Kubelet.StaticCPUs && !n.Kubelet.PoolKnown {
		return o.Theirs, model.Reason{Code: model.RecordedValue}
	}
	all := available(n)
	if n.Tree.V2 {
		all = all.Or(n.Topology.Possible)
	}
	if n.Kubelet.StaticCPUs && !(n.Tree.V2 && above(n, o.Dir)) {
		// The kubelet writes containers' lists again when its pool changes, and never those of pods and classes.
		all = all.Minus(n.Kubelet.TakenCPUs)
	}
	return model.List(all), model.Reason{Code: model.KubeletValue, Operands: []model.Operand{{Name: "node", Value: int64(all.Len()), Unit: model.UnitCPUs}}}
}
