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

// glances measures ten times a second whether online pods suddenly use more CPU. It runs beside the loop and wakes it
// only if they do.
type glances struct {
	log   *trouble.Log
	begin chan struct{}
	rose  chan model.Glance // glances that exceeded the mark

	mu      sync.Mutex
	glancer *host.Glancer // nil: no plan needs glances
	mark    model.GlanceMark
	beside  []string // cgroups of batch pods outside of class BestEffort; never changed
}

func newGlances(log *trouble.Log) *glances {
	return &glances{log: log, begin: make(chan struct{}, 1), rose: make(chan model.Glance)}
}

// compare sets what glances are compared with from now on; with the zero mark none are made. A glancer that was passed
// once is the goroutine's.
func (g *glances) compare(glancer *host.Glancer, needs *model.Observe) {
	mark := needs.Glances
	if mark == (model.GlanceMark{}) {
		glancer = nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.glancer == nil && glancer != nil {
		select {
		case g.begin <- struct{}{}:
		default:
		}
	}
	g.glancer, g.mark, g.beside = glancer, mark, needs.Beside
}

func (g *glances) current() (*host.Glancer, model.GlanceMark, []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.glancer, g.mark, g.beside
}

// run measures while a plan needs glances.
func (g *glances) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.begin:
		}
		glancer, _, _ := g.current()
		if glancer == nil {
			continue
		}
		for needed := glancer; needed != nil && ctx.Err() == nil; needed, _, _ = g.current() {
			g.look(ctx, glancer)
			time.Sleep(100 * time.Millisecond)
		}
		glancer.Close()
	}
}

// look measures once.
func (g *glances) look(ctx context.Context, glancer *host.Glancer) {
	_, _, beside := g.current()
	seen, err := glancer.Glance(beside)
	g.log.Report("glancing", err)
	if _, mark, now := g.current(); slices.Equal(now, beside) && mark.Exceeded(&seen) {
		select {
		case g.rose <- seen:
		case <-ctx.Done():
		}
	}
}
