package cluster

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/node"
)

// Weights of the plugins in the scheduler's profile. NodeResourcesFit has 1 in the stock profile too.
const (
	spreadWeight = 3
	loadWeight   = 2
	batchWeight  = 3
)

// scheduler places pods.
type scheduler struct {
	waterline bool
	set       place.Settings
	nodes     []place.Node
	names     []string
	reports   []place.Report
	written   []time.Duration // when each report was
	offers    []model.Amount  // that are published
	tree      []place.Hierarchy
	weights   [][]place.Weight
	sums      []place.Sums
	ledger    place.Ledger
	start     int // the node to look at first
	random    *rand.Rand

	fits          []int
	scores, costs []int64
}

func newScheduler(o *Options) *scheduler {
	s := &scheduler{
		waterline: o.Scheduler == Waterline, set: place.DefaultSettings(), nodes: make([]place.Node, o.Nodes),
		names: make([]string, o.Nodes), reports: make([]place.Report, o.Nodes), written: make([]time.Duration, o.Nodes),
		offers: make([]model.Amount, o.Nodes), tree: make([]place.Hierarchy, o.Nodes),
		weights: make([][]place.Weight, o.Nodes), sums: make([]place.Sums, o.Nodes), random: rand.New(rand.NewPCG(o.Seed, 3)),
	}
	for i := range s.nodes {
		m := o.machine(i)
		s.nodes[i].Allocatable, s.nodes[i].Requested = m.Allocatable, m.Pinned
		s.names[i] = strconv.Itoa(i)
		w := &o.Policy.Policy.Weight
		s.tree[i] = place.Hierarchy{
			CPU: m.Capacity.CPU, PodsOnly: w.Scope == model.ScopeClass, OverrideGuaranteed: w.OverrideGuaranteed,
		}
	}
	return s
}

// see takes in what a node published and reported.
func (s *scheduler) see(i int, n *member) {
	s.offers[i] = n.Offer
	if !n.news {
		return
	}
	n.news = false
	cpu, memory := accountOf(&n.Reported[0]), accountOf(&n.Reported[1])
	s.reports[i] = place.Report{CPU: cpu, Memory: memory, Hot: n.hot, Selling: n.selling}
	s.nodes[i].Report, s.written[i] = &s.reports[i], n.told
}

func accountOf(a *model.Account) place.Account {
	return place.Account{
		Capacity: a.Capacity, Ceiling: a.Ceiling, System: max(a.Use.System, a.Reserved), Online: a.Use.Online,
		PeakHour: a.Peaks[model.Hour].Value, PeakDay: a.Peaks[model.Day].Value,
	}
}

// bind counts a pod on a node.
func (s *scheduler) bind(i int, p *pod, now time.Duration) {
	n := &s.nodes[i]
	n.Requested = n.Requested.Plus(p.place.Requests)
	n.Sold = n.Sold.Plus(p.place.Batch)
	if p.online != nil {
		s.weights[i] = append(s.weights[i], p.place.Weight)
		s.sums[i] = s.sums[i].Add(&p.place.Weight)
		s.ledger.Assume(s.names[i], p.UID, now+node.Uptime, place.Estimate(p.place.Requests, &s.set))
	}
}

// unbind counts it no longer.
func (s *scheduler) unbind(i int, p *pod) {
	n := &s.nodes[i]
	n.Requested = minus(n.Requested, p.place.Requests)
	n.Sold = minus(n.Sold, p.place.Batch)
	if p.online == nil {
		return
	}
	s.ledger.Forget(p.UID)
	left, sums := s.weights[i][:0], place.Sums{}
	gone := false
	for k := range s.weights[i] {
		w := s.weights[i][k]
		if !gone && w == p.place.Weight {
			gone = true
			continue
		}
		left, sums = append(left, w), sums.Add(&w)
	}
	s.weights[i], s.sums[i] = left, sums
}

func minus(a, b model.Amount) model.Amount {
	return model.Amount{CPU: a.CPU - b.CPU, Memory: a.Memory - b.Memory}
}

// choose returns the node for a pod; -1 if none fits.
func (s *scheduler) choose(p *pod, now time.Duration) int {
	s.find(p, now)
	if len(s.fits) == 0 {
		return -1
	}
	s.score(p, now)
	best, equals := 0, 1
	for k := 1; k < len(s.fits); k++ {
		switch {
		case s.scores[k] > s.scores[best]:
			best, equals = k, 1
		case s.scores[k] == s.scores[best]:
			if equals++; s.random.IntN(equals) == 0 { // as the stock scheduler chooses among the best
				best = k
			}
		}
	}
	return s.fits[best]
}

// find finds nodes on which the pod fits: no more than the stock scheduler looks for, and not always the same first
// (1.36: percentageOfNodesToScore).
func (s *scheduler) find(p *pod, now time.Duration) {
	s.fits = s.fits[:0]
	enough := wanted(len(s.nodes))
	looked := 0
	for ; looked < len(s.nodes) && len(s.fits) < enough; looked++ {
		i := (s.start + looked) % len(s.nodes)
		if s.fit(i, p, now) {
			s.fits = append(s.fits, i)
		}
	}
	s.start = (s.start + looked) % len(s.nodes)
}

// wanted returns how many nodes the stock scheduler scores in a cluster of a size.
func wanted(nodes int) int {
	const least, percent, leastPercent, by = 100, 50, 5, 125
	if nodes < least {
		return nodes
	}
	return max(nodes*max(percent-nodes/by, leastPercent)/100, least)
}

// fit reports whether a pod fits on a node.
func (s *scheduler) fit(i int, p *pod, now time.Duration) bool {
	n := &s.nodes[i]
	if p.online != nil {
		return n.Requested.CPU+p.place.Requests.CPU <= n.Allocatable.CPU &&
			n.Requested.Memory+p.place.Requests.Memory <= n.Allocatable.Memory
	}
	if n.Sold.CPU+p.Batch.CPU > s.offers[i].CPU || n.Sold.Memory+p.Batch.Memory > s.offers[i].Memory {
		return false
	}
	if !s.waterline {
		return true
	}
	s.reports[i].Age = now - s.written[i]
	return place.BatchFilter(n, &s.set).Code == ""
}

// score scores the nodes that fit.
func (s *scheduler) score(p *pod, now time.Duration) {
	s.scores, s.costs = s.scores[:0], s.costs[:0]
	for _, i := range s.fits {
		n := &s.nodes[i]
		score := place.StockScore(n, &p.place)
		if s.waterline {
			s.reports[i].Age = now - s.written[i]
			if p.online == nil {
				room, _ := place.BatchScore(n, &p.place, &s.set)
				score += batchWeight * room
			} else {
				n.Assumed = s.ledger.Load(s.names[i], now+node.Uptime, &s.set)
				load, _ := place.LoadScore(n, &p.place, &s.set)
				score += loadWeight * load
				s.costs = append(s.costs, place.WeightCost(s.sums[i], &p.place.Weight, s.tree[i].CPU))
			}
		}
		s.scores = append(s.scores, score)
	}
	if len(s.costs) > 0 {
		place.Spread(s.costs)
		for k, v := range s.costs {
			s.scores[k] += spreadWeight * v
		}
	}
}

// met returns how many pods of a node with a weight get the CPU that it lets them expect while all pods want CPU, and
// how many have one.
func (s *scheduler) met(i int) (met, all int64) {
	got := place.Expect(&s.tree[i], s.weights[i])
	for k := range s.weights[i] {
		if wants := s.weights[i][k].Expects(s.tree[i].CPU); wants > 0 {
			all++
			if got[k]*1000 >= wants*s.set.Met {
				met++
			}
		}
	}
	return met, all
}
