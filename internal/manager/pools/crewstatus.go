package pools

import (
	"slices"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/crew"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/yarn"
)

// summarize writes the workers into a status. It returns whether none has anything left.
func (c *crewRound) summarize(s *v1alpha1.WorkerPoolStatus) (gone bool) {
	s.Next, s.Containers, s.Workers, s.Used, s.ResourceManager = c.next(), 0, nil, v1alpha1.YARNResources{}, nil
	tally := c.tally
	s.Wanted, s.Active, s.Leaving = int32(tally.Wanted), int32(tally.Active), int32(tally.Leaving)
	one := pool.Size{MemoryMiB: yarn.MiB(c.read.Floor.Memory), VCores: yarn.VCores(c.read.Floor.CPU, 1)}
	active := int64(tally.Active)
	s.Total = *amountOf(pool.Size{MemoryMiB: active * one.MemoryMiB, VCores: active * one.VCores})
	gone = true
	for i := range c.places {
		pl := &c.places[i]
		step := &pl.crew.step
		idle := pl.pod == nil && step.Phase == crew.Stopped
		gone = gone && idle
		row := c.row(pl, &pl.row)
		if idle && (pl.index < 0 || row.Ended == nil) {
			continue // it is not the pool's any more, or never ran
		}
		if step.Phase == crew.Active {
			row.Total = amountOf(one)
		}
		s.Workers = append(s.Workers, row)
	}
	slices.SortFunc(s.Workers, func(a, b v1alpha1.WorkerStatus) int { return strings.Compare(a.Name, b.Name) })
	return gone
}

// row returns the status of one worker.
func (c *crewRound) row(pl *place, was *v1alpha1.WorkerStatus) v1alpha1.WorkerStatus {
	step := &pl.crew.step
	row := v1alpha1.WorkerStatus{
		Name: step.Worker, Node: pl.node, Phase: v1alpha1.WorkerPhase(step.Phase), Reason: string(step.Why),
		Message: kube.Shorten(message(pl), maxMessage), Since: second(c.now), Attempts: int32(pl.worker.Attempts),
	}
	if was.Phase == row.Phase {
		row.Since = was.Since
	}
	if pl.worker.Pod != nil {
		row.Pod = pl.pod.uid
	}
	if !pl.worker.Ended.IsZero() {
		ended := second(pl.worker.Ended)
		row.Ended = &ended
	}
	if step.Phase == crew.Draining && step.Within > 0 {
		until := second(c.now.Add(step.Within))
		row.Until = &until
	}
	switch {
	case step.Verb == crew.DeletePod && step.Failed && c.counts(pl):
		row.Attempts++
	case step.Phase == crew.Active:
		row.Attempts = 0
	}
	if row.Message == "" && row.Attempts > 0 {
		row.Message = was.Message // why the last one failed, which nobody shows any more
	}
	return row
}
