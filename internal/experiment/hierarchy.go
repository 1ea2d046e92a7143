package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/model"
)

// level is one way to give a pod a weight.
type level struct {
	name, key, progress string
	set                 func(ctx context.Context) error
}

// Hierarchy gives the same weight to a Burstable pod at one level of the hierarchy after another, beside a Burstable pod
// without a weight and a Guaranteed pod that requests half of the machine and wants all of it.
// Metrics: for each level the share of the pod, of all pods' CPU time, and the theory.
func Hierarchy(ctx context.Context, cfg Config) (r Result, err error) {
	l, err := newLab("hierarchy", cfg)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	r = begin("hierarchy", l)
	cpus := int64(runtime.NumCPU())
	weighted, plain := loadPod("weighted", min(2*model.SharesPerCPU*cpus, model.MaxShares)), loadPod("plain", 0)
	guaranteed := &pod{name: "guaranteed", qos: model.Guaranteed, requestMilli: 500 * cpus, threads: threads()}
	pods := []*pod{weighted, plain, guaranteed}
	if cfg.Hog {
		pods = append(pods, loadPod("hog", hogShares))
	}
	if err := l.create(ctx, pods...); err != nil {
		return r, err
	}
	if err := l.load(ctx, pods...); err != nil {
		return r, err
	}

	r.Metrics, r.Series = map[string]float64{}, map[string][]float64{}
	r.Table.Head = []string{fmt.Sprintf("weight %d at", weighted.shares), "CPUs won", "share of CPU", "theory", "Guaranteed pod", "its theory"}
	bars := chart.Bars{
		Title: "CPU won by one Burstable pod", Desc: "The same weight written at different levels of the hierarchy. Bars: share of all pods' CPU time. Marks: theory.",
	}
	worst, last := 0.0, window{}
	for _, v := range l.levels(weighted, pods) {
		if err := v.set(ctx); err != nil {
			return r, fmt.Errorf("%s: %w", v.progress, err)
		}
		if err := Sleep(ctx, settle); err != nil {
			return r, err
		}
		theory, err := l.theory()
		if err != nil {
			return r, err
		}
		w, err := l.measure(ctx, v.progress, cfg.seconds(4), func(w window) string {
			r.Series[v.key] = append(r.Series[v.key], round(w.share(weighted.name), 4))
			return "it has " + percent(w.share(weighted.name))
		})
		if err != nil {
			return r, err
		}
		share, should := w.share(weighted.name), theory[weighted.name]
		worst = max(worst, math.Abs(share-should))
		r.Metrics[v.key+"_share"], r.Metrics[v.key+"_theory"] = round(share, 4), round(should, 4)
		r.Table.Rows = append(r.Table.Rows, []string{
			v.name, fmt.Sprintf("%.2f", w.used[weighted.name].Seconds()/w.length.Seconds()), percent(share), percent(should),
			percent(w.share(guaranteed.name)), percent(theory[guaranteed.name]),
		})
		bars.Bars = append(bars.Bars, chart.Bar{Label: v.name, Value: 100 * share, Theory: 100 * should, Strong: v.key == "agent"})
		last = w
	}
	r.circumstances(last)
	r.Metrics["worst_deviation_percent_of_cpu"] = round(100*worst, 2)
	r.Headline = Headline{
		Value: fmt.Sprintf("%.1f → %.1f %% of the CPU", 100*r.Metrics["none_share"], 100*r.Metrics["class_share"]),
		Goal:  "each level within 5 points of theory", Met: worst <= 0.05,
	}
	r.Chart = bars
	r.Notes = append(r.Notes,
		"Only siblings compete: a container competes with the containers of its pod, a Burstable pod with the other Burstable pods, and only the burstable class as a whole with Guaranteed pods.",
		fmt.Sprintf("The Guaranteed pod requests %.1f of %d CPUs. The agent raises the class no further than leaves it that much.", float64(cpus)/2, cpus))
	return r, nil
}

// levels returns the ways to give a pod its weight, each to be carried out after the one before.
func (l *lab) levels(p *pod, pods []*pod) []level {
	k := &l.kubelet
	// The kubelet's values for the container and the pod, so that one level at a time has another.
	container, containerErr := l.box.weight(k.containerDir(p))
	group, groupErr := l.box.weight(k.dir(p))
	burstable := k.layout.Class(model.Burstable)
	class := k.burstable*model.SharesPerCPU/1000 + p.shares
	return []level{
		{"nowhere (kubelet)", "none", "as the kubelet leaves it", func(context.Context) error { return errors.Join(containerErr, groupErr) }},
		{"container", "container", "weight at the container", func(context.Context) error { return l.box.setWeight(k.containerDir(p), l.raw(p.shares)) }},
		{"pod", "pod", "weight at the pod", func(context.Context) error {
			return errors.Join(l.box.setWeight(k.containerDir(p), container), l.box.setWeight(k.dir(p), l.raw(p.shares)))
		}},
		{"pod + QoS class", "class", "weight at the pod and its QoS class", func(context.Context) error { return k.write(burstable, class) }},
		{"by the agent", "agent", "weight by the agent", func(ctx context.Context) error {
			if err := errors.Join(l.box.setWeight(k.dir(p), group), k.writeBurstable()); err != nil {
				return err
			}
			if err := l.startAgent(ctx, agentPod()); err != nil {
				return err
			}
			return l.await(ctx, pods...)
		}},
	}
}
