package recorded

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	prometheus "github.com/prometheus/common/model"

	"github.com/waterline-io/waterline/internal/model"
)

type podName struct{ namespace, name string }

type podUsage struct {
	podName
	node        string // the last one
	kind, owner string // "" if not known
	request     model.Amount
	limit       int64
	cpu, memory []int32
}

// pinned reports whether a pod is on its node whatever the scheduler does.
func (p *podUsage) pinned() bool { return p.kind == "DaemonSet" || p.kind == "Node" }

func (r *reader) readPods(ctx context.Context) error {
	name, err := r.series(ctx, podCPU(), r.span(step), func(l prometheus.Metric, i int, v float64) {
		p := r.pod(l, true)
		put(p.cpu, i, v*milli)
		if node := r.nameOf(l); node != "" {
			p.node = node
		}
	})
	if err != nil {
		return err
	}
	if name == "" {
		if !slices.ContainsFunc(slices.Collect(maps.Values(r.nodes)), func(n *nodeUse) bool { return recorded(n.CPU) > 0 }) {
			return fmt.Errorf("%s has nothing about the CPU of pods and nodes%s: it must have one of %s", r.s.name,
				r.selected(), names(append(podCPU(), nodeCPU()...)))
		}
		r.note("The CPU of pods was not recorded (%s): pods are assumed that together use what nodes used.",
			names(podCPU()[:1]))
		return nil
	}
	memory, err := r.series(ctx, podMemory(), r.span(memoryStep), func(l prometheus.Metric, i int, v float64) {
		if p := r.pod(l, false); p != nil {
			put(p.memory, i, v*mib)
		}
	})
	if err == nil && memory == "" {
		r.note("The memory of pods was not recorded (%s): it is assumed from requests.", names(podMemory()[:1]))
	}
	return err
}

// pod returns the pod that labels name. Unless it may be new, it returns nil if none of this name used CPU.
func (r *reader) pod(l prometheus.Metric, may bool) *podUsage {
	name := podName{string(l["namespace"]), string(l["pod"])}
	p := r.pods[name]
	if p == nil && may {
		p = &podUsage{podName: name, cpu: blank(r.span(step).count), memory: blank(r.span(memoryStep).count)}
		r.pods[name] = p
	}
	return p
}

// readSpecs reads what pods request, and who owns them.
func (r *reader) readSpecs(ctx context.Context) error {
	if len(r.pods) == 0 {
		return nil
	}
	each := func(set func(p *podUsage, l prometheus.Metric, v float64)) func(prometheus.Metric, int, float64) {
		return func(l prometheus.Metric, _ int, v float64) {
			if p := r.pod(l, false); p != nil {
				set(p, l, v)
			}
		}
	}
	owners, err := r.series(ctx, podInfo(), r.span(time.Hour), each(func(p *podUsage, l prometheus.Metric, _ float64) {
		p.kind, p.owner = string(l["created_by_kind"]), string(l["created_by_name"])
		if node := string(l["node"]); node != "" {
			p.node = node
		}
	}))
	if err != nil {
		return err
	}
	if owners == "" {
		r.note("kube_pod_info was not recorded: workloads are guessed from the names of pods, and pods of DaemonSets count " +
			"like others.")
	}
	requests := 0
	for _, spec := range []struct {
		metrics []metric
		set     func(p *podUsage, l prometheus.Metric, v float64)
	}{
		{podRequests("cpu", "cores"), func(p *podUsage, _ prometheus.Metric, v float64) {
			p.request.CPU = max(p.request.CPU, int64(v*milli))
		}},
		{podRequests("memory", "bytes"), func(p *podUsage, _ prometheus.Metric, v float64) {
			p.request.Memory = max(p.request.Memory, int64(v))
		}},
		{podLimits("cpu", "cores"), func(p *podUsage, _ prometheus.Metric, v float64) {
			p.limit = max(p.limit, int64(v*milli))
		}},
	} {
		name, err := r.series(ctx, spec.metrics, r.span(time.Hour), each(spec.set))
		if err != nil {
			return err
		}
		if name != "" {
			requests++
		}
	}
	if requests == 0 {
		r.note("Requests were not recorded (%s): each pod is assumed to request the most that it used.",
			names(podRequests("cpu", "cores")[:1]))
		for _, p := range r.pods {
			p.request = model.Amount{
				CPU: max(int64(slices.Max(p.cpu)), 0), Memory: max(int64(slices.Max(p.memory)), 0) << 20,
			}
		}
	}
	return r.checkPods()
}

// checkPods returns an error if pods use or request more than any node has.
func (r *reader) checkPods() error {
	most := int64(0)
	for _, n := range r.nodes {
		most = max(most, n.Capacity.CPU)
	}
	for _, p := range r.pods {
		switch used := int64(slices.Max(p.cpu)); {
		case used > 2*most+milli:
			return fmt.Errorf("pod %s/%s used %d CPUs, and the largest node has %d: is %s in milli-cores? It must be in "+
				"seconds of CPU", p.namespace, p.name, used/milli, most/milli, podCPU()[0].name)
		case p.request.CPU > 2*most:
			return fmt.Errorf("pod %s/%s requests %d CPUs, and the largest node has %d: is %s in milli-cores? It must be in "+
				"CPUs", p.namespace, p.name, p.request.CPU/milli, most/milli, podRequests("cpu", "cores")[0].name)
		}
	}
	return nil
}

// trim leaves out the first days if little was recorded of them: predictors must not learn that nothing was used.
func (r *reader) trim() {
	counts := make([]int, r.Days)
	const each, eachMemory = int(day / step), int(day / memoryStep)
	count := func(series []int32) {
		for d := range counts {
			counts[d] += recorded(series[d*each : (d+1)*each])
		}
	}
	for _, n := range r.nodes {
		count(n.CPU)
	}
	for _, p := range r.pods {
		count(p.cpu)
	}
	first := slices.IndexFunc(counts, func(n int) bool { return 2*n >= counts[r.Days-1] })
	if first == 0 {
		return
	}
	r.note("Of %d days, only the last %d were recorded.", r.Days, r.Days-first)
	for _, n := range r.nodes {
		n.CPU, n.Memory = n.CPU[first*each:], n.Memory[first*eachMemory:]
	}
	for name, p := range r.pods {
		p.cpu, p.memory = p.cpu[first*each:], p.memory[first*eachMemory:]
		if recorded(p.cpu) == 0 {
			delete(r.pods, name)
		}
	}
	r.Days, r.begin = r.Days-first, r.begin.Add(time.Duration(first)*day)
}

// recording makes nodes and pods that can be simulated.
func (r *reader) recording() (*Recording, error) {
	r.trim()
	out := &Recording{From: r.s.name + r.selected(), Begin: r.begin, Days: r.Days}
	workloads := map[string][]*podUsage{}
	unknown, holes, of := 0, 0, 0
	for _, name := range slices.SortedFunc(maps.Keys(r.pods), func(a, b podName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	}) {
		p := r.pods[name]
		n := r.nodes[p.node]
		missed, lived := p.holes()
		holes, of = holes+missed, of+lived
		switch {
		case n == nil && p.pinned():
		case p.pinned():
			if latest(p.cpu) >= len(p.cpu)-int(time.Hour/step) { // it has not been replaced
				n.Pinned = n.Pinned.Plus(p.request)
			}
			if recorded(n.CPU) == 0 {
				n.sum(p, -1)
			}
		default:
			if n == nil {
				unknown++
			} else {
				n.sum(p, 1)
			}
			workloads[p.workload()] = append(workloads[p.workload()], p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(workloads)) {
		out.Pods = append(out.Pods, r.slots(name, workloads[name])...)
	}
	partly := 0
	for i := range out.Pods {
		if last := out.Pods[i].CPU; recorded(last[len(last)-int(day/step):]) < int(day/step)*9/10 {
			partly++
		}
		out.Pods[i].fill()
	}
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		n := r.nodes[name]
		missed := len(n.CPU) - recorded(n.CPU)
		if missed < len(n.CPU) {
			holes, of = holes+missed, of+len(n.CPU)
		}
		n.rest()
		out.Nodes = append(out.Nodes, n.Node)
	}
	if unknown > 0 {
		r.note("%d pods ran on nodes that were left out or are not known; they are simulated all the same.", unknown)
	}
	if partly > 0 {
		r.note("%d of %d pods ran for less than nine tenths of the day: they keep their requests all day, and use nothing "+
			"in the rest.", partly, len(out.Pods))
	}
	if holes > 0 {
		r.note("%d values of %d were missing; each repeats the value before it.", holes, of)
	}
	for _, w := range r.s.warnings {
		r.note("%s warns: %s", r.s.name, w)
	}
	out.Notes = r.notes
	return out, out.check()
}

// holes returns how many values are missing between the first and the last value, and how many that could be.
func (p *podUsage) holes() (missed, of int) {
	first := slices.IndexFunc(p.cpu, func(v int32) bool { return v != missing })
	if first < 0 {
		return 0, 0
	}
	of = latest(p.cpu) + 1 - first
	return of - recorded(p.cpu), of
}

// latest returns the index of the last value; -1 if there is none.
func latest(series []int32) int {
	for i := len(series) - 1; i >= 0; i-- {
		if series[i] != missing {
			return i
		}
	}
	return -1
}

// sum counts what a pod uses: with sign 1 that of a pod that is simulated itself, which is taken from the use of its
// node; with sign -1 that of a pinned pod, which is added to a node whose own use was not recorded.
func (n *nodeUse) sum(p *podUsage, sign int64) {
	if n.pods == nil {
		n.pods, n.podMemory = make([]int64, len(n.CPU)), make([]int64, len(n.Memory))
	}
	for i, v := range p.cpu {
		n.pods[i] += sign * int64(max(v, 0))
	}
	for i, v := range p.memory {
		n.podMemory[i] += sign * int64(max(v, 0))
	}
}

// rest leaves what is used beside pods that can move.
func (n *nodeUse) rest() {
	left := func(all []int32, pods []int64) {
		none := recorded(all) == 0
		for i := range pods {
			switch {
			case all[i] != missing:
				all[i] = int32(max(int64(all[i])-pods[i], 0))
			case none && pods[i] < 0: // only pinned pods were recorded
				all[i] = int32(-pods[i])
			}
		}
	}
	left(n.CPU, n.pods)
	left(n.Memory, n.podMemory)
}

// Endings that controllers give to names: the time of a run of a CronJob, a hash of a ReplicaSet's template, and the
// random end of a pod's name.
var (
	run    = regexp.MustCompile(`-[0-9]{8,}$`)
	hash   = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{6,10}$`)
	random = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
)

// workload returns the namespace and the name of what the pod belongs to.
func (p *podUsage) workload() string {
	name := p.owner
	switch p.kind {
	case "ReplicaSet":
		name = hash.ReplaceAllString(name, "")
	case "Job":
		name = run.ReplaceAllString(name, "")
	case "", "<none>":
		name = random.ReplaceAllString(p.name, "")
		if name != p.name {
			name = run.ReplaceAllString(hash.ReplaceAllString(name, ""), "")
		}
	}
	return strings.TrimPrefix(p.namespace+"/"+name, "/")
}

// slots makes one pod of pods that ran one after the other, as a replica whose pods were replaced. Pods that ran before
// the last day only are left out.
func (r *reader) slots(workload string, pods []*podUsage) []Pod {
	first := func(p *podUsage) int { return slices.IndexFunc(p.cpu, func(v int32) bool { return v != missing }) }
	slices.SortStableFunc(pods, func(a, b *podUsage) int { return cmp.Compare(first(a), first(b)) })
	var all []*Pod
	for _, p := range pods {
		begin := first(p)
		if begin < 0 {
			continue
		}
		at := slices.IndexFunc(all, func(s *Pod) bool { return latest(s.CPU) < begin })
		if at < 0 {
			all = append(all, &Pod{Name: workload, Request: p.request, Limit: p.limit, CPU: p.cpu, Memory: p.memory})
			continue
		}
		s := all[at]
		s.Request, s.Limit = p.request, p.limit
		for i, v := range p.cpu {
			s.CPU[i] = max(s.CPU[i], v)
		}
		for i, v := range p.memory {
			s.Memory[i] = max(s.Memory[i], v)
		}
	}
	var kept []Pod
	for _, s := range all {
		if latest(s.CPU) >= len(s.CPU)-int(day/step) {
			kept = append(kept, *s)
		}
	}
	return kept
}

// fill makes the time in which the pod did not run one in which it used nothing. Shorter holes stay.
func (p *Pod) fill() {
	for _, s := range []struct {
		values []int32
		most   int // missing values in a row that are a hole
	}{{p.CPU, 6}, {p.Memory, 1}} {
		if recorded(s.values) == 0 {
			continue
		}
		for i := 0; i < len(s.values); {
			end := i
			for end < len(s.values) && s.values[end] == missing {
				end++
			}
			if end-i > s.most {
				clear(s.values[i:end])
			}
			i = max(end, i+1)
		}
	}
}
