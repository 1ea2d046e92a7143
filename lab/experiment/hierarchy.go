package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// level is one way to give a pod a weight.
type level struct {
	name, key, progress string
	set                 func(ctx context.Context) error
}

// hierarchy gives the same weight to a Burstable pod at one level of the hierarchy after another, beside a Burstable
// pod without a weight and a Guaranteed pod that requests half of the machine and wants all of it. Metrics: for each
// level the pod's part of the CPU time of all pods, and the theory.
func hierarchy(ctx context.Context, r *run) error {
	cpus := int64(runtime.NumCPU())
	weighted := loadPod("weighted", min(2*model.SharesPerCPU*cpus, model.MaxShares))
	guaranteed := &sandbox.Pod{
		Name: "guaranteed", QoS: model.Guaranteed, RequestMilli: 500 * cpus, Threads: load.Threads(),
	}
	pods := r.withHog(weighted, loadPod("plain", 0), guaranteed)
	if err := r.Create(pods...); err != nil {
		return err
	}
	if err := load.BurnAll(ctx, r.Sandbox, pods...); err != nil {
		return err
	}

	res := &r.result
	res.Table.Head = []string{
		fmt.Sprintf("weight %d at", weighted.Shares), "CPUs won", "share of CPU", "theory", "Guaranteed pod", "its theory",
	}
	bars := chart.Bars{
		Title: "CPU won by one Burstable pod",
		Desc: "The same weight written at different levels of the hierarchy. Bars: share of the CPU time of all pods. " +
			"Marks: theory.",
	}
	worst, last := 0.0, measure.Window{}
	for _, l := range r.levels(weighted) {
		if err := l.set(ctx); err != nil {
			return fmt.Errorf("%s: %w", l.progress, err)
		}
		if err := load.Settle(ctx); err != nil {
			return err
		}
		theory, err := r.theory()
		if err != nil {
			return err
		}
		w, err := r.meter().Seconds(ctx, l.progress, r.cfg.Seconds, func(w measure.Window) string {
			res.Series[l.key] = append(res.Series[l.key], measure.Round(w.Share(weighted.Name), 4))
			return "it has " + report.Percent(w.Share(weighted.Name))
		})
		if err != nil {
			return err
		}
		share, should := w.Share(weighted.Name), theory[weighted.Name]
		worst = max(worst, math.Abs(share-should))
		res.Metrics[l.key+"_share"] = measure.Round(share, 4)
		res.Metrics[l.key+"_theory"] = measure.Round(should, 4)
		res.Table.Rows = append(res.Table.Rows, []string{
			l.name, fmt.Sprintf("%.2f", w.CPUsOf(weighted.Name)), report.Percent(share), report.Percent(should),
			report.Percent(w.Share(guaranteed.Name)), report.Percent(theory[guaranteed.Name]),
		})
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: l.name, Value: 100 * share, Theory: 100 * should, Strong: l.key == "agent",
		})
		last = w
	}
	r.circumstances(last)
	res.Metrics["worst_deviation_percent_of_cpu"] = measure.Round(100*worst, 2)
	res.Headline = report.Headline{
		Value: fmt.Sprintf("%.1f → %.1f %% of the CPU", 100*res.Metrics["none_share"], 100*res.Metrics["class_share"]),
		Goal:  "each level within 5 points of theory", Met: worst <= 0.05,
	}
	res.Chart = bars
	r.note("Only siblings compete: a container with the containers of its pod, a Burstable pod with the other Burstable " +
		"pods, and only the Burstable class as a whole with Guaranteed pods.")
	r.note("The Guaranteed pod requests %.1f of %d CPUs, and the plain one 0.1. The agent raises the pod and its class "+
		"only as far as leaves them that much.", float64(cpus)/2, cpus)
	return nil
}

// levels returns the ways to give a pod its weight, in the order in which they must be set.
func (r *run) levels(p *sandbox.Pod) []level {
	dir, containerDir, burstable := r.PodGroup(p), r.ContainerGroup(p), r.Layout().Class(model.Burstable)
	weight := r.Raw(p.Shares)
	// The kubelet's values for the container and the pod, to which each further level returns.
	container, containerErr := r.Weight(containerDir)
	pod, podErr := r.Weight(dir)
	return []level{
		{"nowhere (kubelet)", "none", "as the kubelet leaves it", func(context.Context) error {
			return errors.Join(containerErr, podErr)
		}},
		{"container", "container", "weight at the container", func(context.Context) error {
			return r.SetWeight(containerDir, weight)
		}},
		{"pod", "pod", "weight at the pod", func(context.Context) error {
			return errors.Join(r.SetWeight(containerDir, container), r.SetWeight(dir, weight))
		}},
		{"pod + QoS class", "class", "weight at the pod and its QoS class", func(context.Context) error {
			return r.SetShares(burstable, r.BurstableRequestMilli()*model.SharesPerCPU/1000+p.Shares)
		}},
		{"by the agent", "agent", "weight by the agent", func(ctx context.Context) error {
			if err := errors.Join(r.SetWeight(dir, pod), r.RestoreBurstable()); err != nil {
				return err
			}
			if err := r.StartAgent(sandbox.AgentPod()); err != nil {
				return err
			}
			return r.Poll(ctx, "for the agent to give pod "+p.Name+" a weight", func() (bool, error) {
				is, err := r.Weight(dir)
				return is != pod, err
			})
		}},
	}
}
