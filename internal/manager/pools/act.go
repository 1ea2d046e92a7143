package pools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

// errExclude is the error of a step whose entry in the exclude file failed, which has a condition of its own.
var errExclude = errors.New("the exclude file was not changed")

// tellWithin bounds how long a round tells the ResourceManager things. One that hangs must not delay what has to stop
// in the next round.
const tellWithin = 15 * time.Second

// parallel is how many steps are carried out at a time.
const parallel = 8

// inParallel calls f for 0 to n-1, a few at a time.
func inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

// act decides, and carries out the steps. A step that fails is decided again in the next round.
func (r *round) act(ctx context.Context) {
	r.steps = pool.Next(&r.in)
	r.confirm(ctx)
	clear(r.k.heard)
	pool.Pace(&r.in, r.steps, r.most())
	failed := make([]error, len(r.steps))
	inParallel(len(r.steps), func(i int) { failed[i] = r.mark(ctx, i) })
	all := func(ctx context.Context, verb pool.Verb) {
		inParallel(len(r.steps), func(i int) {
			if failed[i] == nil && r.steps[i].Verb == verb {
				failed[i] = r.one(ctx, i)
			}
		})
	}
	all(ctx, pool.DeletePod)
	telling, cancel := context.WithTimeout(ctx, tellWithin)
	r.label(telling, failed)
	r.exclude(telling, failed)
	r.resize(telling, failed)
	cancel()
	all(ctx, pool.CreatePod)
	if slices.ContainsFunc(r.steps, func(s pool.Step) bool { return s.Why == pool.NothingSold }) {
		r.unsold()
	}
	for i, err := range failed {
		if verb := r.steps[i].Verb; verb != pool.Wait {
			r.k.count(verb, err)
		}
		if !errors.Is(err, errExclude) {
			r.t.add(v1alpha1.ConditionStepsFailed, "StepFailed", err)
		}
	}
}

// confirm reads the labels again if pods are to be made and the labels were read in an earlier round, and then decides
// again. The labels may have gone since, and a NodeManager that registers without its label takes anybody's containers.
func (r *round) confirm(ctx context.Context) {
	makes := slices.ContainsFunc(r.steps, func(s pool.Step) bool { return s.Verb == pool.CreatePod })
	if !makes || !r.k.engine.looked.Before(r.now) {
		return
	}
	r.k.engine.doubt = true
	if err := r.k.engine.lookAtLabels(ctx); err != nil {
		r.unreachable(err)
		r.view, r.in.RM = nil, pool.RM{Since: r.in.RM.Since}
	} else {
		r.view.label, r.view.hosts = r.k.engine.label, r.k.engine.hosts
		r.in.RM.Labels = r.view.label
	}
	for i := range r.places {
		if r.view != nil {
			r.in.Workers[i].Label = r.view.labelOf(&r.places[i])
		}
		r.places[i].worker = &r.in.Workers[i]
	}
	r.steps = pool.Next(&r.in)
}

// mark writes the marks of a worker's pod, what it holds and what it may use, before its step is carried out.
func (r *round) mark(ctx context.Context, i int) error {
	pl, s := &r.places[i], &r.steps[i]
	if pl.worker.Pod == nil {
		return nil
	}
	marks, held := encode(s.Marks), s.Held<<20
	if r.view == nil {
		held = pl.pod.held
	}
	allowance := r.allowance(pl, s)
	if marks == encode(pl.pod.marks) && held == pl.pod.held && allowance == pl.pod.allowance {
		return nil
	}
	return r.k.markPod(ctx, pl.pod, marks, held, allowance)
}

// label adds the pool's label to the ResourceManager's store if it is missing, and labels hosts.
func (r *round) label(ctx context.Context, failed []error) {
	if r.view == nil {
		return
	}
	spec := r.p.Spec.YARN.Label
	r.k.engine.doubt = r.k.engine.doubt || !r.view.label
	if !r.view.label && r.p.DeletionTimestamp == nil {
		err := r.k.engine.rm.AddLabel(ctx, yarn.Label{Name: spec.Name, Exclusive: !spec.Shared})
		if err != nil {
			r.t.add(v1alpha1.ConditionLabelRefused, "LabelRefused", fmt.Errorf("node label %s could not be added, so no "+
				"worker starts; does yarn-site.xml of the ResourceManager set yarn.node-labels.enabled, and may user %q "+
				"administer the cluster (yarn.admin.acl)? %w", spec.Name, r.p.Spec.YARN.User, err))
		}
	}
	hosts := map[string]string{}
	for i, s := range r.steps {
		if s.Verb == pool.LabelHost && failed[i] == nil {
			hosts[r.places[i].labelled] = spec.Name
		}
	}
	if len(hosts) == 0 {
		return
	}
	r.k.engine.doubt = true
	if err := r.k.engine.rm.SetNodeLabels(ctx, hosts); err != nil {
		r.t.add(v1alpha1.ConditionLabelRefused, "HostsNotLabelled", fmt.Errorf("hosts could not be given the label: %w", err))
	}
}

// exclude writes all changes of the exclude file at once, and has it read.
func (r *round) exclude(ctx context.Context, failed []error) {
	k := r.k
	add, remove := map[string]time.Duration{}, map[string]bool{}
	longest := time.Duration(0)
	for i, s := range r.steps {
		host := r.places[i].host
		switch {
		case failed[i] != nil:
		case s.Verb == pool.Exclude:
			add[host] = s.Within
			longest = max(longest, s.Within)
		case s.Verb == pool.Include:
			remove[host] = true
		}
	}
	if len(add)+len(remove) == 0 {
		return
	}
	reason, err := r.changeExcludes(ctx, add, remove, longest)
	r.t.add(v1alpha1.ConditionExcludeFailed, reason, err)
	if err != nil {
		for i, s := range r.steps {
			if s.Verb == pool.Exclude || s.Verb == pool.Include {
				failed[i] = errors.Join(failed[i], errExclude)
			}
		}
		return
	}
	for i, s := range r.steps {
		if s.Verb == pool.Exclude && failed[i] == nil {
			k.hears(r.places[i].worker.Name, r.now.Add(s.Within))
		}
	}
	clear(k.unread)
}

func (r *round) changeExcludes(
	ctx context.Context, add map[string]time.Duration, remove map[string]bool, longest time.Duration,
) (reason string, err error) {
	k := r.k
	if reason, err := k.c.editExcludes(excludeFile{k.c.o.ExcludeDir, r.p.Spec.YARN.ExcludeFile}, add, remove); err != nil {
		return reason, err
	}
	if k.unread == nil {
		k.unread = map[string]bool{}
	}
	for host := range add {
		k.unread[host] = true
	}
	maps.Copy(k.unread, remove)
	if err := k.engine.readExcludes(ctx, longest); err != nil {
		return "NotRead", err
	}
	return "", nil
}

// editExcludes changes an exclude file. Another pool may have the same one.
func (c *Controller) editExcludes(
	f excludeFile, add map[string]time.Duration, remove map[string]bool,
) (reason string, err error) {
	c.excludes.Lock()
	defer c.excludes.Unlock()
	content, err := f.read()
	if err != nil {
		return "Unreadable", err
	}
	next, err := f.with(content, add, remove)
	if err != nil {
		return "Unreadable", err
	}
	if string(next) == string(content) {
		return "", nil
	}
	return "NotWritable", f.write(next)
}

// unsold reports that pods of workers are not created because nothing is sold. No step failed: Ready says it.
func (r *round) unsold() {
	r.t.add(v1alpha1.ConditionReady, "NothingSold", errors.New("pods of workers are not created: no policy in mode "+
		"Enforce sells CPU or memory, so they would be online pods; set mode: Enforce in a policy that has cpu or memory"))
}

// one carries out the step of one worker, except those that others do for all.
func (r *round) one(ctx context.Context, i int) error {
	pl, s := &r.places[i], &r.steps[i]
	switch s.Verb {
	case pool.CreatePod:
		if pl.pod != nil {
			return r.k.deletePod(ctx, pl.pod, 0) // it is over
		}
		pod, sold := r.newPod(pl, s.Marks)
		if !sold {
			*s = pool.Step{Worker: s.Worker, Phase: pool.Terminated, Verb: pool.Wait, Why: pool.NothingSold}
			return nil
		}
		return r.k.createPod(ctx, r.p, pod)
	case pool.DeletePod:
		seconds := int64(s.Within / time.Second)
		if pl.pod.deleting && pl.pod.grace <= seconds {
			return nil
		}
		return r.k.deletePod(ctx, pl.pod, seconds)
	case pool.Resize:
		m, _ := pl.worker.Manager() // there is one, or it would not be resized
		r.k.asks(pl.worker.Name, m.Total, s.Size, r.now)
		err := r.k.engine.rm.SendResize(ctx, m.ID, resourceOf(s.Size), s.Within)
		if err != nil {
			return fmt.Errorf("resizing %s to %s: %w", pl.worker.Name, s.Size, err)
		}
		r.k.hears(pl.worker.Name, r.now.Add(s.Within))
	}
	return nil
}
