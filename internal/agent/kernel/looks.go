package kernel

import (
	"context"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// looks measures, ten times a second while batch runs, how long online pods wait for CPUs. It runs beside the loop and
// wakes it only if they wait for too long.
type looks struct {
	log    *faillog.Log
	begin  chan struct{}
	waited chan struct{} // pods waited longer than their marks say

	mu      sync.Mutex
	waits   *host.Waits // nil: the kubelet's cgroups were not found yet; the goroutine's once it was passed to it
	marks   []model.WaitMark
	every   time.Duration   // between two looks; 0: none is needed
	sums    []model.PodWait // ordered by UID
	sampled model.SampledPods
}

func newLooks(log *faillog.Log) *looks {
	return &looks{log: log, begin: make(chan struct{}, 1), waited: make(chan struct{})}
}

// lookInterval is the shortest time between two looks.
const lookInterval = 100 * time.Millisecond

// compare sets what is measured from now on, and what it is compared with.
func (l *looks) compare(with *host.Waits, needs *model.Observe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.every
	l.waits, l.marks, l.every = with, needs.Waits, 0
	if len(needs.Waits) > 0 {
		l.every = max(needs.WaitsEvery, lookInterval)
	}
	if l.every != 0 && (before == 0 || l.every < before) {
		select {
		case l.begin <- struct{}{}:
		default:
		}
	}
}

func (l *looks) current() (*host.Waits, []model.WaitMark, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waits, l.marks, l.every
}

// take appends what pods ran and waited so far.
func (l *looks) take(to []model.PodWait) []model.PodWait {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(to, l.sums...)
}

// count returns how many pods are sampled; nil: none must be.
func (l *looks) count() *model.SampledPods {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.every == 0 {
		return nil
	}
	n := l.sampled
	return &n
}

// run measures while a plan needs it.
func (l *looks) run(ctx context.Context) {
	var used *host.Waits
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.begin:
		case <-timer.C:
		}
		waits, marks, every := l.current()
		if used != nil && (used != waits || every == 0) {
			used.Close()
		}
		if used = waits; every == 0 || waits == nil {
			used = nil
			timer.Stop()
			continue
		}
		l.look(ctx, waits, marks)
		timer.Reset(every)
	}
}

// look looks once how long pods waited.
func (l *looks) look(ctx context.Context, waits *host.Waits, marks []model.WaitMark) {
	l.log.Report("waits", waits.Sample(marks))
	l.mu.Lock()
	l.sums, l.sampled = waits.Append(l.sums[:0]), waits.Sampled()
	long := exceeded(l.marks, l.sums)
	l.mu.Unlock()
	if long {
		select {
		case l.waited <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// exceeded reports whether a pod waited longer than its mark says. Both are ordered by UID.
func exceeded(marks []model.WaitMark, sums []model.PodWait) bool {
	for i := range marks {
		if sum := model.FindWait(sums, marks[i].UID); sum != nil && marks[i].Exceeded(sum) {
			return true
		}
	}
	return false
}
