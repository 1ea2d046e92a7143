// Package node decides what one node should be like: it turns an observed node and its policy into a plan. It is pure:
// it has no I/O, no clock, no randomness and no Kubernetes types. So the agent, the simulator and "waterline explain"
// decide alike, and any round can be replayed.
//
// Each rule stands in a folder of its own below. Decide runs them in order and passes the result of one to the next.
package node

import (
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/contention"
	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/decide/node/evict"
	"github.com/waterline-io/waterline/internal/decide/node/memory"
	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/decide/node/privilege"
	"github.com/waterline-io/waterline/internal/decide/node/publish"
	"github.com/waterline-io/waterline/internal/decide/node/quota"
	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/decide/node/weight"
	"github.com/waterline-io/waterline/internal/model"
)

// Round is one round of decisions, with everything that it depends on: Decide(Node, Policy, State) returns Plan. The
// journal records rounds.
type Round struct {
	Node   model.Node
	Policy model.Policy
	State  State
	Plan   model.Plan
}

// Decide decides what this node should be like now. The same arguments always give the same result, and no argument is
// changed. The state is the one that the previous round returned.
func Decide(n model.Node, policy model.Policy, state State) (model.Plan, State) {
	return decide(n, policy, state, predict.Decide)
}

// predictor is [predict.Decide]. Transcripts use another one, which returns the peaks that they name.
type predictor func(n *model.Node, cpu, memory model.Use, s predict.State) (cpus, bytes [model.Horizons]model.Peak,
	next predict.State)

func decide(n model.Node, policy model.Policy, state State, ask predictor) (model.Plan, State) {
	var plan model.Plan
	var denied []model.Notice
	n.Pods, denied = privilege.Decide(n.Pods, &policy) // the other rules see only requests that count
	plan.Pods = n.Pods
	acts := n.PodsKnown && policy.Mode != model.ModeDisabled
	var cpus cpuset.Result
	if acts {
		cpus, state.CPUs = cpuset.Decide(&n, &policy, state.CPUs)
		plan.CPUs, plan.Conditions, plan.Next = cpus.CPUs, cpus.Conditions, cpus.Next
	}
	if policy.Mode == model.ModeDisabled {
		state.CPUs = cpuset.State{Known: true}
		state.Slack = slack.State{} // the room is not measured meanwhile: offers grow anew when the policy is enabled again
		state.Interference = nil
	}
	var contends contention.Result
	if n.PodsKnown && n.Load != nil && policy.Mode != model.ModeDisabled {
		contends, state = sell(&n, &policy, &plan, state, ask)
	}
	if acts {
		weights := weight.Decide(&n, &policy)
		plan.Settings, state.Quota = quota.Decide(weights.Settings, &n, &policy, quota.Others{
			Weighted: weights.Weighted, CPUs: plan.CPUs, Batch: plan.Suppress, Interference: plan.Interference,
			Slack: plan.Slack,
		}, state.Quota)
		plan.Settings = append(plan.Settings, cpuset.Settle(&n, plan.CPUs, &state.CPUs, plan.Suppress)...)
		plan.Settings = memory.Decide(plan.Settings, &n, &policy)
		var held []model.Setting
		held, plan.Reclaim, state.Memory = memory.Relieve(&n, &policy, plan.Slack, state.Memory)
		plan.Settings = append(plan.Settings, held...)
		plan.Notices = slices.Concat(annotationNotices(&n), denied, weights.Notices, cpus.Notices,
			interferenceNotices(&n, plan.Interference), evictNotices(&n, plan.Evict))
	}
	plan.Publish = publish.Decide(&n, &policy, plan.Slack, plan.Evict.HotFor())
	slices.SortFunc(plan.Settings, func(a, b model.Setting) int { return a.File.Compare(b.File) })

	if policy.Mode == model.ModeObserve {
		deferAll(plan.Settings, model.ObserveOnly)
		plan.Conditions = nil // they would show CPUs that the pods do not have
	}
	plan.Settings = release(&n, &policy, plan.Slack, plan.Settings)
	if n.Tree.ReadOnly {
		deferAll(plan.Settings, model.ReadOnlyMount)
	}
	for _, c := range n.Confined {
		if i, planned := slices.BinarySearchFunc(plan.Settings, c.File,
			func(s model.Setting, f model.File) int { return s.File.Compare(f) }); planned && plan.Settings[i].Value == c.To {
			continue // CPUs went offline, and this plan already accounts for it
		}
		notify(&n, &plan, c.Dir, model.Reason{
			Code: model.CPUsConfined, Key: c.Dir, Text: c.To.String(), Fix: "find out who set cpuset.cpus in the cgroups above",
		})
	}
	state = state.next(&n, &plan)
	wrong := setup(&n)
	if why, refused := state.refused(&n, &plan); refused {
		wrong = append(wrong, why)
	}
	for _, why := range wrong {
		plan.Notices = append(plan.Notices, model.Notice{Reason: why})
	}
	plan.Unsupported = append(wrong, unsupported(&n, &policy, &contends)...)
	report(&n, &policy, &plan, cpus.Room, wrong)
	var again time.Time
	if state.Publish, again = publish.Writes(&n, &plan.Publish, &plan.Report, state.Publish); !again.IsZero() {
		wake(&plan, again)
	}
	if plan.Report.Write && plan.Slack != nil {
		plan.Report.OtherCPU, plan.Report.OtherMemory = predict.OtherDays(&n, state.Peaks)
	}
	plan.Observe = observe(&n, &policy, &contends, &state)
	return plan, state
}

// restoreCheckInterval is the time between two checks whether every file that Enforce wrote is restored.
const restoreCheckInterval = 5 * time.Second

// report says what the NodeReport is to hold.
func report(n *model.Node, policy *model.Policy, plan *model.Plan, room *model.CPURoom, wrong []model.Reason) {
	plan.Report = model.Report{
		Policy: n.Ruling.Policy, Generation: n.Ruling.Generation, Mode: policy.Mode, Selling: n.Ruling.Selling,
		Slack: plan.Slack, CPUs: room, Hot: plan.Evict.HotFor().Code, Evict: plan.Evict.Requested(),
	}
	if left := len(n.Owned) + n.Foreign; policy.Mode != model.ModeEnforce && n.PodsKnown && left > 0 {
		plan.Report.Unrestored = int64(left)
		wake(plan, n.Now.Add(restoreCheckInterval))
	}
	if plan.Harm != nil && plan.Harm.Known {
		plan.Report.Harm = plan.Harm.Signal
	}
	if plan.Harm != nil {
		for _, why := range plan.Harm.Starved {
			if why.Code == model.SystemStarved { // what batch does to them is over within seconds
				plan.Report.Starved = append(plan.Report.Starved, why.Text+": "+why.Fix) // no number: each change is a write
			}
		}
	}
	if plan.Harm != nil && plan.Harm.Doubted {
		plan.Report.Unsupported = []model.Code{model.ServiceUnknown}
	}
	for _, reason := range wrong {
		plan.Report.Faults = append(plan.Report.Faults, reason.String())
	}
	for _, reason := range plan.Unsupported {
		plan.Report.Unsupported = append(plan.Report.Unsupported, reason.Code)
	}
}

// sell decides the offer, how much batch may use now, which batch pod is throttled and which is evicted.
func sell(
	n *model.Node, policy *model.Policy, plan *model.Plan, state State, ask predictor,
) (contention.Result, State) {
	var own []model.OwnCPUs
	if plan.CPUs != nil {
		own = slices.Concat(plan.CPUs.Own, plan.CPUs.Pinned)
	}
	effective := memory.Unsupported(n, policy).Code == ""
	cpus, bytes := slack.Tally(n, own, func(pod *model.Pod) bool { return effective && memory.Protects(pod, policy) })
	var peaks slack.Peaks
	peaks.CPU, peaks.Memory, state.Peaks = ask(n, cpus, bytes, state.Peaks)
	var next time.Time
	plan.Slack, state.Slack, next = slack.Decide(n, policy, cpus, bytes, peaks, state.Slack)
	if !next.IsZero() {
		wake(plan, next)
	}
	var contends contention.Result
	contends, state.Contention = contention.Decide(n, policy, plan.Slack, plan.CPUs, state.Contention)
	plan.Batch, plan.Harm, plan.Suppress = contends.Batch, contends.Harm, contends.Limit
	state.Interference = searchInterference(n, policy, plan, contends.Lacked, state.Interference)
	plan.Evict, state.Evict = evict.Decide(n, policy, evict.Others{
		Slack: plan.Slack, Suppress: plan.Suppress, Interference: plan.Interference, Limited: limited(n, policy, &state),
	}, state.Evict)
	return contends, state
}

// limited reports whether memory for batch was short in the previous round, and batch pods were limited and reclaimed
// from as far as the policy allows.
func limited(n *model.Node, policy *model.Policy, state *State) bool {
	return policy.Protect.Memory && state.Memory.Short && memory.Unsupported(n, policy).Code == ""
}

// evictNotices reports to the owner of a pod that its eviction is requested, or that it stalls, and why.
func evictNotices(n *model.Node, e *model.Evictions) []model.Notice {
	if e == nil {
		return nil
	}
	var notices []model.Notice
	for _, s := range e.Stalls {
		pod := model.FindPod(n.Pods, s.UID)
		notices = append(notices, model.Notice{UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, Reason: s.Reason})
	}
	if e.Request == nil {
		return notices
	}
	return append(notices, model.Notice{
		UID: e.Request.UID, Namespace: e.Request.Namespace, Name: e.Request.Name, Reason: e.Request.Reason,
	})
}

// unsupported returns the features of the policy that this kernel does not support.
func unsupported(n *model.Node, policy *model.Policy, contends *contention.Result) []model.Reason {
	tree := &n.Tree
	if policy.Mode == model.ModeDisabled {
		return nil
	}
	var all []model.Reason
	if tree.NoBurst && policy.Protect.Burst {
		all = append(all, model.Reason{Code: model.NoBurst, Fix: "needs Linux 5.14"})
	}
	if tree.NoIdle && policy.Weight.Batch == model.BatchByIdle {
		all = append(all, model.Reason{Code: model.NoIdle, Fix: "needs Linux 5.15"})
	}
	if tree.NoIdentity != "" && policy.Weight.Batch == model.BatchByIdentity {
		all = append(all, model.Reason{Code: model.NoGroupIdentity, Fix: tree.NoIdentity})
	}
	if contends.NoSignal {
		all = append(all, model.Reason{
			Code: model.NoPressure, Fix: "set the chart's value paths.proc, or use cgroup v2 with psi=1",
		})
	}
	if policy.Suppress.On() && contends.Batch.Running && contention.LacksCPUSets(n) {
		why := model.Reason{Code: model.NoCPUSets, Fix: "see the agent's log: the topology of this machine could not be read"}
		if tree.NoCpusets {
			why.Fix = "enable the cpuset controller for the kubelet's cgroup"
		}
		all = append(all, why)
	}
	if why := memory.Unsupported(n, policy); why.Code != "" {
		all = append(all, why)
	} else if tree.NoReclaim && policy.Protect.Memory {
		all = append(all, model.Reason{Code: model.NoReclaim, Fix: "needs Linux 5.19"})
	}
	return all
}

// annotationNotices reports the annotations that cannot be used.
func annotationNotices(n *model.Node) []model.Notice {
	var notices []model.Notice
	for _, pod := range n.Pods {
		for _, reason := range pod.Annotations.Notices {
			notices = append(notices, model.Notice{UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, Reason: reason})
		}
	}
	return notices
}

// deferAll marks every setting as one that is not written now.
func deferAll(settings []model.Setting, why model.Code) {
	reason := &model.Reason{Code: why}
	for i := range settings {
		settings[i].Deferred = reason
	}
}

// release adds settings that restore the files that Waterline owns and no rule sets any more, or whose settings are
// only observed. Settings and n.Owned are both ordered by file.
//
// While the pods are not known, the policies of the cluster are not known either, and the mode is the default: every
// file stays as it is. While they are known from an earlier agent only, files that no rule sets stay: the last requests
// may be missing. While nothing is measured, the limits of batch stay: an agent that was killed may have set them after
// it last saved its state.
func release(n *model.Node, policy *model.Policy, left *model.Slack, settings []model.Setting) []model.Setting {
	planned := len(settings)
	var pods map[string]*model.Pod
	enforce := policy.Mode == model.ModeEnforce
	unknown := (!n.PodsKnown || n.PodsKept) && policy.Mode != model.ModeDisabled
	blind := enforce && n.PodsKnown && (policy.Suppress.On() || policy.Protect.Interference) &&
		(left == nil || !left.CPU.Use.Measured)
	if blind {
		pods = podsByDir(n)
	}
	for _, o := range n.Owned {
		i, isPlanned := slices.BinarySearchFunc(settings[:planned], o.File,
			func(s model.Setting, f model.File) int { return s.File.Compare(f) })
		s := model.Setting{File: o.File, Value: o.Ours, Reason: model.Reason{Code: model.LastKnown}}
		switch {
		case enforce && isPlanned && n.PodsKept:
			continue
		case unknown, blind && keepsBatch(o, podOf(pods, o.Dir)):
		case enforce && isPlanned:
			continue
		default:
			if pods == nil {
				pods = podsByDir(n)
			}
			s = giveBack(n, o, podOf(pods, o.Dir))
		}
		if isPlanned {
			settings[i] = s
		} else {
			settings = append(settings, s)
		}
	}
	if len(settings) > planned {
		slices.SortFunc(settings, func(a, b model.Setting) int { return a.File.Compare(b.File) })
	}
	return settings
}

// Leave returns what an agent must undo before it stops, because no other process would: it lifts the limits from which
// the kernel reclaims (memory.high), which would slow batch down for as long as no agent runs.
func Leave(owned []model.Owned) model.Plan {
	var plan model.Plan
	for _, o := range owned {
		if o.Knob == model.MemoryHigh {
			plan.Settings = append(plan.Settings, giveBack(&model.Node{}, o, nil))
		}
	}
	return plan
}

// giveBack returns the setting that restores a file.
func giveBack(n *model.Node, o model.Owned, pod *model.Pod) model.Setting {
	s := model.Setting{File: o.File, Release: true}
	switch o.Knob {
	case model.Quota, model.Burst:
		s.Value, s.Reason = quota.Release(n, o, pod)
	case model.MemoryMax, model.MemoryMin, model.MemoryLow, model.MemoryHigh:
		s.Value, s.Reason = memory.Release(n, o, pod)
	case model.Cpuset:
		s.Value, s.Reason = cpuset.Release(n, o)
	default:
		s.Value, s.Reason = weight.Release(n, o, pod)
	}
	return s
}

// keepsBatch reports whether a file may be one by which a batch pod is limited.
func keepsBatch(o model.Owned, pod *model.Pod) bool {
	return (o.Knob == model.Quota || o.Knob == model.Cpuset) && pod != nil && pod.Class == model.ClassBE
}

func podsByDir(n *model.Node) map[string]*model.Pod {
	pods := make(map[string]*model.Pod, len(n.Pods))
	for _, pod := range n.Pods {
		if group, exists := n.Tree.Pods[pod.UID]; exists {
			pods[group.Dir] = pod
		}
	}
	return pods
}

// podOf returns the pod that a directory belongs to, as its cgroup or as a container's; nil if there is none.
func podOf(pods map[string]*model.Pod, dir string) *model.Pod {
	if pod := pods[dir]; pod != nil {
		return pod
	}
	if i := strings.LastIndexByte(dir, '/'); i > 0 {
		return pods[dir[:i]]
	}
	return nil
}
