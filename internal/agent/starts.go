package agent

import (
	"context"
	"slices"
	"sync"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Answers are what the agent answers the container runtime. They may be called from any goroutine.
type Answers struct {
	// Place places a container by the last round.
	Place func(c model.RuntimeContainer) (model.Placement, bool)
	// Start returns when a container may run its first instruction: at once if Waterline sets no limits of its pod, else
	// once they are written, or when the context ends. The container's cgroup exists.
	Start func(ctx context.Context, c model.RuntimeContainer)
	// Runs notes a container that runs already. It returns at once.
	Runs func(c model.RuntimeContainer)
}

// start is a container that the runtime reported.
type start struct {
	model.RuntimeContainer
	ctx     context.Context // of the one who waits
	written chan struct{}   // closed when the files of its pod are written; nil: nobody waits
}

// inbox passes what the runtime reports to the loop.
type inbox struct {
	mu     sync.Mutex
	starts []start
	wake   chan struct{}
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (i *inbox) put(s start) {
	i.mu.Lock()
	i.starts = append(i.starts, s)
	i.mu.Unlock()
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

func (i *inbox) take() []start {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := i.starts
	i.starts = nil
	return all
}

// start holds a container back until its limits are written. It does not wait before the first round. It also does not
// wait for a pod that the API has not shown, if the last such wait timed out and the API has shown no change since: the
// API is then unreachable, and every start on this node would take as long as the time-out.
func (a *Agent) start(ctx context.Context, c model.RuntimeContainer) {
	placing := a.placing.Load()
	if placing != nil && !placing.Awaits(c) {
		return
	}
	known := placing.Knows(c.PodUID)
	if placing == nil || !known && a.apiAway.Load() {
		a.started.put(start{RuntimeContainer: c})
		return
	}
	s := start{c, ctx, make(chan struct{})}
	a.started.put(s)
	select {
	case <-s.written:
	case <-ctx.Done():
		a.apiAway.Store(!known)
	}
}

// takeStarts takes what the runtime reported. The next round decides their files.
func (a *Agent) takeStarts() {
	for _, s := range a.started.take() {
		a.reported = slices.DeleteFunc(a.reported, func(c model.RuntimeContainer) bool {
			return c.PodUID == s.PodUID && c.Name == s.Name
		})
		a.reported = append(a.reported, s.RuntimeContainer)
		if s.written != nil {
			a.waiting = append(a.waiting, s)
		}
	}
	a.changed = true
	if a.kernel.Found() {
		a.kernel.Scan()
	}
}

// release lets the containers run whose files a round has written. The API has shown their pods. Nobody waits any more
// for those whose context has ended.
func (a *Agent) release(pods []*model.Pod) {
	a.waiting = slices.DeleteFunc(a.waiting, func(s start) bool {
		if model.FindPod(pods, s.PodUID) == nil {
			return s.ctx.Err() != nil
		}
		close(s.written)
		return true
	})
}

// identify returns the pods with the ids of their containers that the runtime reported and the API does not show yet.
// It also returns which are still to be shown, of pods that have a cgroup. No pod of the argument is changed.
func identify(
	pods []*model.Pod, tree *model.Tree, reported []model.RuntimeContainer,
) ([]*model.Pod, []model.RuntimeContainer) {
	copied := false
	left := slices.DeleteFunc(reported, func(c model.RuntimeContainer) bool {
		group, exists := tree.Pods[c.PodUID]
		shown := !exists
		// The containers of a pod are listed only once the pod is known.
		runs := slices.ContainsFunc(group.Containers, func(name string) bool {
			id, ok := cgroup.ContainerID(name)
			return ok && id == c.ID
		})
		for i, pod := range pods { // two have one UID if one is a forged mirror pod
			at := slices.IndexFunc(pod.Containers, func(of model.Container) bool { return of.Name == c.Name })
			if pod.UID != c.PodUID || at < 0 {
				continue
			}
			if pod.Containers[at].ID == c.ID {
				shown = true
				continue
			}
			if !runs { // another instance has followed, which was not reported
				continue
			}
			if !copied {
				pods, copied = slices.Clone(pods), true
			}
			with := *pod
			with.Containers = slices.Clone(pod.Containers)
			with.Containers[at].ID = c.ID
			pods[i] = &with
		}
		return shown
	})
	return pods, left
}
