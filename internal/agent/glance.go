package agent

import (
	"context"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/suppress"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// watchDemand begins or ends glances: they are of use while there is batch that can be given less.
func (a *Agent) watchDemand() {
	tree := a.tree.Model()
	needed := a.plan.Suppress != nil && a.load != nil && a.plan.Slack != nil && a.ruling.effect.Policy.Mode == model.ModeEnforce
	needed = needed && suppress.Running(a.pods.Pods, &tree) && !suppress.Asleep(&a.plan.Slack.CPU.Use, a.load.CPUMilli)
	if !needed {
		a.glances.compare(nil, suppress.Mark{})
		return
	}
	a.glances.compare(a.glancer, a.mark())
}

// mark returns what glances are compared with now, when something was measured and decided.
func (a *Agent) mark() suppress.Mark {
	return suppress.NewMark(a.load, &a.ruling.effect.Policy, &a.plan.Slack.CPU, &a.state.Suppress)
}

// rise takes in a glance that showed a rise, and reports whether batch must still be given less for that.
func (a *Agent) rise(seen model.Glance) bool {
	if a.load == nil || a.plan.Slack == nil {
		return false
	}
	a.load.Glance = seen
	mark := a.mark()
	a.rose = mark.Below(&seen)
	return a.rose
}

// glances looks ten times a second whether online pods suddenly use more, beside the loop, which is woken only if they do.
type glances struct {
	log   *troubles
	begin chan struct{}
	rose  chan model.Glance // what showed that batch must be given less

	mu      sync.Mutex
	glancer *host.Glancer // nil: nobody needs glances
	mark    suppress.Mark
}

func newGlances(log *troubles) *glances {
	return &glances{log: log, begin: make(chan struct{}, 1), rose: make(chan model.Glance)}
}

// compare says what is looked at and compared from now on. A glancer that was given once is the goroutine's.
func (g *glances) compare(glancer *host.Glancer, mark suppress.Mark) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.glancer == nil && glancer != nil {
		select {
		case g.begin <- struct{}{}:
		default:
		}
	}
	g.glancer, g.mark = glancer, mark
}

func (g *glances) current() (*host.Glancer, suppress.Mark) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.glancer, g.mark
}

// run looks while somebody needs it.
func (g *glances) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.begin:
		}
		glancer, _ := g.current()
		if glancer == nil {
			continue
		}
		for needed := glancer; needed != nil && ctx.Err() == nil; needed, _ = g.current() {
			g.look(ctx, glancer)
			time.Sleep(100 * time.Millisecond)
		}
		glancer.Close()
	}
}

// look looks once.
func (g *glances) look(ctx context.Context, glancer *host.Glancer) {
	seen, err := glancer.Glance()
	g.log.report("glancing", err)
	if _, mark := g.current(); mark.Below(&seen) {
		select {
		case g.rose <- seen:
		case <-ctx.Done():
		}
	}
}
