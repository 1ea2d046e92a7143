package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/evictbudget"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/jobs"
	"github.com/waterline-io/waterline/internal/sim/node"
	"github.com/waterline-io/waterline/internal/sim/yarn"
)

// simulation is a cluster in the course of the day.
type simulation struct {
	o        *Options
	now      time.Duration // after the beginning of the day
	nodes    []*member
	on       map[string]int // node of each pod
	online   []*pod
	distinct int                      // pods of the trace
	history  int                      // days that teach the predictors
	restarts map[time.Duration][]*pod // online pods, by the tick at which they are started anew
	schedule *scheduler
	jobs     *jobs.Queue
	pool     *yarn.Pool // nil: none
	batches  int        // batch pods so far
	random   *rand.Rand
	evict    evictbudget.State
	effect   policy.Effect
	counts   []count // one for each part of the nodes
	count    count   // of the whole cluster
}

func newSimulation(o *Options) *simulation {
	s := &simulation{
		o: o, now: -warmUp, on: map[string]int{}, schedule: newScheduler(o), random: rand.New(rand.NewPCG(o.Seed, 1)),
		jobs: o.queue(o.Jobs, float64(o.Batch.CPU)/1000, o.Seed), counts: make([]count, max(o.Parallel, 1)),
		restarts: map[time.Duration][]*pod{},
	}
	o.every = o.step()
	for i := range o.Nodes {
		m := o.machine(i)
		s.nodes = append(s.nodes, &member{
			Node: node.New(m.Capacity, m.Allocatable), machine: m, since: -warmUp, next: -warmUp,
		})
	}
	if o.Services != nil {
		s.online, s.distinct, s.history = o.recordedPods(s.random)
	} else {
		var services []*service
		services, s.distinct, s.history = o.services(s.random)
		s.online = o.onlinePods(services, s.random)
	}
	if p := o.Pool; p != nil {
		cores := float64(p.Container.VCores) / float64(max(p.Core, 1))
		s.pool = yarn.New(p.Settings, o.Nodes, o.queue(p.Jobs, cores, o.Seed+1<<16), node.Dawn().Add(-warmUp))
		for i, n := range s.nodes {
			n.crew = &crew{pool: s.pool, at: i}
		}
	}
	const shuffle = warmUp - time.Hour - restarts // the time in which all start anew
	for _, p := range s.online {
		p.until = -placed + 10*time.Minute + time.Duration(s.random.Float64()*float64(shuffle-10*time.Minute))
	}
	return s
}

func (s *simulation) step() {
	before := s.effect.Selling
	s.effect = policy.At(&s.o.Policy, node.Dawn().Add(s.now))
	if by := &s.effect.Policy.Suppress.By; *by == model.SuppressOnHarm {
		*by = model.SuppressByArithmetic // by arithmetic, as where harm is not known
	}
	if s.effect.Selling != before {
		for _, n := range s.nodes {
			n.next, n.full = s.now, s.now
		}
	}
	s.decide()
	for i, n := range s.nodes {
		if n.decided == s.now {
			s.collect(i, n)
		}
	}
	switch {
	case s.now == -begins:
		s.each(func(_ *count, n *member) { n.teach(s.o, s.now, s.history) })
	case s.now >= -placed && s.now < -begins && s.now%learns == 0:
		s.each(func(_ *count, n *member) { n.teach(s.o, s.now, min(s.history, 2)) })
	}
	s.manage()
	s.arrive()
	s.lead()
	if s.now%Part == 0 && s.now >= 0 {
		for i := range s.nodes {
			met, all := s.schedule.met(i)
			s.count.met, s.count.weighted = s.count.met+met, s.count.weighted+all
		}
	}
	s.now += tick
}

// decide lets the nodes decide whose time has come. The predictors of the others see each minute.
func (s *simulation) decide() {
	minute := s.now%time.Minute == 0
	s.each(func(t *count, n *member) {
		due := n.full <= s.now
		if !due && minute {
			n.sample(s.now)
		}
		if !due && (minute || n.next <= s.now) {
			due = !n.settle(&s.effect, s.now)
		}
		if due {
			n.pass(s.now, t)
			n.round(s.o, &s.effect, s.now)
			t.rounds++
		}
		if minute && s.now >= 0 {
			t.minute(n, int(s.now/time.Minute))
		}
	})
}

// each does something with each node, in as many parts at the same time as there are counts.
func (s *simulation) each(do func(t *count, n *member)) {
	var wg sync.WaitGroup
	for k := range s.counts {
		from, to := k*len(s.nodes)/len(s.counts), (k+1)*len(s.nodes)/len(s.counts)
		wg.Go(func() {
			for _, n := range s.nodes[from:to] {
				do(&s.counts[k], n)
			}
		})
	}
	wg.Wait()
}

func (s *simulation) collect(i int, n *member) {
	for _, t := range n.ended {
		s.schedule.nodes[i].Sold = minus(s.schedule.nodes[i].Sold, s.o.Batch)
		s.schedule.nodes[i].Requested = minus(s.schedule.nodes[i].Requested, unset)
		if s.now > 0 {
			s.count.goodput += t.Work
			s.count.ended++
		}
	}
	n.ended = n.ended[:0]
	s.schedule.see(i, n)
}

// manage lets the manager decide the evictions that nodes request.
func (s *simulation) manage() {
	if s.now%(2*tick) != 0 {
		return
	}
	var requests []evictbudget.Request
	for i, n := range s.nodes {
		if e := n.request; e != nil {
			r := evictbudget.Request{
				Node: strconv.Itoa(i), Renewed: strconv.Itoa(n.renewed), UID: e.UID, Code: e.Reason.Code, Ready: true,
				PerNode: s.effect.Policy.Protect.EvictPerHour,
				Pod:     evictbudget.Pod{Known: true},
			}
			if k, found := n.find(e.UID); found {
				p := n.pods[k]
				r.Pod = evictbudget.Pod{Known: true, UID: p.UID, Node: r.Node, Owner: p.Owner + "/" + p.UID, Batch: true}
			}
			requests = append(requests, r)
		}
	}
	at := s.now + node.Uptime
	_, s.evict = evictbudget.Watch(at, requests, s.evict)
	if len(requests) == 0 {
		return
	}
	var decisions []evictbudget.Decision
	decisions, s.evict = evictbudget.Round(at, requests, evictbudget.DefaultSettings(), s.evict)
	for i := range decisions {
		if d := &decisions[i]; d.Verdict == evictbudget.Evict {
			at, _ := strconv.Atoi(d.Node)
			s.kill(at, d.UID)
		}
	}
}

// kill evicts a batch pod. Its task begins anew.
func (s *simulation) kill(i int, uid string) {
	n := s.nodes[i]
	n.pass(s.now, &s.count)
	k, found := n.find(uid)
	if !found {
		return
	}
	p := n.pods[k]
	n.remove(uid, s.now)
	n.request = nil
	s.schedule.unbind(i, p)
	if s.now >= 0 {
		s.count.evicted++
		s.count.lost += p.task.Done // a worker has no task; what its containers lose is counted for the pool
	}
	if p.crew {
		n.crew.pod = nil
		s.pool.Stop(i, node.Dawn().Add(s.now))
		return
	}
	s.jobs.Again(p.task)
}

// arrive starts pods: online pods for the first time or anew, and batch pods.
func (s *simulation) arrive() {
	if s.now < -placed {
		const ticks = int((warmUp - placed) / tick)
		k := int((s.now + warmUp) / tick)
		for _, p := range s.online[len(s.online)*k/ticks : len(s.online)*(k+1)/ticks] {
			if s.start(p) {
				s.renew(p)
			} else {
				s.count.unplaced++
			}
		}
	}
	due := s.restarts[s.now]
	slices.SortFunc(due, func(a, b *pod) int { return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.UID, b.UID)) })
	for _, p := range due {
		s.restart(p)
	}
	delete(s.restarts, s.now)
	s.jobs.Arrive(node.Dawn().Add(s.now))
	for {
		t, more := s.jobs.Take()
		if !more {
			break
		}
		s.batches++
		p := batchPod(fmt.Sprintf("b%09d", s.batches), "Job/sim", s.o.Batch, s.o.Batch.CPU)
		p.task = t
		if !s.start(p) {
			s.jobs.Again(t)
			break // all batch pods request the same
		}
	}
	if s.now%time.Minute == 0 {
		s.schedule.ledger.Prune(s.now+node.Uptime, &s.schedule.set)
	}
}

// renew has an online pod started anew at the first tick after its time.
func (s *simulation) renew(p *pod) {
	ticks := (p.until + warmUp + tick - 1) / tick // since the beginning of the simulation
	s.restarts[ticks*tick-warmUp] = append(s.restarts[ticks*tick-warmUp], p)
}

// restart starts an online pod anew, as a rolling update does: the new pod gets a node while the old one is there. If
// no node has room, the old one stays for a while.
func (s *simulation) restart(old *pod) {
	p := old.again()
	if !s.start(p) {
		old.until = s.now + time.Minute
		s.renew(old)
		return
	}
	i := s.on[old.UID]
	n := s.nodes[i]
	n.pass(s.now, &s.count)
	n.remove(old.UID, s.now)
	s.schedule.unbind(i, old)
	delete(s.on, old.UID)
	if s.o.Lifetime > 0 {
		p.until = s.now + max(time.Duration(s.random.ExpFloat64()*float64(s.o.Lifetime)), tick)
		s.renew(p)
	}
}

// start starts a pod on the node that the scheduler chooses; false if it finds none.
func (s *simulation) start(p *pod) bool {
	i := s.schedule.choose(p, s.now)
	if i < 0 {
		return false
	}
	if p.online != nil {
		s.on[p.UID] = i
	}
	n := s.nodes[i]
	n.pass(s.now, &s.count)
	n.add(p, s.now)
	s.schedule.bind(i, p, s.now)
	if s.now >= 0 {
		s.count.placed++
	}
	return true
}
