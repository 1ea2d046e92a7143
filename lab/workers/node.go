package workers

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/node"
	"github.com/waterline-io/waterline/lab/dataset"
)

const (
	secondsADay = 24 * 3600
	// wobble is how long the noise of online usage lasts.
	wobble = 10 * time.Second
	// memoryLag is the half-life with which the memory of online services follows their CPU.
	memoryLag = 10 * time.Minute
	taught    = 7 // days before the simulated one that teach the predictor
)

// member is a node of the cluster with its agent, and what its online services use.
type member struct {
	*node.Node
	o      *Options
	times  []int64 // of the trace
	values []float64
	limit  float64
	at     int // the present value
	random *rand.Rand
	policy model.Policy
	worker []*model.Pod // the pod of the worker, if there is one

	online float64 // cores that online services use now
	memory float64 // MiB that they use now
	wave   float64 // of the noise
	waves  time.Duration
}

// newMember returns a node that begins at a second of its trace.
func newMember(o *Options, p Policy, m *dataset.Machine, from int64, seed uint64) *member {
	capacity := model.Amount{CPU: o.Cores * 1000, Memory: o.Memory << 20}
	n := &member{
		Node: node.New(capacity, capacity), o: o, times: m.Times, values: m.Total(), limit: m.Limit(),
		random: rand.New(rand.NewPCG(o.Seed, seed)), waves: -warmUp,
	}
	var cpu, memory predict.Predictor
	for n.at+1 < len(n.times) && n.times[n.at+1] <= from {
		if n.times[n.at] >= from-taught*secondsADay {
			at := node.Dawn().Add(time.Duration(n.times[n.at]-from)*time.Second - warmUp)
			cpu.Observe(predict.Config{Limit: float64(capacity.CPU)}, at, n.share()*float64(capacity.CPU))
		}
		n.at++
	}
	n.State.Peaks = predict.State{CPU: &cpu, Memory: &memory}
	sell := func(m model.SellMethod) model.SellPolicy { return model.SellPolicy{Waterline: o.Waterline, Method: m} }
	n.policy = model.Policy{
		Mode: model.ModeEnforce, CPU: sell(p.sells), Memory: sell(model.SellRealtime),
	}
	n.worker = []*model.Pod{{UID: "worker", APIUID: "worker", QoS: model.BestEffort, Class: model.ClassBE}}
	n.Load.Pods = []model.PodUsage{{UID: "worker"}}
	n.View.Pods = n.worker
	n.memory = float64(o.Memory) * (o.MemoryBase + o.MemoryRise*n.share())
	return n
}

// share returns the present value of the trace as a share of the node.
func (n *member) share() float64 {
	if n.limit <= 0 {
		return 0
	}
	return min(n.values[n.at]/n.limit, 1)
}

// use lets online services use what the trace says at a second of it.
func (n *member) use(second int64, now time.Duration) {
	for n.at+1 < len(n.times) && n.times[n.at+1] <= second {
		n.at++
	}
	if now-n.waves >= wobble {
		n.wave, n.waves = n.random.NormFloat64(), now
	}
	n.online = float64(n.o.Cores) * min(max(n.share()*(1+n.o.Noise*n.wave), 0), 1)
	goal := float64(n.o.Memory) * (n.o.MemoryBase + n.o.MemoryRise*n.online/float64(n.o.Cores))
	n.memory += (goal - n.memory) * (1 - math.Exp2(-tick.Seconds()/memoryLag.Seconds()))
}

// measure lets the agent measure and decide. bound is what the worker's pod requests, used what batch uses.
func (n *member) measure(now time.Duration, bound, used model.Amount) {
	n.At(now)
	n.worker[0].Batch = bound
	n.Load.Pods[0].Usage = n.Usage(used)
	n.Measure(node.Use{Online: model.Amount{CPU: int64(n.online * 1000), Memory: int64(n.memory) << 20}, Batch: used})
	n.Decide(&n.policy)
}
