// Package kubelet reads what the agent must know of the kubelet beside the API: its settings and its CPU allocations.
package kubelet

import (
	"context"
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/agent/trouble"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	settingsEvery = 5 * time.Minute
	settingsAgain = 10 * time.Second // after a failure
	// The kubelet itself compares its CPU sets with its containers this often by default.
	poolEvery = 10 * time.Second
	// Between two questions, whatever happens meanwhile.
	poolPause = time.Second
)

// Poller reads the kubelet's settings, and under CPU manager policy static the CPUs that it has allocated.
type Poller struct {
	Settings func(ctx context.Context) (model.Kubelet, error) // nil: they are never read
	Pool     func(ctx context.Context) (model.CPUPool, error) // read under policy static; nil: never
	Pods     func() model.Snapshot                            // of this node
	Log      *trouble.Log

	doubts chan struct{} // the kubelet may have allocated other CPUs
}

// New returns a poller that reads nothing yet.
func New(p Poller) *Poller {
	p.doubts = make(chan struct{}, 1)
	return &p
}

// Run reads the settings until they are known, and from time to time again; and under policy static, which CPUs are
// allocated. It delivers both as one value, each time that it has changed.
func (p *Poller) Run(ctx context.Context, answers chan<- model.Kubelet) {
	if p.Settings == nil {
		return
	}
	var is, told model.Kubelet
	var settingsDue time.Time
	failures := 0 // of questions for the pool, in a row
	for ctx.Err() == nil {
		if !time.Now().Before(settingsDue) {
			settingsDue = time.Now().Add(p.readSettings(ctx, &is))
		}
		wait := time.Until(settingsDue)
		if is.StaticCPUs && p.Pool != nil {
			before := failures
			failures = p.readPool(ctx, &is, failures)
			if before > 0 && failures == 0 {
				// The kubelet may have come back with other settings, which say what its answer means.
				settingsDue = time.Time{}
				continue
			}
			wait = min(wait, poolEvery)
			if failures == 1 {
				wait = poolPause
			}
		}
		if is != told && ctx.Err() == nil {
			select {
			case answers <- is:
				told = is
			case <-ctx.Done():
			}
		}
		p.untilDoubt(ctx, wait)
	}
}

// readSettings reads the kubelet's configuration and returns when to do so again.
func (p *Poller) readSettings(ctx context.Context, is *model.Kubelet) time.Duration {
	settings, err := p.Settings(ctx)
	if ctx.Err() != nil {
		return settingsAgain
	}
	p.Log.Report("kubelet", err)
	if err != nil {
		return settingsAgain
	}
	if settings.StaticCPUs {
		settings.PoolKnown, settings.AllocatableCPUs, settings.TakenCPUs = is.PoolKnown, is.AllocatableCPUs, is.TakenCPUs
	}
	*is = settings
	return settingsEvery
}

// readPool asks which CPUs the kubelet has handed out, and returns how many times in a row that failed. The first time
// is not reported: a kubelet that restarts is away for about a second. What was known then stays, marked as old.
func (p *Poller) readPool(ctx context.Context, is *model.Kubelet, failures int) int {
	pods := p.Pods().Pods // from before the question: of a pod that comes later the answer need not tell
	pool, err := p.Pool(ctx)
	if err == nil {
		err = complete(&pool, pods)
	}
	if ctx.Err() != nil {
		return failures
	}
	if err != nil {
		is.PoolKnown = false
		if failures > 0 {
			p.Log.Report("pod-resources", err)
		}
		return failures + 1
	}
	p.Log.Report("pod-resources", nil)
	is.PoolKnown, is.AllocatableCPUs, is.TakenCPUs = true, pool.Allocatable, pool.Taken
	return 0
}

// complete returns an error if an answer leaves out a pod that may have CPUs of its own. A kubelet that has just
// started answers before it has heard of its pods, which may take as long as the API server is away, and then their
// CPUs look free.
func complete(pool *model.CPUPool, pods []*model.Pod) error {
	for _, pod := range pods {
		if pod.QoS != model.Guaranteed || pod.Ended || pool.Pods[pod.Namespace+"/"+pod.Name] {
			continue
		}
		for i := range pod.Containers {
			if pod.Containers[i].ID != "" {
				return fmt.Errorf("the kubelet does not tell of the CPUs of pod %s/%s, which runs here", pod.Namespace, pod.Name)
			}
		}
	}
	return nil
}

// Doubt has the allocated CPUs read again soon.
func (p *Poller) Doubt() {
	select {
	case p.doubts <- struct{}{}:
	default:
	}
}

// untilDoubt waits for as long as it is told, or until somebody doubts the pool.
func (p *Poller) untilDoubt(ctx context.Context, wait time.Duration) {
	pause := time.NewTimer(poolPause)
	defer pause.Stop()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-p.doubts:
	}
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
}
