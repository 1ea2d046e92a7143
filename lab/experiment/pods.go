package experiment

import (
	"context"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/sandbox"
)

const hogShares = model.MaxShares

// loadPod returns a Burstable pod with busy loops. All such pods request the same: only the annotation differs.
func loadPod(name string, shares int64) *sandbox.Pod {
	return &sandbox.Pod{
		Name: name, QoS: model.Burstable, RequestMilli: 100, Shares: shares, Threads: load.Threads(),
	}
}

// withHog adds the hog to pods, if one is wanted.
func (r *run) withHog(pods ...*sandbox.Pod) []*sandbox.Pod {
	if r.cfg.Hog {
		pods = append(pods, loadPod("hog", hogShares))
	}
	return pods
}

// prepare creates pods and the hog, starts the agent, waits until it has set the weights, and starts the load.
func (r *run) prepare(ctx context.Context, pods ...*sandbox.Pod) error {
	pods = r.withHog(pods...)
	if err := r.Create(pods...); err != nil {
		return err
	}
	if err := r.startAgent(sandbox.AgentPod()); err != nil {
		return err
	}
	if err := r.Await(ctx, pods...); err != nil {
		return err
	}
	return load.BurnAll(ctx, r.Sandbox, pods...)
}

func (r *run) startAgent(p *sandbox.Pod, args ...string) error {
	r.Report(progress.Step{Doing: "starting the agent"})
	return r.StartAgent(p, args...)
}
