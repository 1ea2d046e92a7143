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

	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/model"
)

// goal is the longest that 99 of 100 repairs may take, in milliseconds.
const goal = 20

// Drift lets an outsider overwrite the weights of two busy pods and of their class, and measures how long each takes to
// come back. Metrics: repair_p50_ms, repair_p99_ms, repair_max_ms, repairs, lost.
func Drift(ctx context.Context, cfg Config) (r Result, err error) {
	l, err := newLab("drift", cfg)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	r = begin("drift", l)
	pods := []*pod{loadPod("light", 8192), loadPod("heavy", 16384)}
	if err := l.prepare(ctx, pods...); err != nil {
		return r, err
	}
	first, err := l.read()
	if err != nil {
		return r, err
	}
	repairs, err := l.disturb(ctx, pods, time.Duration(cfg.seconds(8))*time.Second)
	if err != nil {
		return r, err
	}
	last, err := l.read()
	if err != nil {
		return r, err
	}

	var all, late []float64
	lost := 0
	r.Series = map[string][]float64{}
	r.Table.Head = []string{"file", "overwritten", "repaired", "p50", "p99", "slowest"}
	row := func(name string, overwritten int, repaired []float64) {
		r.Table.Rows = append(r.Table.Rows, []string{
			name, fmt.Sprint(overwritten), fmt.Sprint(len(repaired)),
			millis(quantile(repaired, 0.50)), millis(quantile(repaired, 0.99)), millis(quantile(repaired, 1)),
		})
	}
	for _, f := range repairs {
		repaired := slices.DeleteFunc(slices.Clone(f.took), math.IsNaN)
		slices.Sort(repaired)
		lost += len(f.took) - len(repaired)
		row(f.name, len(f.took), repaired)
		r.Series["repair_ms "+f.name] = repaired
		all, late = append(all, repaired...), append(late, f.late...)
	}
	slices.Sort(all)
	slices.Sort(late)
	row("all", len(all)+lost, all)
	p99 := quantile(all, 0.99)
	r.circumstances(last.since(first))
	r.Metrics["repairs"], r.Metrics["lost"] = float64(len(all)), float64(lost)
	for name, value := range map[string]float64{
		"repair_p50_ms": quantile(all, 0.50), "repair_p99_ms": p99, "repair_max_ms": quantile(all, 1),
		"reader_late_p99_ms": quantile(late, 0.99), "reader_late_max_ms": quantile(late, 1),
	} {
		r.Metrics[name] = round(value, 3)
	}
	r.Headline = Headline{
		Value: fmt.Sprintf("p99 %s ms", millis(p99)), Goal: fmt.Sprintf("≤ %d ms, none lost", goal),
		Met: len(all) > 0 && p99 <= goal && lost == 0,
	}
	r.Chart = chart.Steps{
		Title: "How long a repair takes", Desc: "Part of all overwritten weights that were right again after so many milliseconds.",
		Values: all, Unit: "ms", Goal: goal,
	}
	r.Notes = append(r.Notes, "Measured by the process that overwrites: from just before its write until it reads the right value again. It runs beside the pods, not among them, and looks about every 0.1 ms; "+
		fmt.Sprintf("the longest that it was itself kept from looking was %s ms, p99 %s ms.", millis(quantile(late, 1)), millis(quantile(late, 0.99))))
	if lost > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d values were not repaired within %v.", lost, lostAfter))
	}
	return r, nil
}

// repairs is what became of one file.
type repairs struct {
	name string
	took []float64 // milliseconds that each repair took; NaN for one that did not happen
	late []float64 // milliseconds that the reader was kept from looking, at most, in each
}

// disturb runs the outsider and returns what became of each file that it overwrote.
func (l *lab) disturb(ctx context.Context, pods []*pod, length time.Duration) (_ []repairs, err error) {
	dirs := []string{l.kubelet.layout.Class(model.Burstable)}
	all := []repairs{{name: "burstable class"}}
	for _, p := range pods {
		dirs, all = append(dirs, l.kubelet.dir(p)), append(all, repairs{name: "pod " + p.name})
	}
	args := []string{"--for", length.String(), "--seed", fmt.Sprint(time.Now().UnixNano())}
	for _, dir := range dirs {
		raw, err := l.box.weight(dir)
		if err != nil {
			return nil, err
		}
		args = append(args, "--file", fmt.Sprintf("%s=%d", l.box.sharesFile(dir), raw.Number))
	}

	read, write := io.Pipe()
	defer func() { _ = read.Close() }()
	p, err := l.startHere("the outsider", write, "outsider", args...)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = read.CloseWithError(context.Cause(ctx)); _ = p.cmd.Process.Kill() })
	defer stop()
	go func() { <-p.done; _ = write.Close() }()
	err = l.listen(read, all, length)
	<-p.done
	l.procs = slices.DeleteFunc(l.procs, func(q *process) bool { return q == p })
	if err == nil && p.err != nil {
		err = fmt.Errorf("the outsider: %w: %s", p.err, p.stderr.String())
	}
	return all, errors.Join(err, context.Cause(ctx), l.running())
}

// listen reads what the outsider prints: a line for each repair, with the number of the file, the microseconds it took and
// those that the outsider was kept from looking.
func (l *lab) listen(from io.Reader, all []repairs, length time.Duration) error {
	start, told, count := time.Now(), time.Time{}, 0
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var i int
		var took, late float64
		if _, err := fmt.Sscan(lines.Text(), &i, &took, &late); err != nil || i < 0 || i >= len(all) {
			return fmt.Errorf("reading from the outsider: %q cannot be understood", lines.Text())
		}
		all[i].took, all[i].late = append(all[i].took, took/1000), append(all[i].late, late/1000)
		if count++; time.Since(told) > time.Second {
			told = time.Now()
			l.tell(Progress{Doing: "overwriting weights", Now: fmt.Sprintf("%d so far", count), Elapsed: time.Since(start), Total: length})
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading from the outsider: %w", err)
	}
	return nil
}

// quantile returns the smallest of sorted values that at least this part of them does not exceed; 0 if there are none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

func millis(x float64) string { return fmt.Sprintf("%.2f", x) }
