package cluster

import (
	"math/rand/v2"
	"slices"
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

type scheduler struct {
	waterline bool
	set       place.Settings
	nodes     []known
	ledger    place.Ledger
	start     int // the node to look at first
	random    *rand.Rand

	fits          []int
	scores, costs []int64
}

// known is what the scheduler knows of a node.
type known struct {
	place.Node
	name    string
	report  place.Report
	written time.Duration // when the report was
	offer   model.Amount  // that is published
	tree    place.Hierarchy
	weights []place.Weight
	sums    place.Sums
}

func newScheduler(o *Options) *scheduler {
	s := &scheduler{
		waterline: o.Scheduler == Waterline, set: place.DefaultSettings(), nodes: make([]known, o.Nodes),
		random: rand.New(rand.NewPCG(o.Seed, 3)),
	}
	w := &o.Policy.Policy.Weight
	for i := range s.nodes {
		m, n := o.machine(i), &s.nodes[i]
		n.Allocatable, n.Requested, n.name = m.Allocatable, m.Pinned, strconv.Itoa(i)
		n.tree = place.Hierarchy{
			CPU: m.Capacity.CPU, PodsOnly: w.Scope == model.ScopeClass, OverrideGuaranteed: w.OverrideGuaranteed,
		}
	}
	return s
}

// see takes in what a node published and reported.
func (s *scheduler) see(i int, n *member) {
	k := &s.nodes[i]
	k.offer = n.Offer
	if !n.news {
		return
	}
	n.news = false
	cpu, memory := accountOf(&n.Reported[0]), accountOf(&n.Reported[1])
	k.report = place.Report{CPU: cpu, Memory: memory, Hot: n.hot, Selling: n.selling}
	k.Report, k.written = &k.report, n.told
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
		n.weights = append(n.weights, p.place.Weight)
		n.sums = n.sums.Add(&p.place.Weight)
		s.ledger.Assume(n.name, p.UID, now+node.Uptime, place.Estimate(p.place.Requests, &s.set))
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
	if k := slices.Index(n.weights, p.place.Weight); k >= 0 {
		n.weights = slices.Delete(n.weights, k, k+1)
	}
	n.sums = place.Sums{}
	for k := range n.weights {
		n.sums = n.sums.Add(&n.weights[k])
	}
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

func (s *scheduler) fit(i int, p *pod, now time.Duration) bool {
	n := &s.nodes[i]
	if p.online != nil {
		return n.Requested.CPU+p.place.Requests.CPU <= n.Allocatable.CPU &&
			n.Requested.Memory+p.place.Requests.Memory <= n.Allocatable.Memory
	}
	if n.Sold.CPU+p.Batch.CPU > n.offer.CPU || n.Sold.Memory+p.Batch.Memory > n.offer.Memory {
		return false
	}
	if !s.waterline {
		return true
	}
	n.report.Age = now - n.written
	return place.BatchFilter(&n.Node, &s.set).Code == ""
}

func (s *scheduler) score(p *pod, now time.Duration) {
	s.scores, s.costs = s.scores[:0], s.costs[:0]
	for _, i := range s.fits {
		n := &s.nodes[i]
		score := place.StockScore(&n.Node, &p.place)
		if s.waterline {
			n.report.Age = now - n.written
			if p.online == nil {
				room, _ := place.BatchScore(&n.Node, &p.place, &s.set)
				score += batchWeight * room
			} else {
				n.Assumed = s.ledger.Load(n.name, now+node.Uptime, &s.set)
				load, _ := place.LoadScore(&n.Node, &p.place, &s.set)
				score += loadWeight * load
				s.costs = append(s.costs, place.WeightCost(n.sums, &p.place.Weight, n.tree.CPU))
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
	n := &s.nodes[i]
	got := place.Expect(&n.tree, n.weights)
	for k := range n.weights {
		if wants := n.weights[k].Expects(n.tree.CPU); wants > 0 {
			all++
			if got[k]*1000 >= wants*s.set.Met {
				met++
			}
		}
	}
	return met, all
}
