package pools

import (
	"context"
	"net"
	"strings"
	"sync"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

// askOwn asks the NodeManagers of workers whose deadline is over what their containers use, because the ResourceManager
// does not say it. One that does not answer is taken as one whose containers do not fit.
func (r *round) askOwn(ctx context.Context) {
	if r.k.engine == nil {
		return
	}
	var which []int
	for i := range r.places {
		pl := &r.places[i]
		w := pl.worker
		if w.Pod != nil && pl.pod.ip != "" && !w.Pod.Marks.Until.IsZero() && !r.now.Before(w.Pod.Marks.Until) {
			which = append(which, i)
		}
	}
	r.askEach(ctx, which, func(ctx context.Context, pl *place) error {
		own := pool.Size{}
		err := r.k.engine.nm.EachContainer(ctx, r.webOf(pl), func(c yarn.Container) {
			if !c.Ended() {
				own.MemoryMiB += c.Size.MemoryMiB
				own.VCores += c.Size.VCores
			}
		})
		if err == nil {
			pl.worker.Own = &own
		}
		return err
	})
}

// ask asks the NodeManagers of some workers themselves: those that drain for their containers, and those that do not
// register for their name.
func (r *round) ask(ctx context.Context) {
	defer r.reportSilent()
	if r.view == nil {
		r.askOwn(ctx)
		return
	}
	r.view.listed = map[string]int{}
	var drain, stray []int
	for i := range r.places {
		pl := &r.places[i]
		w := pl.worker
		if w.Pod == nil || pl.pod.ip == "" || w.Pod.Started.IsZero() {
			continue
		}
		leaves := w.Leaves() || !w.Pod.Marks.Leaving.IsZero()
		switch managers, _ := r.view.managers(pl.host); {
		case len(managers) == 1 && leaves && r.in.Settings.Graceful && managers[0].Containers > 0:
			drain = append(drain, i)
			r.view.listed[w.Name] = unlisted
		case len(managers) == 0 && r.now.Sub(w.Pod.Started) >= strayAfter:
			stray = append(stray, i)
		}
	}
	var mu sync.Mutex
	r.askEach(ctx, drain, func(ctx context.Context, pl *place) error {
		running := 0
		err := r.k.engine.nm.EachContainer(ctx, r.webOf(pl), func(c yarn.Container) {
			if c.State == yarn.ContainerRunning {
				running++
			}
		})
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			r.view.listed[pl.worker.Name] = running
		}
		return err
	})
	r.askEach(ctx, stray, func(ctx context.Context, pl *place) error {
		info, err := r.k.engine.nm.Info(ctx, r.webOf(pl))
		if host, _, bad := net.SplitHostPort(info.ID); err == nil && bad == nil && !strings.EqualFold(host, pl.host) {
			pl.worker.Stray = host
		}
		return nil // it may just be starting
	})
}

// scheme is that of the web services of NodeManagers, which is the ResourceManager's: yarn.http.policy is one for both.
func (r *round) scheme() string {
	scheme, _, _ := strings.Cut(r.p.Spec.YARN.ResourceManagers[0], ":")
	return scheme
}
