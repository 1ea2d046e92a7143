package experiment

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/chart"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// drift lets another writer overwrite the weights of two busy pods and of their class, and measures how long the agent
// takes to repair each. Metrics: repair_p50_ms, repair_p99_ms, repair_max_ms, repairs, lost.
func drift(ctx context.Context, r *run) error {
	const goal = 20 // milliseconds, p99
	pods := []*sandbox.Pod{loadPod("light", 8192), loadPod("heavy", 16384)}
	if err := r.prepare(ctx, pods...); err != nil {
		return err
	}
	first, err := r.meter().Read()
	if err != nil {
		return err
	}
	repairs, err := r.disturb(ctx, pods, time.Duration(r.cfg.Seconds)*time.Second)
	if err != nil {
		return err
	}
	last, err := r.meter().Read()
	if err != nil {
		return err
	}

	res := &r.result
	var all, late []float64
	lost := 0
	res.Table.Head = []string{"file", "overwritten", "repaired", "p50", "p99", "slowest"}
	row := func(name string, overwritten int, repaired []float64) {
		res.Table.Rows = append(res.Table.Rows, []string{
			name, fmt.Sprint(overwritten), fmt.Sprint(len(repaired)), measure.MillisText(measure.Quantile(repaired, 0.50)),
			measure.MillisText(measure.Quantile(repaired, 0.99)), measure.MillisText(measure.Quantile(repaired, 1)),
		})
	}
	for _, f := range repairs {
		repaired := slices.DeleteFunc(slices.Clone(f.took), math.IsNaN)
		slices.Sort(repaired)
		lost += len(f.took) - len(repaired)
		row(f.name, len(f.took), repaired)
		res.Series["repair_ms "+f.name] = repaired
		all, late = append(all, repaired...), append(late, f.late...)
	}
	slices.Sort(all)
	slices.Sort(late)
	row("all", len(all)+lost, all)
	p99 := measure.Quantile(all, 0.99)
	r.circumstances(last.Since(first))
	res.Metrics["repairs"], res.Metrics["lost"] = float64(len(all)), float64(lost)
	lateP99, lateMax := measure.Quantile(late, 0.99), measure.Quantile(late, 1)
	for name, value := range map[string]float64{
		"repair_p50_ms": measure.Quantile(all, 0.50), "repair_p99_ms": p99, "repair_max_ms": measure.Quantile(all, 1),
		"reader_late_p99_ms": lateP99, "reader_late_max_ms": lateMax,
	} {
		res.Metrics[name] = measure.Round(value, 3)
	}
	res.Headline = report.Headline{
		Value: fmt.Sprintf("p99 %s ms", measure.MillisText(p99)), Goal: fmt.Sprintf("≤ %d ms, none lost", goal),
		Met: len(all) > 0 && p99 <= goal && lost == 0,
	}
	res.Chart = chart.Steps{
		Title: "How long a repair takes", Desc: "Part of all overwritten weights that were right again after so many " +
			"milliseconds.",
		Values: all, Unit: "ms", Goal: goal,
	}
	r.note("The process that overwrites measures the repair: from just before its write until it reads the right "+
		"value again. "+
		"It runs beside the pods, not among them, and reads about every 0.1 ms. Its longest gap between two reads was %s "+
		"ms, "+
		"p99 %s ms.", measure.MillisText(lateMax), measure.MillisText(lateP99))
	if lost > 0 {
		r.note("%d values were not repaired within %v.", lost, lostAfter)
	}
	return nil
}

// repairs is what became of one file.
type repairs struct {
	name string
	took []float64 // milliseconds of each repair; NaN for one that did not happen
	late []float64 // milliseconds of the writer's longest gap between two reads, in each
}

// disturb runs the writer and returns what became of each file that it overwrote.
func (r *run) disturb(ctx context.Context, pods []*sandbox.Pod, length time.Duration) ([]repairs, error) {
	dirs, all := []string{r.Layout().Class(model.Burstable)}, []repairs{{name: "burstable class"}}
	for _, p := range pods {
		dirs, all = append(dirs, r.PodGroup(p)), append(all, repairs{name: "pod " + p.Name})
	}
	o := overwriting{Length: length, Seed: uint64(time.Now().UnixNano())}
	for _, dir := range dirs {
		raw, err := r.Weight(dir)
		if err != nil {
			return nil, err
		}
		o.Files = append(o.Files, overwritten{Path: r.KnobFile(dir, model.Shares), Value: raw.Number})
	}

	read, write := io.Pipe()
	defer func() { _ = read.Close() }()
	p, err := r.Start(sandbox.Command{Name: "the other writer", Ends: true, Stdout: write, Helper: "overwrite", Input: o})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = write.CloseWithError(context.Cause(ctx)) })
	defer stop()
	go func() { <-p.Done(); _ = write.Close() }()
	err = r.readRepairs(read, all, length)
	if err == nil {
		err = p.Wait(ctx)
	}
	return all, errors.Join(err, p.Kill(), r.Running())
}

// readRepairs reads what the writer prints: a line for each repair, with the number of the file, the microseconds of
// the repair and those of the writer's longest gap between two reads.
func (r *run) readRepairs(from io.Reader, all []repairs, length time.Duration) error {
	start, reported, count := time.Now(), time.Time{}, 0
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var i int
		var took, late float64
		if _, err := fmt.Sscan(lines.Text(), &i, &took, &late); err != nil || i < 0 || i >= len(all) {
			return fmt.Errorf("reading the repairs: %q cannot be understood", lines.Text())
		}
		all[i].took, all[i].late = append(all[i].took, took/1000), append(all[i].late, late/1000)
		if count++; time.Since(reported) > time.Second {
			reported = time.Now()
			r.Report(progress.Step{
				Doing: "overwriting weights", Now: fmt.Sprintf("%d so far", count), Elapsed: time.Since(start), Total: length,
			})
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading the repairs: %w", err)
	}
	return nil
}
