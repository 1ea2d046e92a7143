package cpuset

import (
	"path"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Of returns the CPUs for a container of a pod. An init container, which ends before the others start, has the CPUs
// of all of them. A pod that is not known yet (nil) has none of its own.
func Of(plan *model.CPUPlan, pod *model.Pod, container string) model.CPUSet {
	if pod == nil {
		return plan.Shared
	}
	return of(plan, ownedBy(plan, pod.UID), pod, container)
}

// of is [Of] for a known part of plan.Own.
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
	return union // also for an unknown container, such as the sandbox
}

// others returns the CPUs for containers of the pod without their own.
func others(plan *model.CPUPlan, pod *model.Pod) model.CPUSet {
	if pod.Class == model.ClassBE && !plan.Batch.Empty() {
		return plan.Batch
	}
	return plan.Shared
}

// ownedBy returns the part of plan.Own for a pod, and pinnedBy that of plan.Pinned.
func ownedBy(plan *model.CPUPlan, uid string) []model.OwnCPUs  { return partOf(plan.Own, uid) }
func pinnedBy(plan *model.CPUPlan, uid string) []model.OwnCPUs { return partOf(plan.Pinned, uid) }

func partOf(all []model.OwnCPUs, uid string) []model.OwnCPUs {
	return model.AllByUID(all, uid, func(o *model.OwnCPUs) string { return o.UID })
}

// plan sets the CPU plan in the result.
func (r *round) plan() {
	plan := &model.CPUPlan{
		Node: r.online, Reserved: r.reserved, Exclusive: r.exclusive, Shared: r.pool.Minus(r.exclusive),
		Own: make([]model.OwnCPUs, 0, len(r.state.Allocations)), NotBatch: r.notBatch, Isolated: r.isolated,
		Pinned: r.pinned,
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

// Settle returns the settings of cpuset.cpus for a plan. It also sets the CPUs of batch in the plan, as limit says: nil
// means all shared CPUs. plan is nil if no pod requests CPUs, and batch is not limited to some.
//
// On v1 a new container gets its pod's list, and a list must lie within the list of its parent. So only containers
// get lists there; otherwise a container with CPUs from another writer could fail to start. On v2 the effective CPUs
// are the intersection of all lists down to the container. There the pod's list is enough, and it applies to later
// containers from their start. The QoS classes get lists too, which apply to a new pod before its own cgroup is
// found.
func Settle(n *model.Node, plan *model.CPUPlan, state *State, limit *model.Suppression) []model.Setting {
	if plan == nil {
		return nil
	}
	shared, narrow := plan.Shared, plan.Narrow() // not narrow: all pods may use all CPUs, as without Waterline
	usable := shared.Minus(plan.NotBatch)
	if usable.Empty() {
		usable = shared
	}
	batch := limit.OnCPUs()
	switch {
	case batch == 0, batch >= usable.Len() && (usable == plan.Node || narrow && usable == shared): // all shared CPUs
	case limit.Cores:
		plan.Batch = BatchCores(n.Topology, usable, plan.Exclusive, plan.Share, batch)
		batch = plan.Batch.Len()
	default:
		plan.Batch = Batch(n.Topology, usable, plan.Exclusive, plan.Share, batch)
	}
	w := writer{
		n: n, v2: n.Tree.V2, plan: plan,
		shared: place{model.List(shared), model.Reason{Code: model.CPUsShared, Operands: []model.Operand{
			{Name: "node", Value: int64(plan.Node.Len()), Unit: model.UnitCPUs},
			{Name: "exclusive", Value: int64(plan.Exclusive.Len()), Unit: model.UnitCPUs},
		}}},
		batch: place{model.List(plan.Batch), model.Reason{Code: model.BatchCPUs, Operands: []model.Operand{
			{Name: "cpus", Value: int64(batch), Unit: model.UnitCPUs},
		}}},
	}
	w.settings = make([]model.Setting, 0, groups(&n.Tree))
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
		if n.Kubelet.StaticCPUs && pod.QoS == model.Guaranteed && ofKubelet(pod) || len(pinnedBy(plan, pod.UID)) > 0 {
			plan.Left = append(plan.Left, pod.UID)
			continue
		}
		_, once := slices.BinarySearch(state.Once, pod.UID)
		to, batch := w.shared, pod.Class == model.ClassBE && !plan.Batch.Empty()
		if batch {
			to = w.batch
		}
		if once || (narrow || batch) && !w.v2 {
			for j := range group.Containers {
				w.set(group.Path(j), to)
			}
		}
		if w.v2 && (once || batch || narrow && classes[pod.QoS] != shared) {
			w.set(group.Dir, to)
		}
	}
	return w.settings
}

// groups returns the maximum number of cgroups with a setting.
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

// classes sets the lists of the QoS classes on v2 to all CPUs except the exclusive ones of pods in other classes, and
// returns the lists. Guaranteed pods have no class of their own; their parent is the root of all pods.
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
		// The pod of these CPUs is not known and may be of any class.
		classes[q] = w.plan.Shared.Or(own[q]).Or(unknown)
		why := model.Reason{Code: model.CPUsOfClass, Operands: []model.Operand{
			{Name: "own", Value: int64(own[q].Len()), Unit: model.UnitCPUs},
			{Name: "exclusive", Value: int64(w.plan.Exclusive.Len()), Unit: model.UnitCPUs},
		}}
		w.set(w.n.Tree.Class(q), place{model.List(classes[q]), why})
	}
	return classes
}

// place is a list of CPUs and its reason.
type place struct {
	value model.Value
	why   model.Reason
}

// writer collects settings.
type writer struct {
	n             *model.Node
	v2            bool
	plan          *model.CPUPlan
	shared, batch place // for containers without their own CPUs
	settings      []model.Setting
}

func (w *writer) set(dir string, to place) {
	file := model.File{Dir: dir, Knob: model.Cpuset}
	w.settings = append(w.settings, model.Setting{File: file, Value: to.value, Reason: to.why})
}

// pod appends the settings of a pod with its own CPUs.
func (w *writer) pod(pod *model.Pod, group model.PodGroup, own []model.OwnCPUs) {
	var all model.CPUSet
	for _, o := range own {
		all = all.Or(o.CPUs)
	}
	for j, name := range group.Containers {
		set := of(w.plan, own, pod, containerOf(pod, name))
		w.set(group.Path(j), w.place(own, set))
		if w.v2 {
			all = all.Or(set)
		}
	}
	if w.v2 {
		w.set(group.Dir, place{model.List(all), ownReason(model.CPUsOfPod, all)})
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
	return place{model.List(set), ownReason(code, set)}
}

// containerOf returns the name of the container with this cgroup name; "" if it is not known.
func containerOf(pod *model.Pod, name string) string {
	if c := cgroup.ContainerOf(pod, name); c != nil {
		return c.Name
	}
	return ""
}

// localMemory sets the NUMA nodes for the memory of new containers of the pods that request local memory.
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
					{Name: "limit", Value: limit, Unit: model.UnitBytes},
					{Name: "nodes", Value: there, Unit: model.UnitBytes},
				}, Fix: "set a memory limit that the NUMA nodes " + nodes.String() + " have"})
				continue
			}
			o.Memory = nodes
		}
	}
}

// memoryOf returns the NUMA nodes of CPUs, and their total memory.
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

// wait keeps the pod's condition: its new value will be known in a moment.
func (r *round) wait(p *model.Pod) {
	if p.CPUCondition.Reason != "" {
		r.condition(p, p.CPUCondition)
	}
}

// grant sets the pod's condition to the CPUs that it has.
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

// report sets the pod's condition to the reason why it has no own CPUs, and adds an event.
func (r *round) report(p *model.Pod, mode model.CPUMode, why model.Reason) {
	why.Key, why.Text = "cpu-manager", string(mode)
	r.notice(p, why)
	r.condition(p, model.PodCondition{Reason: why.Code, Message: why.Details()})
}

func (r *round) notice(p *model.Pod, why model.Reason) {
	r.result.Notices = append(r.result.Notices, model.Notice{
		UID: p.APIUID, Namespace: p.Namespace, Name: p.Name, Reason: why,
	})
}

func (r *round) condition(p *model.Pod, c model.PodCondition) {
	r.result.Conditions = append(r.result.Conditions, model.Condition{
		UID: p.APIUID, Namespace: p.Namespace, Name: p.Name, PodCondition: c,
	})
}

// adopt reads the assignment of a pod from its cgroups after the state was lost: lists with exactly the requested
// number of CPUs. It skips a pod whose condition says that it had none.
func adopt(n *model.Node, c *claim) []Allocation {
	if had := c.pod.CPUCondition; had.Reason != "" && !had.Met {
		return nil
	}
	group := n.Tree.Pods[c.pod.UID]
	var all []Allocation
	for _, w := range c.wants {
		for j := range group.Containers {
			file := model.File{Dir: group.Path(j), Knob: model.Cpuset}
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

// above reports whether a directory belongs to a pod or a QoS class.
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

// Release returns the value that an owned CPU list returns to: all CPUs on which the kubelet lets containers run. On
// v2 a list that was written cannot be emptied while processes run (ENOSPC), so it stays a list there too. The list
// contains every CPU that may appear later, because no writer would add a CPU that comes online or that a parent
// allows again. v2 accepts offline CPUs in a list, v1 does not.
func Release(n *model.Node, o model.Owned) (model.Value, model.Reason) {
	if n.Topology == nil || n.Kubelet.StaticCPUs && !n.Kubelet.PoolKnown {
		return o.Theirs, model.Reason{Code: model.RecordedValue}
	}
	all := available(n)
	if n.Tree.V2 {
		all = all.Or(n.Topology.Possible)
	}
	if n.Kubelet.StaticCPUs && !(n.Tree.V2 && above(n, o.Dir)) {
		// The kubelet rewrites the lists of containers when its pool changes, but never those of pods and classes.
		all = all.Minus(n.Kubelet.TakenCPUs)
	}
	return model.List(all), model.Reason{Code: model.KubeletValue, Operands: []model.Operand{
		{Name: "node", Value: int64(all.Len()), Unit: model.UnitCPUs},
	}}
}

// ownReason returns a reason with the number of CPUs.
func ownReason(code model.Code, set model.CPUSet) model.Reason {
	return model.Reason{Code: code, Operands: []model.Operand{
		{Name: "own", Value: int64(set.Len()), Unit: model.UnitCPUs},
	}}
}
