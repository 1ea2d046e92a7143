package metrics

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// figures are the measurements and decisions of the last ten minutes, second by second.
type figures struct {
	at          timeline
	availCPU    series // cores
	availMemory series // bytes
	suppressed  series // cores
	lacking     series // cores
	runnable    series // tasks
	stolen      series // cores
	throttled   series // share of the CFS periods of online pods in which their quota throttled them
	cpu         [len(users)]series
	memory      [len(users)]series
	pressure    [len(pressed)][len(stalls)]series
}

// users are the consumers of a node's resources, as the metrics name them.
var users = [...]string{"node", "system", "LSE", "LSR", "LS", "BE", "unknown"}

// The users that are not classes of pods.
const (
	userNode = iota
	userSystem
	firstClass
	userUnknown = len(users) - 1
)

// pressed are the groups whose pressure is shown: the machine, and the cgroups of the kubelet's QoS classes. The first
// of these contains all pods.
var pressed = [...]string{"node", "pods", "burstable", "besteffort"}

// stalls are the resources that tasks wait for.
var stalls = [...]struct{ resource, tasks string }{
	{"cpu", "some"}, {"cpu", "full"}, {"memory", "some"}, {"memory", "full"}, {"io", "some"}, {"io", "full"},
}

// maxSecondAge is the age up to which a measurement belongs to this second.
const maxSecondAge = 1500 * time.Millisecond

// note records one measurement and the decisions that rest on it.
func (f *figures) note(l *model.Load, pods []*model.Pod, plan *model.Plan) {
	slack := plan.Slack
	if !f.at.add(l.Clock) {
		return
	}
	if slack != nil {
		f.availCPU.put(&f.at, float64(slack.CPU.Allow)/1000)
		f.availMemory.put(&f.at, float64(slack.Memory.Allow))
		f.suppressed.put(&f.at, float64(suppressed(slack, plan.Suppress))/1000)
	}
	if plan.Harm != nil && plan.Harm.Known {
		f.lacking.put(&f.at, float64(plan.Harm.Milli)/1000)
	}
	f.runnable.put(&f.at, float64(l.Runnable))
	if at := l.Node.CPU.At; at != 0 && l.Age(at) <= maxSecondAge {
		f.stolen.put(&f.at, float64(l.Stolen)/1000)
	}
	f.use(l, pods)
	for i, p := range []*model.Pressure{
		&l.Node.Pressure, &l.Classes[model.Guaranteed].Pressure, &l.Classes[model.Burstable].Pressure,
		&l.Classes[model.BestEffort].Pressure,
	} {
		if p.At == 0 || l.Age(p.At) > maxSecondAge {
			continue
		}
		for j, part := range []int64{p.CPU.Some, p.CPU.Full, p.Memory.Some, p.Memory.Full, p.IO.Some, p.IO.Full} {
			f.pressure[i][j].put(&f.at, float64(part)/1000)
		}
	}
}

// suppressed returns the CPU that batch pods request, as batch CPU or as CPU, and may not use now, in milli-cores.
func suppressed(slack *model.Slack, suppress *model.Suppression) int64 {
	if suppress == nil {
		return 0
	}
	a := &slack.CPU
	return max(a.Bound.Mid+a.Bound.Batch+a.Use.Unsold-suppress.Milli, 0)
}

// use sums up the usage of each user. A stale measurement leaves a gap in its user's figures, and in those that are
// computed as a difference from the whole. A difference may be below 0 in a second, because the kernel counts idle time
// in steps of 10 ms. It is kept: without those seconds the mean of the others would be too high.
func (f *figures) use(l *model.Load, pods []*model.Pod) {
	var cpu, memory [len(users)]float64
	var periods, throttled int64
	put := func(to *[len(users)]float64, user int, value int64, at time.Duration, oldest time.Duration) {
		if at == 0 || l.Age(at) > oldest {
			to[user] = math.NaN()
			if user != userNode {
				to[userUnknown] = math.NaN()
			}
			return
		}
		to[user] += float64(value)
	}
	all := &l.Classes[model.Guaranteed]
	// The memory of online pods is measured each fifth second.
	const slowly = 15 * time.Second
	put(&cpu, userNode, l.Node.CPU.Milli, l.Node.CPU.At, maxSecondAge)
	put(&memory, userNode, l.Node.Memory.WorkingSet, l.Node.Memory.At, maxSecondAge)
	put(&cpu, userUnknown, all.CPU.Milli, all.CPU.At, maxSecondAge)
	put(&memory, userUnknown, all.Memory.WorkingSet, all.Memory.At, maxSecondAge)
	cpu[userSystem] += cpu[userNode] - cpu[userUnknown]
	memory[userSystem] += memory[userNode] - memory[userUnknown]
	for i := range l.Pods {
		u := &l.Pods[i]
		pod := model.FindPod(pods, u.UID)
		if pod == nil || u.CPU.At == 0 {
			continue
		}
		user := userOf(pod.Class)
		put(&cpu, user, u.CPU.Milli, u.CPU.At, maxSecondAge)
		cpu[userUnknown] -= float64(u.CPU.Milli)
		if u.Memory.At != 0 {
			put(&memory, user, u.Memory.WorkingSet, u.Memory.At, slowly)
			memory[userUnknown] -= float64(u.Memory.WorkingSet)
		}
		if pod.Class.Online() {
			periods += u.CPU.Periods
			throttled += u.CPU.Throttled
		}
	}
	for i := range users {
		f.cpu[i].put(&f.at, cpu[i]/1000)
		f.memory[i].put(&f.at, memory[i])
	}
	f.throttled.put(&f.at, float64(throttled)/float64(max(periods, 1)))
}

func userOf(c model.Class) int {
	if c == model.ClassSystem {
		return userSystem
	}
	if i := slices.Index(users[firstClass:userUnknown], string(c)); i >= 0 {
		return firstClass + i
	}
	return userUnknown
}

// collect makes the metrics of the figures.
func (f *figures) collect(now time.Duration, metric emit) {
	for _, w := range windows {
		show := func(s *series, name, help string, labels ...string) {
			if mean, ok := s.mean(&f.at, now, w.length); ok {
				metric(prometheus.GaugeValue, name, help, max(mean, 0), append(labels, "window", w.name)...)
			}
		}
		show(&f.availCPU, v1alpha1.MetricBatchCPUAvailable,
			"CPU that online pods leave for batch under the waterline, the mean over a window.")
		show(&f.availMemory, v1alpha1.MetricBatchMemoryAvailable, "Memory that batch may use, the mean over a window.")
		show(&f.suppressed, v1alpha1.MetricBatchCPUSuppressed,
			"CPU that batch pods request and may not use now, the mean over a window.")
		show(&f.lacking, v1alpha1.MetricOnlineCPULacking,
			"CPU that online pods lack because of batch, the mean over a window.")
		show(&f.runnable, v1alpha1.MetricRunnable, "Tasks that run or wait for a CPU, the mean over a window.")
		show(&f.stolen, v1alpha1.MetricCPUStolen, "CPU that the hypervisor gave to others, the mean over a window.")
		show(&f.throttled, v1alpha1.MetricThrottled,
			"Share of the CFS periods of online pods in which their quota throttled them.")
		for i, class := range users {
			show(&f.cpu[i], v1alpha1.MetricCPUUsed, "CPU in use, by class of pods.", "class", class)
			show(&f.memory[i], v1alpha1.MetricMemoryUsed, "Working set, by class of pods.", "class", class)
		}
		for i, group := range pressed {
			for j, of := range stalls {
				show(&f.pressure[i][j], v1alpha1.MetricPressure, "Share of the time in which tasks waited (PSI).", "group", group,
					"resource", of.resource, "tasks", of.tasks)
			}
		}
	}
}

// waited returns the node's own pressure as the means of a minute; nil if one of them is missing.
func (f *figures) waited(now time.Duration) *model.NodePressure {
	var w model.NodePressure
	for j, to := range map[int]*int64{0: &w.CPU, 2: &w.Memory, 4: &w.IO} { // some tasks, as in stalls
		mean, ok := f.pressure[0][j].mean(&f.at, now, time.Minute)
		if !ok {
			return nil
		}
		*to = min(max(int64(math.Round(1000*mean)), 0), 1000)
	}
	return &w
}

// accounts makes the metrics of the offer and of what it is computed from.
func accounts(slack *model.Slack, metric emit) {
	if slack == nil {
		return
	}
	for _, of := range []struct {
		resource                                    string
		account                                     *model.Account
		one                                         float64
		capacity, ceiling, offer, room, bound, peak string
	}{
		{
			"cpu", &slack.CPU, 1000, v1alpha1.MetricCPUCapacity, v1alpha1.MetricCPUCeiling, v1alpha1.MetricCPUOffer,
			v1alpha1.MetricCPURoom, v1alpha1.MetricCPUBound, v1alpha1.MetricCPUPeak,
		},
		{
			"memory", &slack.Memory, 1, v1alpha1.MetricMemoryCapacity, v1alpha1.MetricMemoryCeiling, v1alpha1.MetricMemoryOffer,
			v1alpha1.MetricMemoryRoom, v1alpha1.MetricMemoryBound, v1alpha1.MetricMemoryPeak,
		},
	} {
		gauge := func(name, help string, value float64, labels ...string) {
			metric(prometheus.GaugeValue, name, help, value, labels...)
		}
		a := of.account
		gauge(of.capacity, "Capacity of the machine.", float64(a.Capacity)/of.one)
		gauge(of.ceiling, "Capacity times waterline: up to there the node is filled.", float64(a.Ceiling)/of.one)
		gauge(v1alpha1.MetricMeasurementAge, "Age of the oldest measurement that the offer rests on.", a.Use.Age.Seconds(),
			"resource", of.resource)
		for tier, amounts := range map[model.Tier][3]int64{
			model.TierMid: {a.Offer.Mid, a.Room.Mid, a.Bound.Mid}, model.TierBatch: {a.Offer.Batch, a.Room.Batch, a.Bound.Batch},
		} {
			gauge(of.offer, "The offer, requests of bound pods included.", float64(amounts[0])/of.one, "tier", string(tier))
			gauge(of.room, "What could be sold now, requests of bound pods included.", float64(amounts[1])/of.one, "tier",
				string(tier))
			gauge(of.bound, "Requests of the pods on this node.", float64(amounts[2])/of.one, "tier", string(tier))
		}
		for h := range a.Peaks {
			p, horizon := &a.Peaks[h], []string{"1h", "24h"}[h]
			gauge(v1alpha1.MetricPredictionKnown, "1 if enough is known to predict, else 0.", flag(p.Known), "resource",
				of.resource, "horizon", horizon)
			gauge(of.peak, "Predicted peak of the online pods.", float64(min(p.Value, a.Capacity))/of.one, "horizon", horizon)
			if p.Checked > 0 {
				gauge(v1alpha1.MetricPredictionMissed, "Share of past predictions that were exceeded.", float64(p.Missed)/1000,
					"resource", of.resource, "horizon", horizon)
			}
		}
	}
}
