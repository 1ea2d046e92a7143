package experiment

import (
	"context"
	"fmt"
	"math"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/chart"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
)

// weights measures the CPU time of two pods with equal requests, annotated 8192 and 16384, that both want all CPUs.
// Metric: ratio, of the second to the first; 2 is right.
func weights(ctx context.Context, r *run) error {
	light, heavy := loadPod("light", 8192), loadPod("heavy", 16384)
	if err := r.prepare(ctx, light, heavy); err != nil {
		return err
	}
	theory, err := r.theory()
	if err != nil {
		return err
	}
	res := &r.result
	ratioIn := func(w measure.Window) float64 { return float64(w.Used[heavy.Name]) / float64(w.Used[light.Name]) }
	whole, err := r.meter().Seconds(ctx, "measuring", r.cfg.Seconds, func(w measure.Window) string {
		res.Series["ratio"] = append(res.Series["ratio"], measure.Round(ratioIn(w), 3))
		return fmt.Sprintf("%.2f : 1", ratioIn(w))
	})
	if err != nil {
		return err
	}

	ratio := ratioIn(whole)
	r.circumstances(whole)
	res.Metrics["ratio"] = measure.Round(ratio, 4)
	res.Metrics["theory_ratio"] = measure.Round(theory[heavy.Name]/theory[light.Name], 4)
	res.Headline = report.Headline{
		Value: fmt.Sprintf("%.3f : 1", ratio), Goal: "2 : 1 ± 3 %", Met: math.Abs(measure.PercentOff(ratio, 2)) <= 3,
	}
	res.Table.Head = []string{"pod", "annotated", "CPU time", "share of CPU", "theory", "off by"}
	bars := chart.Bars{
		Title: "CPU time won by each pod", Desc: "Bars: share of the CPU time of all pods. Marks: theory.",
	}
	for _, p := range r.Loaded() {
		share := whole.Share(p.Name)
		res.Table.Rows = append(res.Table.Rows, []string{
			p.Name, measure.Shares(p.Shares), fmt.Sprintf("%.2f s", whole.Used[p.Name].Seconds()), measure.Percent(share),
			measure.Percent(theory[p.Name]), offBy(share, theory[p.Name]),
		})
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: p.Name, Note: "annotated " + measure.Shares(p.Shares), Value: 100 * share, Theory: 100 * theory[p.Name],
			Strong: p == heavy,
		})
	}
	res.Chart = bars
	r.note("Each pod ran %d busy loops, evenly on %.0f CPUs, for %.0f s; together they had %.2f CPUs.",
		load.Threads(), res.Metrics["cpus_machine"], whole.Length.Seconds(), whole.CPUs())
	return nil
}

// offBy formats by how much a figure differs from its theory.
func offBy(is, should float64) string { return fmt.Sprintf("%+.1f %%", measure.PercentOff(is, should)) }
