package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/chart"
)

// before is how many seconds of preempt pass before the pod arrives, and are not counted in its length.
const before = 3

// Preempt lets three pods of equal weight fill the machine, and then one with the greatest weight of all arrive.
// Metrics: share, of all pods' CPU time, that the arrival got on average from its second full second on, and the theory.
func Preempt(ctx context.Context, cfg Config) (r Result, err error) {
	l, err := newLab("preempt", cfg)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	r = begin("preempt", l)
	pods := []*pod{loadPod("resident-1", 10240), loadPod("resident-2", 10240), loadPod("resident-3", 10240)}
	arrival := loadPod("arrival", hogShares)
	if err := l.prepare(ctx, pods...); err != nil {
		return r, err
	}
	residents := l.pods // with the hog, if there is one

	r.Series = map[string][]float64{}
	note := func(w window) string {
		for _, p := range append(residents[:len(residents):len(residents)], arrival) {
			r.Series[p.name] = append(r.Series[p.name], round(w.share(p.name), 4))
		}
		return fmt.Sprintf("the arrival has %.1f %%", 100*w.share(arrival.name))
	}
	// The agent hears of a pod from the API server some time before the kubelet makes its cgroup.
	if err := l.kubelet.announce(arrival); err != nil {
		return r, err
	}
	if _, err := l.measure(ctx, "before the arrival", before, note); err != nil {
		return r, err
	}
	created := time.Now()
	if err := l.kubelet.run(arrival); err != nil {
		return r, err
	}
	if err := l.await(ctx, arrival); err != nil {
		return r, err
	}
	weighted := time.Since(created)
	if err := l.burn(ctx, arrival); err != nil {
		return r, err
	}
	theory, err := l.theory()
	if err != nil {
		return r, err
	}
	if _, err := l.measure(ctx, "its first second", 1, note); err != nil {
		return r, err
	}
	whole, err := l.measure(ctx, "after the arrival", max(cfg.seconds(8)-1, 1), note)
	if err != nil {
		return r, err
	}

	share, should := whole.share(arrival.name), theory[arrival.name]
	r.circumstances(whole)
	r.Metrics["share"] = round(share, 4)
	r.Metrics["theory"] = round(should, 4)
	r.Metrics["create_to_weight_ms"] = round(float64(weighted)/1e6, 2)
	r.Headline = Headline{
		Value: fmt.Sprintf("%.1f %% of the CPU", 100*share),
		Goal:  fmt.Sprintf("theory, %.1f %%, ± 3 %%", 100*should), Met: math.Abs(off(share, should)) <= 3,
	}
	r.Table.Head = []string{"pod", "annotated", "before", "1st second", "after", "theory", "off by"}
	lines := chart.Lines{
		Title: "Share of the CPU, second by second", Desc: "Each pod's share of the CPU time that all pods had. Dashed: theory.",
		Mark: before, MarkLabel: "arrival",
	}
	for _, p := range l.pods {
		series := r.Series[p.name]
		r.Table.Rows = append(r.Table.Rows, []string{
			p.name, shares(p.shares), percent(mean(series[:before])), percent(series[before]),
			percent(whole.share(p.name)), percent(theory[p.name]), offText(whole.share(p.name), theory[p.name]),
		})
		line := chart.Line{Name: p.name, Strong: p == arrival, Theory: 100 * theory[p.name]}
		for _, v := range series {
			line.Values = append(line.Values, 100*v)
		}
		lines.Lines = append(lines.Lines, line)
	}
	r.Chart = lines
	r.Notes = append(r.Notes, fmt.Sprintf("The arrival's weight was right %.1f ms after the kubelet had made its cgroup.", r.Metrics["create_to_weight_ms"]))
	return r, nil
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}
