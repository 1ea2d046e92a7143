package rebalance

import (
	"cmp"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// cluster is the working data of one plan.
type cluster struct {
	in    Input
	nodes map[string]*node // those that take part
	order []*node          // the same, by name
	rooms map[string]int   // of PodDisruptionBudgets
	ready map[string]int   // ready pods by owner
	spent Spent
	mean  int64 // mean weight pressure of the nodes
}

// node is a node with its pods, as the moves so far leave it.
type node struct {
	*Node
	pods      []*pod
	used      int64 // by online pods, now or within an hour, in milli-cores
	weight    int64 // sum, in shares
	requested model.Amount
}

// pod is a pod with its part of the load.
type pod struct {
	*Pod
	estimate int64
	moved    bool
}

// leastRequest is the request by which a pod that requests less CPU takes part in dividing the load, in milli-cores.
const leastRequest = 10

func newCluster(in Input) *cluster {
	c := &cluster{
		in: in, nodes: map[string]*node{}, rooms: map[string]int{}, ready: map[string]int{}, spent: in.Spent,
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if absent(n, in.Settings.MaxAge) == "" {
			c.nodes[n.Name] = &node{Node: n, used: max(n.Online, n.Peak)}
		}
	}
	for _, b := range in.Budgets {
		c.rooms[b.Name] = b.Room
	}
	for i := range in.Pods {
		p := &in.Pods[i]
		if p.Ready {
			c.ready[p.Owner]++
		}
		if n := c.nodes[p.Node]; n != nil {
			n.pods = append(n.pods, &pod{Pod: p})
			n.weight += p.Weight
			n.requested = n.requested.Plus(p.Request)
		}
	}
	var weight, cpu int64
	for _, n := range c.nodes {
		slices.SortFunc(n.pods, byName)
		n.divide()
		c.order = append(c.order, n)
		weight, cpu = weight+n.weight, cpu+n.CPU
	}
	slices.SortFunc(c.order, func(a, b *node) int { return strings.Compare(a.Name, b.Name) })
	c.mean = pressure(weight, cpu)
	return c
}

// divide divides the load of online pods among them by their requests, up to their limits.
func (n *node) divide() {
	share := func(p *pod) int64 {
		if !p.Online {
			return 0
		}
		return max(p.Request.CPU, leastRequest)
	}
	var sum int64
	for _, p := range n.pods {
		sum += share(p)
	}
	for _, p := range n.pods {
		if sum > 0 {
			p.estimate = n.used * share(p) / sum
		}
		if p.Limit > 0 {
			p.estimate = min(p.estimate, p.Limit)
		}
	}
}

// pressure returns the weight pressure of weights, in shares, against CPU in milli-cores.
func pressure(weight, cpu int64) int64 {
	if cpu <= 0 {
		return 0
	}
	return weight * 1000 * 1000 / model.SharesPerCPU / cpu
}

func (n *node) load() int64  { return n.System + n.used }
func (n *node) heat() int64  { return max(0, n.load()-n.Ceiling) }
func (n *node) level() Level { return Level{Load: n.load(), Pressure: pressure(n.weight, n.CPU)} }

// with returns the level of a node if a pod came (1) or left (-1).
func (n *node) with(p *pod, sign int64) Level {
	return Level{Load: n.load() + sign*p.estimate, Pressure: pressure(n.weight+sign*p.Weight, n.CPU)}
}

// part returns thousandths of an amount.
func part(amount, thousandths int64) int64 { return amount * thousandths / 1000 }

// kept returns why a pod must stay, whatever the purpose; "" if it may move.
func (c *cluster) kept(p *pod) Code {
	s := &c.in.Settings
	switch {
	case p.Kept != "":
		return p.Kept
	case !p.Online:
		return NotOnline
	case !p.Ready:
		return NotReady
	case p.Age < s.MinAge || p.moved:
		return TooYoung
	case c.ready[p.Owner] < 2:
		return OnlyReplica
	}
	if room, known := c.rooms[p.Budget]; p.Budget != "" && (!known || room <= 0) {
		return DisruptionBudget
	}
	switch {
	case c.spent.All >= s.All:
		return AllSpent
	case c.spent.From[p.Node] >= s.PerNode:
		return NodeSpent
	case c.spent.Owner[p.Owner] >= s.PerOwner:
		return OwnerSpent
	}
	return ""
}

// fits returns why a pod cannot go to a node; "" if it can. The margin stays free below the waterline of the node, and
// a pod with a weight finds no more pressure there than on its own node.
func (c *cluster) fits(p *pod, from, to *node) Code {
	allowed := true
	if p.Where != nil {
		_, allowed = slices.BinarySearch(p.Where, to.Name)
	}
	request, after := to.requested.Plus(p.Request), to.with(p, 1)
	switch {
	case to == from || to.Closed != "" || !allowed,
		request.CPU > to.Allocatable.CPU || request.Memory > to.Allocatable.Memory || len(to.pods) >= to.Slots,
		after.Load > to.Ceiling-part(to.CPU, c.in.Settings.Margin),
		p.Weight > 0 && after.Pressure > from.level().Pressure:
		return FitsNowhere
	case c.spent.To[to.Name] >= c.in.Settings.PerNode:
		return NodeSpent
	}
	return ""
}

// target returns the node on which a pod would do best; nil with the reason if there is none. better orders two nodes
// by their levels after the move.
func (c *cluster) target(p *pod, from *node, better func(a, b *node) int) (*node, Code) {
	var best *node
	why := FitsNowhere
	for _, to := range c.order {
		switch code := c.fits(p, from, to); {
		case code == NodeSpent:
			why = NodeSpent
		case code == "" && (best == nil || better(to, best) < 0):
			best = to
		}
	}
	return best, why
}

// candidate is a possible move.
type candidate struct {
	pod      *pod
	from, to *node
	gain     int64
}

// best returns the better of two candidates: of the pod with the lower priority, then with the higher gain, then with
// the lower load.
func best(a, b *candidate) *candidate {
	if a == nil || b != nil && cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), cmp.Compare(a.gain, b.gain),
		cmp.Compare(b.pod.estimate, a.pod.estimate), byName(b.pod, a.pod)) < 0 {
		return b
	}
	return a
}

// cool returns the next move that cools the hottest node that can be cooled; false if there is none.
func (c *cluster) cool() (Move, bool) {
	hot := slices.DeleteFunc(slices.Clone(c.order), func(n *node) bool { return n.heat() == 0 })
	slices.SortStableFunc(hot, func(a, b *node) int { return cmp.Compare(b.heat()*a.CPU, a.heat()*b.CPU) })
	for _, from := range hot {
		var found *candidate
		for _, p := range from.pods {
			if to, why := c.cooler(p, from); why == "" {
				found = best(found, &candidate{pod: p, from: from, to: to, gain: min(from.heat(), p.estimate)})
			}
		}
		if found != nil {
			return found.move(CoolsNode), true
		}
	}
	return Move{}, false
}

// cooler returns where a pod of a hot node should go, or why it stays.
func (c *cluster) cooler(p *pod, from *node) (*node, Code) {
	if why := c.kept(p); why != "" {
		return nil, why
	}
	if min(from.heat(), p.estimate) < max(1, part(from.CPU, c.in.Settings.Margin)) {
		return nil, SmallGain
	}
	to, why := c.target(p, from, func(a, b *node) int {
		x, y := a.with(p, 1), b.with(p, 1)
		return cmp.Or(cmp.Compare(x.Load*b.CPU, y.Load*a.CPU), cmp.Compare(x.Pressure, y.Pressure))
	})
	if to == nil {
		return nil, why
	}
	return to, ""
}

// spread returns the next move that takes a weight from a node with more pressure than the mean to one where it makes
// less.
func (c *cluster) spread() (Move, bool) {
	pressed := slices.Clone(c.order)
	slices.SortStableFunc(pressed, func(a, b *node) int { return cmp.Compare(b.level().Pressure, a.level().Pressure) })
	for _, from := range pressed {
		before := from.level().Pressure
		if before <= c.mean {
			break
		}
		var found *candidate
		for _, p := range from.pods {
			if p.Weight == 0 || c.kept(p) != "" {
				continue
			}
			higher := func(to *node) int64 { return max(from.with(p, -1).Pressure, to.with(p, 1).Pressure) }
			to, _ := c.target(p, from, func(a, b *node) int {
				x, y := a.with(p, 1), b.with(p, 1)
				return cmp.Or(cmp.Compare(x.Pressure, y.Pressure), cmp.Compare(x.Load*b.CPU, y.Load*a.CPU))
			})
			if to == nil || before-higher(to) < max(1, part(c.mean, c.in.Settings.Margin)) {
				continue
			}
			found = best(found, &candidate{pod: p, from: from, to: to, gain: before - higher(to)})
		}
		if found != nil {
			return found.move(SpreadsWeight), true
		}
	}
	return Move{}, false
}

func (d *candidate) move(why Code) Move {
	p := d.pod
	return Move{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name, Owner: p.Owner, From: d.from.Name, To: d.to.Name, Reason: why,
		Request: p.Request, Weight: p.Weight, Estimate: p.estimate,
		FromBefore: d.from.level(), FromAfter: d.from.with(p, -1), ToBefore: d.to.level(), ToAfter: d.to.with(p, 1),
	}
}

// move carries a move out in the working data.
func (c *cluster) move(m *Move) {
	from, to := c.nodes[m.From], c.nodes[m.To]
	i := slices.IndexFunc(from.pods, func(p *pod) bool { return p.UID == m.UID })
	p := from.pods[i]
	from.pods, to.pods = slices.Delete(from.pods, i, i+1), append(to.pods, p)
	p.moved = true
	for n, sign := range map[*node]int64{from: -1, to: 1} {
		n.used, n.weight = n.used+sign*p.estimate, n.weight+sign*p.Weight
		n.requested = n.requested.Plus(model.Amount{CPU: sign * p.Request.CPU, Memory: sign * p.Request.Memory})
	}
	if p.Budget != "" {
		c.rooms[p.Budget]--
	}
	c.spent = c.spent.plus(m.From, m.To, m.Owner)
}

// stay counts why the pods of a node that stays hot do not leave it.
func (c *cluster) stay(n *node) map[Code]int {
	reasons := map[Code]int{}
	for _, p := range n.pods {
		if _, why := c.cooler(p, n); why != "" {
			reasons[why]++
		}
	}
	return reasons
}
