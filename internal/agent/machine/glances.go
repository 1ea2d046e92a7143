package machine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/agent/trouble"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// glances measures ten times a second whether online pods suddenly use more CPU, and how long they wait for CPUs. It
// runs beside the loop and wakes it only if they do one of both.
type glances struct {
	log    *trouble.Log
	begin  chan struct{}
	rose   chan model.Glance // glances that exceeded the mark
	waited chan struct{}     // pods waited longer than their marks say

	sampled time.Time // when waits were sampled last; only run uses it

	mu    sync.Mutex
	eyes  *eyes // nil: the kubelet's cgroups were not found yet
	needs model.Observe
	sums  []model.PodWait // ordered by UID
}

// eyes are what glances measures with. They are the goroutine's once they were passed to it.
type eyes struct {
	glancer *host.Glancer
	waits   *host.Waits
}

func newGlances(log *trouble.Log) *glances {
	return &glances{
		log: log, begin: make(chan struct{}, 1), rose: make(chan model.Glance), waited: make(chan struct{}),
	}
}

// compare sets what is measured from now on, and what it is compared with.
func (g *glances) compare(with *eyes, needs *model.Observe) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := pace(&g.needs)
	g.eyes = with
	g.needs.Glances, g.needs.Beside = needs.Glances, needs.Beside
	g.needs.Waits, g.needs.WaitsEvery = needs.Waits, needs.WaitsEvery
	if now := pace(&g.needs); now != 0 && (before == 0 || now < before) {
		select {
		case g.begin <- struct{}{}:
		default:
		}
	}
}

// often is the time between two glances, and the shortest between two samples of waits.
const often = 100 * time.Millisecond

// pace returns the time between two looks; 0: nothing is needed.
func pace(needs *model.Observe) time.Duration {
	switch {
	case needs.Glances != (model.GlanceMark{}):
		return often
	case len(needs.Waits) > 0:
		return max(needs.WaitsEvery, often)
	}
	return 0
}

func (g *glances) current() (*eyes, model.Observe) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.eyes, g.needs
}

// take appends what pods ran and waited so far.
func (g *glances) take(to []model.PodWait) []model.PodWait {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append(to, g.sums...)
}

// run measures while a plan needs it.
func (g *glances) run(ctx context.Context) {
	var used *eyes
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.begin:
		case <-timer.C:
		}
		eyes, needs := g.current()
		if used != nil && (used != eyes || pace(&needs) == 0) {
			used.glancer.Close()
			used.waits.Close()
			g.sampled = time.Time{}
		}
		if used = eyes; pace(&needs) == 0 || eyes == nil {
			used = nil
			timer.Stop()
			continue
		}
		g.glance(ctx, eyes, &needs)
		g.wait(ctx, eyes, &needs)
		timer.Reset(pace(&needs))
	}
}

// glance looks once whether online pods use more than they did.
func (g *glances) glance(ctx context.Context, eyes *eyes, needs *model.Observe) {
	if needs.Glances == (model.GlanceMark{}) {
		return
	}
	seen, err := eyes.glancer.Glance(needs.Beside)
	g.log.Report("glancing", err)
	if _, now := g.current(); slices.Equal(now.Beside, needs.Beside) && now.Glances.Exceeded(&seen) {
		select {
		case g.rose <- seen:
		case <-ctx.Done():
		}
	}
}

// wait looks once how long pods waited, if that is due: glances may be needed more often.
func (g *glances) wait(ctx context.Context, eyes *eyes, needs *model.Observe) {
	if len(needs.Waits) == 0 {
		eyes.waits.Close()
		g.sampled = time.Time{}
		return
	}
	now := time.Now()
	if now.Sub(g.sampled) < needs.WaitsEvery-often/2 {
		return
	}
	g.sampled = now
	g.log.Report("waits", eyes.waits.Sample(needs.Waits))
	g.mu.Lock()
	g.sums = eyes.waits.Append(g.sums[:0])
	long := exceeded(g.needs.Waits, g.sums)
	g.mu.Unlock()
	if long {
		select {
		case g.waited <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// exceeded reports whether a pod waited longer than its mark says. Both are ordered by UID.
func exceeded(marks []model.WaitMark, sums []model.PodWait) bool {
	next := 0
	for i := range marks {
		for next < len(sums) && sums[next].UID < marks[i].UID {
			next++
		}
		if next < len(sums) && sums[next].UID == marks[i].UID && marks[i].Exceeded(&sums[next]) {
			return true
		}
	}
	return false
}
