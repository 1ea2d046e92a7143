// Package host simulates a machine whose online pods have the resource use of a trace. It returns the measurements and
// the decisions that an agent on that machine would make.
package host

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/dataset"
)

// Host is one machine. Values of a trace are means of a minute or more; noise adds the variation from second to
// second.
type Host struct {
	Capacity model.Amount
	// Noise is the standard deviation of the use within a second from the trace's mean, as a share of that mean.
	Noise float64
	Extra float64 // use in addition to the trace, as a share of the capacity; may be negative
	State node.State
	// Object and Ruling are what the API shows of the machine's Node.
	Object model.NodeObject
	Ruling model.Ruling
	Writes model.APIWrites

	trace  *dataset.Machine
	shares []float64 // use at each time of the trace, as a share of the limit
	begin  int64     // time of the trace at which the machine starts
	random *rand.Rand
	drift  float64 // current noise, in standard deviations

	measured time.Duration // time of the last measurement, after the start
	load     model.Load
}

// noiseDecay is the correlation of the noise of one second with that of the next. The noise decays with a time
// constant of 10 s, like the load of requests that take their time.
const noiseDecay = 0.905

// flatMemory is the share of memory in use if the trace has no memory values. Memory values of a trace are
// lowered by the same share: machines of the traces are full of batch work and page cache, so nothing would be
// left to sell. They keep their ups and downs.
const flatMemory = 0.5

// New returns a machine that starts the given number of seconds after the start of a trace. The same seed gives
// the same noise.
func New(m *dataset.Machine, capacity model.Amount, start int64, seed uint64) *Host {
	h := &Host{Capacity: capacity, trace: m, shares: m.Total(), random: rand.New(rand.NewPCG(seed, 7))}
	for i := range h.shares {
		h.shares[i] /= m.Limit()
	}
	h.begin = m.Times[0] + start
	return h
}

// Clone returns a copy of the machine with different noise from now on.
func (h *Host) Clone(seed uint64) *Host {
	c := *h
	c.random = rand.New(rand.NewPCG(seed, 8))
	return &c
}

// Learn trains the predictors of the machine with its use before the start, given the wall-clock time of the
// start. The predictors keep at most a week of it.
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

// Decide measures the machine at a time after the start, and decides as an agent does at the wall-clock time
// now.
func (h *Host) Decide(now time.Time, after time.Duration, p *model.Policy) model.Plan {
	var plan model.Plan
	plan, h.State = node.Decide(model.Node{
		Now: now, PodsKnown: true, Capacity: h.Capacity, Allocatable: h.Capacity, Kubelet: model.Kubelet{Known: true},
		Load:   h.Measure(after),
		Object: h.Object, Ruling: h.Ruling, Writes: h.Writes,
	}, *p, h.State)
	return plan
}

// Measure returns the load at a time after the start. It is valid until the next measurement.
func (h *Host) Measure(after time.Duration) *model.Load {
	i, part := h.position(h.begin + int64(after/time.Second))
	between := func(a, b float64) float64 { return a + part*(b-a) }
	next := min(i+1, len(h.shares)-1)
	keeps := math.Pow(noiseDecay, max(after-h.measured, time.Second).Seconds())
	h.measured = after
	h.drift = keeps*h.drift + math.Sqrt(1-keeps*keeps)*h.random.NormFloat64()
	cpu := between(h.shares[i], h.shares[next]) * max(1+h.Noise*h.drift, 0)
	memory := between(h.memory(i), h.memory(next))
	cpu += h.Extra
	clock := after + time.Hour // since boot
	used := model.Usage{
		CPU:    model.CPUUsage{At: clock, Milli: int64(min(max(cpu, 0), 1) * float64(h.Capacity.CPU))},
		Memory: model.MemoryUsage{At: clock, WorkingSet: int64(min(max(memory, 0), 1) * float64(h.Capacity.Memory))},
	}
	h.load = model.Load{Clock: clock, CPUMilli: h.Capacity.CPU, Memory: h.Capacity.Memory, Node: used}
	h.load.Classes[model.Guaranteed] = used
	return &h.load
}

// position returns the index of the trace value at a time, and the fraction of the way to the next value. A
// trace repeats after its end.
func (h *Host) position(at int64) (i int, part float64) {
	times := h.trace.Times
	first, last := times[0], times[len(times)-1]
	at = first + (at-first)%(last-first)
	i = sort.Search(len(times), func(i int) bool { return times[i] > at }) - 1
	return i, float64(at-times[i]) / float64(times[i+1]-times[i])
}

// memory returns the share of memory in use at index i of the trace.
func (h *Host) memory(i int) float64 {
	if h.trace.Memory == nil {
		return flatMemory
	}
	return h.trace.Memory[i]/100 - (1 - flatMemory)
}
