package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/chart"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// preempt lets three pods of equal weight fill the machine, and then a pod with the greatest weight arrive.
// Metrics: share, the arrival's part of the CPU time of all pods from its second full second on, and theory.
func preempt(ctx context.Context, r *run) error {
	const before = 3 // seconds before the arrival, which do not count in the length
	residents := []*sandbox.Pod{
		loadPod("resident-1", 10240), loadPod("resident-2", 10240), loadPod("resident-3", 10240),
	}
	arrival := loadPod("arrival", hogShares)
	if err := r.prepare(ctx, residents...); err != nil {
		return err
	}
	all := append([]*sandbox.Pod{arrival}, r.Loaded()...) // with the hog, if there is one

	res := &r.result
	note := func(w measure.Window) string {
		for _, p := range all {
			res.Series[p.Name] = append(res.Series[p.Name], measure.Round(w.Share(p.Name), 4))
		}
		return fmt.Sprintf("the arrival has %.1f %%", 100*w.Share(arrival.Name))
	}
	// The agent learns of a pod from the API server some time before the kubelet makes its cgroup.
	if err := r.Announce(arrival); err != nil {
		return err
	}
	if _, err := r.meter().Seconds(ctx, "before the arrival", before, note); err != nil {
		return err
	}
	created := time.Now()
	if err := r.MakeGroups(arrival); err != nil {
		return err
	}
	if err := r.Await(ctx, arrival); err != nil {
		return err
	}
	weighted := time.Since(created)
	if _, err := load.Burn(ctx, r.Sandbox, arrival); err != nil {
		return err
	}
	theory, err := r.theory()
	if err != nil {
		return err
	}
	if _, err := r.meter().Seconds(ctx, "its first second", 1, note); err != nil {
		return err
	}
	whole, err := r.meter().Seconds(ctx, "after the arrival", max(r.cfg.Seconds-1, 1), note)
	if err != nil {
		return err
	}

	share, should := whole.Share(arrival.Name), theory[arrival.Name]
	r.circumstances(whole)
	res.Metrics["share"] = measure.Round(share, 4)
	res.Metrics["theory"] = measure.Round(should, 4)
	res.Metrics["create_to_weight_ms"] = measure.Round(measure.Millis(weighted), 2)
	res.Headline = report.Headline{
		Value: fmt.Sprintf("%.1f %% of the CPU", 100*share), Goal: fmt.Sprintf("theory, %.1f %%, ± 3 %%", 100*should),
		Met: math.Abs(measure.PercentOff(share, should)) <= 3,
	}
	res.Table.Head = []string{"pod", "annotated", "before", "1st second", "after", "theory", "off by"}
	lines := chart.Lines{
		Title: "Share of the CPU, second by second", Desc: "Each pod's share of the CPU time of all pods. Dashed: theory.",
		Mark: before, MarkLabel: "arrival",
	}
	for _, p := range r.Loaded() {
		series := res.Series[p.Name]
		res.Table.Rows = append(res.Table.Rows, []string{
			p.Name, measure.Shares(p.Shares), measure.Percent(measure.Mean(series[:before])), measure.Percent(series[before]),
			measure.Percent(whole.Share(p.Name)), measure.Percent(theory[p.Name]), offBy(whole.Share(p.Name), theory[p.Name]),
		})
		line := chart.Line{Name: p.Name, Strong: p == arrival, Theory: 100 * theory[p.Name]}
		for _, v := range series {
			line.Values = append(line.Values, 100*v)
		}
		lines.Lines = append(lines.Lines, line)
	}
	res.Chart = lines
	r.note("The arrival's weight was right %.1f ms after the kubelet had made its "+
		"cgroup.", res.Metrics["create_to_weight_ms"])
	return nil
}
