package cluster

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/jobs"
	"github.com/waterline-io/waterline/internal/sim/trace"
)

type pod struct {
	*model.Pod
	place  place.Pod
	online *service // nil: it is batch
	crew   bool     // it is a worker of the pool
	task   jobs.Task
	wants  int64         // milli-cores that a batch pod would use
	used   int64         // milli-cores
	memory int64         // bytes
	until  time.Duration // when an online pod is started anew
	number int           // how often it was
}

// service is the use of one online pod.
type service struct {
	grid   *trace.Grid
	day    int         // of the grid, which is the simulated one
	size   float64     // milli-cores that are the whole limit
	memory *trace.Grid // bytes; nil: assumed
}

// at returns the use at a time after the beginning of the simulated day of a grid, as a share of its limit. Days before
// the first are like the first.
func at(g *trace.Grid, simulated int, t time.Duration) float64 {
	const back = historyDays + 1 // days, so that t is positive
	n := (t + back*day) / day
	second := int64((t + back*day - n*day) / time.Second)
	values := g.Days[min(max(simulated+int(n)-back, 0), len(g.Days)-1)]
	return float64(values[second/g.Step])
}

// of returns what was used on the last day of a grid, in its unit. Without a grid that is nothing.
func of(g *trace.Grid, t time.Duration) int64 {
	if g == nil {
		return 0
	}
	return int64(at(g, len(g.Days)-1, t) * g.Limit)
}

// use returns the CPU and the memory that a pod uses at a time.
func (s *service) use(o *Options, p *pod, t time.Duration) (milli, bytes int64) {
	share := at(s.grid, s.day, t)
	bytes = int64((o.MemoryBase + o.MemoryRise*share) * float64(p.MemoryRequest))
	if s.memory != nil {
		bytes = of(s.memory, t)
	}
	return int64(share * s.size), bytes
}

// mean returns the mean use on the simulated day, as a share of the size.
func (s *service) mean() float64 {
	sum := 0.0
	for _, v := range s.grid.Days[s.day] {
		sum += float64(v)
	}
	return sum / float64(len(s.grid.Days[s.day]))
}

// services returns what the online pods use: each part of the trace on each of its days that has half of the other days
// before it, at most [historyDays]. In random order, and again from the beginning if there are more pods.
func (o *Options) services(random *rand.Rand) (all []*service, distinct, history int) {
	var kinds []service
	history = historyDays
	for i := range o.Use {
		g := &o.Use[i]
		before := min(len(g.Days)/2, historyDays)
		history = min(history, before)
		for d := before; d < len(g.Days); d++ {
			kinds = append(kinds, service{grid: g, day: d, size: g.Limit})
		}
	}
	n := o.Nodes * o.Pods
	for len(all) < n {
		random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for i := range min(len(kinds), n-len(all)) {
			k := kinds[i]
			all = append(all, &k)
		}
	}
	used := 0.0
	for _, s := range all {
		used += s.size * s.mean()
	}
	scale := 0.0
	whole, largest := o.capacity()
	if used > 0 {
		scale = o.Online * float64(whole.CPU) / used
	}
	for _, s := range all {
		s.size = min(s.size*scale, float64(largest))
	}
	return all, min(len(kinds), n), history
}

// onlinePods returns the online pods, without nodes.
func (o *Options) onlinePods(services []*service, random *rand.Rand) []*pod {
	sizes := 0.0
	for _, s := range services {
		sizes += s.size
	}
	all := make([]*pod, 0, len(services))
	whole, _ := o.capacity()
	perCPU := float64(whole.Memory) / float64(whole.CPU)
	for i, s := range services {
		request := 1.0
		if sizes > 0 {
			request = max(s.size*o.Requested*float64(whole.CPU)/sizes, 1)
		}
		requests := model.Amount{CPU: int64(request), Memory: int64(request * perCPU)}
		all = append(all, o.onlinePod(i, s, requests, max(int64(s.size), 2*requests.CPU), random))
	}
	return all
}

// recordedPods returns the online pods of a recorded cluster, without nodes, how many there are, and the days before
// the last one.
func (o *Options) recordedPods(random *rand.Rand) (all []*pod, distinct, history int) {
	history = historyDays
	for i := range o.Services {
		s := &o.Services[i]
		last := len(s.Use.Days) - 1
		history = min(history, last)
		all = append(all, o.onlinePod(i, &service{
			grid: &s.Use, day: last, size: s.Use.Limit, memory: s.Memory,
		}, s.Request, s.Limit, random))
	}
	// The scheduler gets them in no order.
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, len(all), history
}

func (o *Options) onlinePod(i int, s *service, requests model.Amount, limit int64, random *rand.Rand) *pod {
	p := &pod{Pod: &model.Pod{
		UID: fmt.Sprintf("o%07d", i), QoS: model.Burstable, Class: model.ClassLS, Owner: "Deployment/sim/" + s.grid.Name,
		RequestMilli: requests.CPU, MemoryRequest: requests.Memory, LimitMilli: limit,
	}, online: s}
	if requests == (model.Amount{}) && limit == 0 {
		p.QoS = model.BestEffort
	}
	p.Containers = []model.Container{{Name: "main", RequestMilli: p.RequestMilli, LimitMilli: p.LimitMilli}}
	p.place = place.Pod{
		Requests: requests, Weight: place.Weight{QoS: p.QoS, Request: p.RequestMilli, Limit: p.LimitMilli},
	}
	if random.Float64() < o.Weighted {
		p.Annotations.Shares = max(2*p.RequestMilli*model.SharesPerCPU/1000, model.MinShares)
		p.place.Weight.Shares = p.Annotations.Shares
	}
	p.name()
	return p
}

// again returns the pod that follows an online pod when that is started anew.
func (p *pod) again() *pod {
	next, spec := *p, *p.Pod
	next.Pod = &spec
	next.number++
	first, _, _ := strings.Cut(p.UID, ".")
	next.UID = fmt.Sprintf("%s.%d", first, next.number)
	next.name()
	return &next
}

// unset is what the stock scheduler scores a pod with that requests no CPU and no memory (1.36).
var unset = model.Amount{CPU: 100, Memory: 200 << 20}

// batchPod returns a pod that requests batch resources, with a limit of CPU in milli-cores; 0: none.
func batchPod(uid, owner string, request model.Amount, limit int64) *pod {
	p := &pod{Pod: &model.Pod{
		UID: uid, QoS: model.BestEffort, Class: model.ClassBE, Tier: model.TierBatch, Owner: owner, Batch: request,
		Grant: model.Grant{RequestMilli: request.CPU, LimitMilli: limit, Memory: request.Memory},
	}, memory: request.Memory}
	p.Containers = []model.Container{{Name: "main", Grant: p.Grant}}
	p.place = place.Pod{Requests: unset, Batch: request, Weight: place.Weight{QoS: model.BestEffort}}
	p.name()
	return p
}

// name gives the pod the names that follow from its UID.
func (p *pod) name() { p.APIUID, p.Namespace, p.Name = p.UID, "sim", p.UID }
