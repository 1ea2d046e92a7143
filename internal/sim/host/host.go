// Package host is a machine whose online pods use what a trace says, as the agent would measure it.
package host

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/trace"
)

// Host is one machine. A trace has means of a minute or more; what is used from second to second wanders around them.
type Host struct {
	Capacity model.Amount
	// Noise is by how much the use of a second differs from the trace's mean, as a share of that mean: the standard
	// deviation.
	Noise float64
	More  float64 // used beside what the trace says, as a share of the capacity; may be negative
	State node.State
	// Object and Ruling are what the API shows of the machine's Node.
	Object model.NodeObject
	Ruling model.Ruling
	Writes model.APIWrites

	trace  *trace.Machine
	shares []float64 // of the limit, used at each time of the trace
	begin  int64     // time of the trace at which the machine starts
	random *rand.Rand
	wander float64 // what the noise is now, in standard deviations

	measured time.Duration // after the start, last
	load     model.Load
}

// lasting is how much of the noise of a second there is in that of the next: it fades with a time constant of 10 s, as
// requests that take their time do.
const lasting = 0.905

// flat is what is used of the memory where the trace does not say: half. Machines of the traces are full of batch and of
// page cache; what they use is moved down so that there is something to sell, and keeps its ups and downs.
const flat = 0.5

// New returns a machine at some time of a trace, in seconds after the trace's begin. The same seed makes the same noise.
func New(m *trace.Machine, capacity model.Amount, start int64, seed uint64) *Host {
	h := &Host{Capacity: capacity, trace: m, shares: m.Total(), random: rand.New(rand.NewPCG(seed, 7))}
	for i := range h.shares {
		h.shares[i] /= m.Limit()
	}
	h.begin = m.Times[0] + start
	return h
}

// Clone returns a machine like this one, whose noise goes on differently.
func (h *Host) Clone(seed uint64) *Host {
	c := *h
	c.random = rand.New(rand.NewPCG(seed, 8))
	return &c
}

// Learn has the machine's predictors see what it used before its start, at most a week of it. The start is at a time of the
// wall clock.
func (h *Host) Learn(start time.Time) {
	var cpu, memory predict.Predictor
	last := sort.Search(len(h.trace.Times), func(i int) bool { return h.trace.Times[i] >= h.begin })
	for i := range last {
		at := start.Add(-time.Duration(h.begin-h.trace.Times[i]) * time.Second)
		cpu.Observe(predict.Config{Limit: float64(h.Capacity.CPU)}, at, h.shares[i]*float64(h.Capacity.CPU))
		memory.Observe(predict.Config{Limit: float64(h.Capacity.Memory)}, at, h.memory(i)*float64(h.Capacity.Memory))
	}
	h.State.Peaks = predict.State{CPU: &cpu, Memory: &memory}
}

// Decide measures the machine at some time after the start, when it is now, and decides as its agent would.
func (h *Host) Decide(now time.Time, after time.Duration, p *model.Policy) model.Plan {
	var plan model.Plan
	plan, h.State = node.Decide(model.Node{
		Now: now, PodsKnown: true, Capacity: h.Capacity, Allocatable: h.Capacity, Kubelet: model.Kubelet{Known: true}, Load: h.Measure(after),
		Object: h.Object, Ruling: h.Ruling, Writes: h.Writes,
	}, *p, h.State)
	return plan
}

// Measure returns what is measured at some time after the start. It is valid until the next measurement.
func (h *Host) Measure(after time.Duration) *model.Load {
	i, part := h.position(h.begin + int64(after/time.Second))
	between := func(a, b float64) float64 { return a + part*(b-a) }
	next := min(i+1, len(h.shares)-1)
	keeps := math.Pow(lasting, max(after-h.measured, time.Second).Seconds())
	h.measured = after
	h.wander = keeps*h.wander + math.Sqrt(1-keeps*keeps)*h.random.NormFloat64()
	cpu := between(h.shares[i], h.shares[next]) * max(1+h.Noise*h.wander, 0)
	memory := between(h.memory(i), h.memory(next))
	cpu += h.More
	clock := after + time.Hour // since boot
	used := model.Usage{
		CPU:    model.CPUUsage{At: clock, Milli: int64(min(max(cpu, 0), 1) * float64(h.Capacity.CPU))},
		Memory: model.MemoryUsage{At: clock, WorkingSet: int64(min(max(memory, 0), 1) * float64(h.Capacity.Memory))},
	}
	h.load = model.Load{Clock: clock, CPUMilli: h.Capacity.CPU, Memory: h.Capacity.Memory, Node: used}
	h.load.Classes[model.Guaranteed] = used
	return &h.load
}

// position returns which value of the trace counts at a time, and how far it is on the way to the next. After its end a trace
// begins anew.
func (h *Host) position(at int64) (i int, part float64) {
	times := h.trace.Times
	first, last := times[0], times[len(times)-1]
	at = first + (at-first)%(last-first)
	i = sort.Search(len(times), func(i int) bool { return times[i] > at }) - 1
	return i, float64(at-times[i]) / float64(times[i+1]-times[i])
}

// memory returns the share of the memory that is used at a value of the trace.
func (h *Host) memory(i int) float64 {
	if h.trace.Memory == nil {
		return flat
	}
	return h.trace.Memory[i]/100 - (1 - flat)
}
