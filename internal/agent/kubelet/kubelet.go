// Package kubelet reads the kubelet's settings and its CPU allocations, which the API does not contain.
package kubelet

import (
	"context"
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	settingsInterval = 5 * time.Minute
	settingsRetry    = 10 * time.Second // after a failure
	// The kubelet itself compares its CPU sets with its containers this often by default.
	poolInterval = 10 * time.Second
	// Between two reads, whatever happens meanwhile.
	poolPause = time.Second
)

// Poller reads the kubelet's settings, and under CPU manager policy static the CPUs that it has allocated.
type Poller struct {
	Settings func(ctx context.Context) (model.Kubelet, error) // nil: they are never read
	Pool     func(ctx context.Context) (model.CPUPool, error) // read under policy static; nil: never
	Pods     func() model.Snapshot                            // of this node
	Log      *faillog.Log

	doubts chan struct{} // the kubelet may have allocated other CPUs
}

// New returns a poller that reads nothing yet.
func New(p Poller) *Poller {
	p.doubts = make(chan struct{}, 1)
	return &p
}

// Run reads the settings until they are known, and from time to time again, and under policy static the CPU
// allocations. It delivers both as one value, each time that it has changed.
func (p *Poller) Run(ctx context.Context, answers chan<- model.Kubelet) {
	if p.Settings == nil {
		return
	}
	var is, told model.Kubelet
	var settingsDue time.Time
	failed := 0   // to read the settings, in a row
	failures := 0 // to read the pool, in a row
	for ctx.Err() == nil {
		if !time.Now().Before(settingsDue) {
			if p.readSettings(ctx, &is) {
				failed = 0
			} else {
				failed++
			}
			settingsDue = time.Now().Add(settle(&is, failed))
		}
		wait := time.Until(settingsDue)
		if is.StaticCPUs && p.Pool != nil {
			before := failures
			failures = p.readPool(ctx, &is, failures)
			if before > 0 && failures == 0 {
				// The kubelet may have restarted with other settings, on which the meaning of its answer depends.
				settingsDue = time.Time{}
				continue
			}
			wait = min(wait, poolInterval)
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

// settle returns the time until the settings are read again after so many failures in a row. What only somebody can
// correct, such as a self-signed certificate, is tried ever less often: it is no failure of the agent, and is shown as
// what it is.
func settle(is *model.Kubelet, failed int) time.Duration {
	switch {
	case failed == 0:
		return settingsInterval
	case is.Unread == "":
		return settingsRetry
	}
	return min(settingsRetry<<min(failed-1, 8), settingsInterval)
}

// readSettings reads the kubelet's configuration, and reports whether that succeeded. The last settings that were read
// stay.
func (p *Poller) readSettings(ctx context.Context, is *model.Kubelet) bool {
	settings, err := p.Settings(ctx)
	if ctx.Err() != nil {
		return false
	}
	p.Log.Report("kubelet", err)
	if err != nil {
		is.Unread = settings.Unread
		return false
	}
	if settings.StaticCPUs {
		settings.PoolKnown, settings.AllocatableCPUs, settings.TakenCPUs = is.PoolKnown, is.AllocatableCPUs, is.TakenCPUs
	}
	*is = settings
	return true
}

// readPool reads the CPU allocations, and returns the number of failures in a row. The first is not reported: a kubelet
// that restarts is away for about a second. The last known allocations stay, marked as old.
func (p *Poller) readPool(ctx context.Context, is *model.Kubelet, failures int) int {
	pods := p.Pods().Pods // from before the read: the answer need not contain later pods
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

// complete returns an error if an answer leaves out a pod that may have exclusive CPUs. A kubelet that has just started
// answers before it knows its pods, which may take as long as the API server is away, and then their CPUs look free.
func complete(pool *model.CPUPool, pods []*model.Pod) error {
	for _, pod := range pods {
		if pod.QoS != model.Guaranteed || pod.Ended || pool.Pods[pod.Namespace+"/"+pod.Name] {
			continue
		}
		for i := range pod.Containers {
			if pod.Containers[i].ID != "" {
				return fmt.Errorf("the kubelet does not report the CPUs of pod %s/%s, which runs here", pod.Namespace, pod.Name)
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

// untilDoubt waits for a time, or until the allocations are in doubt.
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
