package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/waterline-io/waterline/internal/experiment/chart"
)

// Weights measures the CPU time of two pods with equal requests, annotated 8192 and 16384, that both want all CPUs.
// Metric: ratio, of the second to the first; 2 is right.
func Weights(ctx context.Context, cfg Config) (r Result, err error) {
	l, err := newLab("weights", cfg)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	r = begin("weights", l)
	light, heavy := loadPod("light", 8192), loadPod("heavy", 16384)
	if err := l.prepare(ctx, light, heavy); err != nil {
		return r, err
	}
	theory, err := l.theory()
	if err != nil {
		return r, err
	}
	r.Series = map[string][]float64{}
	whole, err := l.measure(ctx, "measuring", cfg.seconds(10), func(w window) string {
		ratio := float64(w.used[heavy.name]) / float64(w.used[light.name])
		r.Series["ratio"] = append(r.Series["ratio"], round(ratio, 3))
		return fmt.Sprintf("%.2f : 1", ratio)
	})
	if err != nil {
		return r, err
	}

	ratio := float64(whole.used[heavy.name]) / float64(whole.used[light.name])
	r.circumstances(whole)
	r.Metrics["ratio"] = round(ratio, 4)
	r.Metrics["theory_ratio"] = round(theory[heavy.name]/theory[light.name], 4)
	r.Headline = Headline{Value: fmt.Sprintf("%.3f : 1", ratio), Goal: "2 : 1 ± 3 %", Met: math.Abs(off(ratio, 2)) <= 3}
	r.Table.Head = []string{"pod", "annotated", "CPU time", "share of CPU", "theory", "off by"}
	bars := chart.Bars{
		Title: "CPU time won by each pod", Desc: "Bars: share of the CPU time that all pods had together. Marks: theory.",
	}
	for _, p := range l.pods {
		share := whole.share(p.name)
		r.Table.Rows = append(r.Table.Rows, []string{
			p.name, shares(p.shares), inSeconds(whole.used[p.name]), percent(share), percent(theory[p.name]), offText(share, theory[p.name]),
		})
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: p.name, Note: "annotated " + shares(p.shares), Value: 100 * share, Theory: 100 * theory[p.name], Strong: p == heavy,
		})
	}
	r.Chart = bars
	r.Notes = append(r.Notes, fmt.Sprintf("Each pod ran %d busy loops, evenly on %.0f CPUs, for %.0f s; together they had %.2f CPUs.",
		threads(), r.Metrics["cpus_machine"], whole.length.Seconds(), whole.cpus()))
	return r, nil
}
