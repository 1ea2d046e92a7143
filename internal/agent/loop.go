package agent

import (
	"context"
	"runtime"
	"time"

	"github.com/waterline-io/waterline/internal/agent/kernel"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	roundInterval = 10 * time.Millisecond // between two rounds, so that a burst of changes is one round
	heartbeat     = 2 * time.Second
	// apiTimeout is how long an agent that starts waits for the API server, before it goes on by what the API showed an
	// earlier agent. A pause meanwhile, and other changes, should count from its first round on.
	apiTimeout = 2 * time.Second
)

// loop waits for events, and decides again if anything differs from the input of the last round.
//
// It stays on one thread: otherwise its data is cold in the cache of another CPU each time.
func (a *Agent) loop(ctx context.Context, kubelets <-chan model.Kubelet) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a.awaitPods(ctx)
	a.takePods()
	a.updatePolicy(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	m := a.kernel
	for {
		podsChanged := false
		select {
		case <-ctx.Done():
			return
		case <-m.Wake():
		case err := <-m.Unwatched():
			m.Poll(err)
			a.nextAudit = time.Time{}
		case <-a.cfg.Pods.Wake():
			podsChanged = true
		case <-a.started.wake:
			a.takeStarts()
		case k := <-kubelets:
			a.changed = a.changed || k != a.kubelet
			a.kubelet = k
		case r := <-m.Reclaimed():
			m.TakeReclaimed(r)
			a.recorder.Reclaimed(r)
		case f := <-a.requests:
			f()
			continue
		case <-m.Waited():
			if !m.TakeWaited() {
				continue
			}
		case <-a.writer.Ended():
			a.changed = true
		case <-timer.C:
			podsChanged = a.updatePolicy(time.Now())
		}
		if rest := roundInterval - time.Since(a.lastRound); rest > 0 {
			time.Sleep(rest)
		}
		a.turn(podsChanged)
		a.beat.Store(int64(time.Since(a.born)))
		timer.Reset(a.untilNext())
	}
}

// awaitPods waits for what the API shows, if something is known that it showed an earlier agent.
func (a *Agent) awaitPods(ctx context.Context) {
	if a.kept == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	for !a.cfg.Pods.Snapshot().Known {
		select {
		case <-ctx.Done():
			return
		case <-a.cfg.Pods.Wake():
		}
	}
}

// takePods takes over what the API shows. Until it shows anything, what it showed an earlier agent of this boot counts.
func (a *Agent) takePods() {
	a.apiAway.Store(false)
	a.pods = a.cfg.Pods.Snapshot()
	switch {
	case a.pods.Known:
		a.kept = nil
		a.store.Pods.Changed()
	case a.kept != nil:
		a.pods = *a.kept
	}
}

// untilNext returns how long nothing needs to be done unless something happens.
func (a *Agent) untilNext() time.Duration {
	next := heartbeat
	for _, at := range []time.Time{a.nextAudit, a.plan.Next, a.kernel.NextLoad()} {
		if !at.IsZero() {
			next = min(next, time.Until(at))
		}
	}
	if (a.changed || a.kernel.Changed()) && a.kernel.Found() {
		next = 0
	}
	return max(next, 0)
}

// updatePolicy evaluates the policies, and reports whether the result changed.
func (a *Agent) updatePolicy(now time.Time) bool {
	changed := a.policy.Update(now, a.pods.NodeInfo, a.pods.Policies)
	a.changed = a.changed || changed
	return changed
}

// turn observes what happened, and decides again if anything differs from the input of the last round.
func (a *Agent) turn(podsChanged bool) {
	now := time.Now()
	m := a.kernel
	if !m.Found() {
		if err := m.Find(); err != nil {
			a.notReady(err.Error())
			return
		}
		a.takePods()
	}
	if podsChanged {
		a.takePods()
		a.updatePolicy(now)
		a.changed = true
	}
	dirsChanged, audited := m.Update(a.pods.Pods, podsChanged, !now.Before(a.nextAudit), &a.plan)
	if (podsChanged || dirsChanged) && a.kubelet.StaticCPUs {
		a.poller.Doubt()
	}
	if audited {
		a.recorder.Audit()
		a.nextAudit = now.Add(a.cfg.SyncPeriod)
	}
	if soon := now.Add(time.Second); !m.Watched() && soon.Before(a.nextAudit) {
		a.nextAudit = soon // files that are not watched must be polled
	}
	due := a.changed || m.Changed() || !a.plan.Next.IsZero() && !now.Before(a.plan.Next)
	if measured := m.Measure(now); due || measured {
		a.round(now, due)
		if load := m.Load(); measured && load != nil {
			a.recorder.Measured(load, a.plan.Pods, &a.plan)
		}
	}
	a.assess()
}

// round decides the node and carries the plan out. A round that was due only because of the time is recorded in the
// journal only if it decided something new.
func (a *Agent) round(now time.Time, reason bool) {
	r := a.decide(now)
	news := reason || !sameDecisions(&a.plan, &r.Plan)
	before := a.plan
	a.plan = r.Plan
	if a.pods.Known {
		a.placing.Store(a.placingOf(&r))
	}
	if a.store.State.Due(&a.state, now) {
		// Before the kernel's files, like the undo record: a restart must find the CPUs of pods.
		a.log.Report("state", a.store.State.Save(&a.state, now))
	}
	a.incidents = a.kernel.Apply(&r.Plan)
	a.release(r.Plan.Pods)
	a.changed = false
	a.lastRound = time.Now()
	a.recorder.Round(&before, &r.Plan, a.lastRound.Sub(now))
	// After the kernel's files: what people read can wait.
	if news {
		a.log.Report("journal", a.store.Journal.Append(&r))
	}
	a.log.Report("podlist", a.store.Pods.Save(&a.pods, now))
	a.log.Report("allowances", a.store.Allowances.Write(&r.Node, &r.Policy, &r.Plan))
	if r.Plan.Report.Write {
		r.Plan.Report.Pressure = a.recorder.Pressure(a.kernel.Load())
		r.Plan.Report.Throttled = a.recorder.Throttled(a.kernel.Load())
	}
	a.writer.Post(&r.Node, &r.Plan)
}

// decide decides a round. If the plan needs an observation that the round lacks, decide observes it and decides again,
// before anything is carried out: no plan rests on less than it needs.
func (a *Agent) decide(now time.Time) node.Round {
	const attempts = 3
	once := a.kernel.ObserveOnce()
	state := a.state
	for attempt := 1; ; attempt++ {
		r := node.Round{Node: a.observe(now, once), Policy: *a.policy.Policy(), State: state}
		r.Plan, a.state = node.Decide(r.Node, r.Policy, r.State)
		if !a.kernel.Need(now, &r.Plan.Observe) || attempt == attempts {
			return r
		}
	}
}

// observe returns the input of a round.
func (a *Agent) observe(now time.Time, once kernel.Once) model.Node {
	n := model.Node{
		Now:         now,
		Capacity:    a.pods.Capacity,
		Allocatable: a.pods.Allocatable,
		Kubelet:     a.kubelet,
		Pods:        a.pods.Pods,
		PodsKnown:   a.pods.Known,
		PodsKept:    a.kept != nil,
		Withdrawn:   a.pods.Withdrawn,
		Koordinator: a.cfg.Koordinator,
		Incidents:   a.incidents,
		Ruling:      a.policy.Says(),
		Object:      model.NodeObject{UID: a.pods.UID, Published: a.pods.Published, Reported: a.pods.Reported},
		Writes:      a.writer.Writes(),
	}
	a.kernel.Observe(&n, once)
	n.Pods, a.reported = identify(n.Pods, &n.Tree, a.reported)
	return n
}
