package cluster

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/jobs"
	"github.com/waterline-io/waterline/internal/sim/node"
)

// limitBand is the part of a node by which more must be left for batch than its limit before that grows
// (decide/node/contention).
const limitBand = 40

// startupTime is the time for which a pod counts with its request (see decide/node/slack), plus one tick.
const startupTime = time.Minute + tick

// member is a node of the cluster with its agent and its pods. Times are after the beginning of the day.
type member struct {
	*node.Node
	machine Machine
	pods    []*pod // ordered by UID: batch before online
	batch   int    // number of batch pods

	decided time.Duration // the last round
	since   time.Duration // the last round, or the last change of its pods
	next    time.Duration // of the next look at it
	full    time.Duration // of the next round; until then only offers settle
	tally   [2]model.Use  // of CPU and memory, if it is known since the last round
	tallied bool
	young   time.Duration // until then, the newest online pod counts with its request
	demand  int64         // milli-cores that online pods want
	online  int64         // and what they get
	system  int64         // milli-cores of all but pods
	kept    int64         // bytes of all but pods
	used    int64         // milli-cores of batch pods
	memory  int64         // bytes that online pods use
	bound   model.Amount  // requests of batch pods
	wants   int64         // milli-cores that they would use
	held    int64         // bytes that they use
	crew    *crew         // nil: there is no pool

	ended   []jobs.Task   // batch pods that have ended
	told    time.Duration // when the last report was written
	hot     string
	selling model.SellState
	news    bool // a report was written in the last round
	writes  int64
	reports int64
	request *model.Eviction
	renewed int
}

// add starts a pod on the node.
func (n *member) add(p *pod, now time.Duration) {
	i, _ := n.find(p.UID)
	n.pods = slices.Insert(n.pods, i, p)
	if p.online == nil {
		n.batch++
		n.View.Tree.Pods[p.UID] = model.PodGroup{Dir: n.View.Tree.BestEffort + "/pod" + p.UID}
	} else {
		n.young = now + startupTime
	}
	p.Created, p.used = node.Dawn().Add(now), 0
	n.changed(now)
}

// remove removes a pod; false if it is not there.
func (n *member) remove(uid string, now time.Duration) bool {
	i, found := n.find(uid)
	if !found {
		return false
	}
	n.drop(n.pods[i])
	n.pods = slices.Delete(n.pods, i, i+1)
	n.changed(now)
	return true
}

func (n *member) drop(p *pod) {
	if p.online == nil {
		n.batch--
		delete(n.View.Tree.Pods, p.UID)
	}
}

func (n *member) find(uid string) (int, bool) {
	return model.IndexByUID(n.pods, uid, func(p **pod) string { return (*p).UID })
}

// changed lets the node decide at the next tick.
func (n *member) changed(now time.Duration) {
	n.full = min(n.full, now+tick)
	n.next = min(n.next, n.full)
	n.View.Pods = nil
}

// pass lets the time since the last round pass, and counts it.
func (n *member) pass(now time.Duration, t *count) {
	seconds := (now - n.since).Seconds()
	if seconds <= 0 {
		return
	}
	if n.since >= 0 {
		t.pass(n, int64(seconds))
	}
	begin := n.since
	n.since = now
	if n.used == 0 {
		return
	}
	left := n.pods[:0]
	for _, p := range n.pods {
		if p.crew {
			ended := n.crew.pool.Run(n.crew.at, float64(p.used)/1000, seconds)
			if begin >= 0 {
				n.crew.goodput += ended
			}
		} else if p.online == nil {
			if p.task.Done += float64(p.used) / 1000 * seconds; p.task.Done >= p.task.Work-1e-6 {
				n.ended = append(n.ended, p.task)
				n.drop(p)
				n.View.Pods = nil
				continue
			}
		}
		left = append(left, p)
	}
	clear(n.pods[len(left):])
	n.pods = left
}

// round measures the node, decides, and carries the decision out.
func (n *member) round(o *Options, effect *policy.Effect, now time.Duration) {
	n.decided, n.tallied = now, false
	n.measure(o, now)
	n.View.Ruling = model.Ruling{Policy: o.Policy.Name, Generation: o.Policy.Generation, Selling: effect.Selling}
	plan := n.Decide(&effect.Policy)
	n.run()
	n.tell(&plan, now)
	n.full = n.again(o, &plan, now)
	n.look(now)
}

// look sets when to look at the node again: at the next tick while an offer settles before it grows, else at its next
// round.
func (n *member) look(now time.Duration) {
	s := &n.State.Slack
	n.next = n.full
	if s.CPU.Batch.ClearSince != 0 || s.CPU.Mid.ClearSince != 0 || s.Memory.Batch.ClearSince != 0 ||
		s.Memory.Mid.ClearSince != 0 {
		n.next = min(n.next, now+tick)
	}
}

// settle lets offers settle where nothing else has changed since the last round. It reports false if an offer would
// change: then it is time for a round.
func (n *member) settle(effect *policy.Effect, now time.Duration) bool {
	if n.Account == nil || n.View.Pods == nil {
		return false
	}
	n.At(now)
	for _, u := range []*model.Usage{&n.Load.Node, &n.Load.Classes[0], &n.Load.Classes[1], &n.Load.Classes[2]} {
		u.CPU.At, u.Memory.At = n.Load.Clock, n.Load.Clock
	}
	for i := range n.Load.Pods {
		u := &n.Load.Pods[i]
		u.CPU.At, u.Memory.At = n.Load.Clock, n.Load.Clock
	}
	if !n.tallied { // no pod uses anything else until the next round
		n.tally[0], n.tally[1] = slack.Tally(&n.View, nil, nil)
		n.tallied = true
	}
	next, state, _ := slack.Decide(&n.View, &effect.Policy, n.tally[0], n.tally[1], n.Peaks, n.State.Slack)
	if next.CPU.Offer != n.Account.CPU.Offer || next.Memory.Offer != n.Account.Memory.Offer {
		return false
	}
	n.State.Slack = state
	n.look(now)
	return true
}

// sample lets the predictors see a minute in which nothing changed and nothing is decided.
func (n *member) sample(now time.Duration) {
	n.At(now)
	if n.View.Pods == nil {
		n.list()
	}
	n.Load.Node.CPU.At = n.Load.Clock
	cpu := model.Use{Measured: true, Online: n.online}
	memory := model.Use{Measured: true, Online: n.memory}
	n.Peaks.CPU, n.Peaks.Memory, n.State.Peaks = predict.Decide(&n.View, cpu, memory, n.State.Peaks)
}

// measure takes what the pods use now.
func (n *member) measure(o *Options, now time.Duration) {
	n.At(now)
	if n.View.Pods == nil {
		n.list()
	}
	n.demand, n.memory = 0, 0
	n.need()
	n.system, n.kept = min(of(n.machine.System, now), n.Capacity.CPU), of(n.machine.SystemMemory, now)
	for _, p := range n.pods {
		if p.online == nil {
			continue
		}
		p.used, p.memory = p.online.use(o, p, now)
		n.demand, n.memory = n.demand+p.used, n.memory+p.memory
	}
	n.online = n.demand
	if left := n.Capacity.CPU - n.system; n.demand > left { // all get the same part of what they want
		n.online = 0
		for _, p := range n.pods {
			if p.online != nil {
				p.used = p.used * left / n.demand
				n.online += p.used
			}
		}
	}
	n.run()
	n.Measure(node.Use{
		System: model.Amount{CPU: n.system, Memory: n.kept}, Online: model.Amount{CPU: n.online, Memory: n.memory},
		Batch: model.Amount{CPU: n.used, Memory: n.held},
	})
	for i, p := range n.pods {
		n.Load.Pods[i].Usage = n.Usage(model.Amount{CPU: p.used, Memory: p.memory})
	}
}

// list lists the pods for the rules, which keep no list that they were given.
func (n *member) list() {
	n.View.Pods = make([]*model.Pod, len(n.pods))
	n.Load.Pods = slices.Grow(n.Load.Pods[:0], len(n.pods))[:len(n.pods)]
	for i, p := range n.pods {
		n.View.Pods[i], n.Load.Pods[i] = p.Pod, model.PodUsage{UID: p.UID}
	}
}

// run gives batch pods what online pods leave, within the limit: weights put online pods first. Each gets the same part
// of what it would use.
func (n *member) run() {
	gets := n.Left(n.system, n.online)
	n.used = 0
	for _, p := range n.pods[:n.batch] {
		p.used = p.wants
		if gets < n.wants {
			p.used = p.wants * gets / n.wants
		}
		n.used += p.used
	}
}

// tell counts what is written to the API, and keeps what the manager and the scheduler read of it.
func (n *member) tell(plan *model.Plan, now time.Duration) {
	if now >= 0 && plan.Publish.Write {
		n.writes++
	}
	if !plan.Report.Write {
		return
	}
	if now >= 0 {
		n.reports++
	}
	n.news, n.told, n.hot, n.selling = true, now, string(plan.Report.Hot), plan.Report.Selling
	n.request = plan.Report.Evict
	n.renewed++
}

// again returns when the next round is: at the next tick while something is under way, else when online pods use
// something else, or when a batch pod ends.
func (n *member) again(o *Options, plan *model.Plan, now time.Duration) time.Duration {
	if n.busy(plan) {
		return now + tick
	}
	step := o.every
	next := now.Truncate(step) + step
	if now < 0 && now%step != 0 { // Truncate rounds towards zero
		next = now.Truncate(step)
	}
	if n.young > now {
		next = min(next, n.young)
	}
	if s := plan.Slack; s != nil && (s.CPU.Offer != n.Reported[0].Offer || s.CPU.Bound != n.Reported[0].Bound ||
		s.Memory.Offer != n.Reported[1].Offer || s.Memory.Bound != n.Reported[1].Bound) {
		next = min(next, max(now+tick, n.told+3*tick))
	}
	for _, p := range n.pods[:n.batch] {
		if p.used > 0 && !p.crew {
			left := time.Duration((p.task.Work - p.task.Done) / (float64(p.used) / 1000) * float64(time.Second))
			if left < next-now {
				next = now + max((left+tick-1).Truncate(tick), tick)
			}
		}
	}
	return next
}

// busy reports whether something other than an offer changes although no pod uses more or less.
func (n *member) busy(plan *model.Plan) bool {
	e := &n.State.Evict
	switch {
	case n.Limit >= 0 && n.wants > n.Limit && plan.Slack.CPU.Allow > n.Limit+n.Capacity.CPU/limitBand:
		return true // the limit of batch grows, or waits for that
	case e.Exhausted != 0, len(e.Hunger) > 0, e.Request.UID != "", e.Awaited != "", e.Hot != 0:
		return true
	}
	return n.State.Publish.Offer.UID != ""
}

// teach trains the predictors with the past of the pods that are on the node now.
func (n *member) teach(o *Options, now time.Duration, days int) {
	const step = 5 * time.Minute
	var cpu, memory predict.Predictor
	limits := [2]predict.Config{{Limit: float64(n.Capacity.CPU)}, {Limit: float64(n.Capacity.Memory)}}
	n.measure(o, now)
	for t := now - time.Duration(days)*day; t < now; t += step {
		milli, bytes := int64(0), int64(0)
		for i, p := range n.pods {
			if p.online == nil {
				continue
			}
			used, kept := p.online.use(o, p, t)
			milli, bytes = milli+used, bytes+kept
			most := &n.Load.Pods[i]
			most.CPU.Milli, most.Memory.WorkingSet = max(most.CPU.Milli, used), max(most.Memory.WorkingSet, kept)
		}
		cpu.Observe(limits[0], node.Dawn().Add(t), min(float64(milli), limits[0].Limit))
		memory.Observe(limits[1], node.Dawn().Add(t), min(float64(bytes), limits[1].Limit))
	}
	n.State.Peaks = predict.State{CPU: &cpu, Memory: &memory}.Settled(&n.View)
}
