package redisbench

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/measure"
)

// Runs is all that was measured.
type Runs struct {
	Repeats   int
	Latest    time.Duration // that the generator may be late, p99, before a run is discarded
	Machine   string
	Counted   []Run // runs that count
	Discarded []Run // runs in which the generator was late, or the server's CPU slow
}

// Describe adds to a result what all experiments report of their runs.
func (m *Runs) Describe(r *report.Result) {
	r.Machine = m.Machine
	late := 0.0
	for i := range m.Counted {
		late = max(late, m.Counted[i].lateP99())
	}
	r.Metrics["runs"], r.Metrics["runs_discarded"] = float64(len(m.Counted)), float64(len(m.Discarded))
	r.Metrics["generator_late_p99_ms"], r.Metrics["cpus_machine"] = measure.Round(late, 3), float64(runtime.NumCPU())
}

// Of returns the runs of one mode at one load.
func (m *Runs) Of(mode string, load float64) []Run {
	return slices.DeleteFunc(slices.Clone(m.Counted), func(r Run) bool { return r.Mode != mode || r.Load != load })
}

// Medians returns the medians of all repeats, of every figure.
func (m *Runs) Medians(mode string, load float64) map[string]float64 {
	all := map[string][]float64{}
	for _, run := range m.Of(mode, load) {
		for figure, value := range run.figures() {
			all[figure] = append(all[figure], value)
		}
	}
	medians := map[string]float64{}
	for figure, values := range all {
		medians[figure] = measure.Median(values)
	}
	return medians
}

// Busy reports whether the rest of the machine, save what keeps a node running, used so much that it shows in the
// figures.
func (m *Runs) Busy() bool { return m.busiest() > measure.TooBusy }

// busiest returns the most CPUs that the rest of the machine used in a run.
func (m *Runs) busiest() float64 {
	most := 0.0
	for i := range m.Counted {
		most = max(most, m.Counted[i].foreign())
	}
	return most
}

// Add adds the figures of one mode at one load to the metrics, with a key before their names. The reference is batch
// alone, with which the work of batch is compared; nil: it is not.
func (m *Runs) Add(r *report.Result, key, mode string, load float64, reference map[string]float64) {
	m.addWaits(r, key, mode, load)
	medians := m.Medians(mode, load)
	if len(medians) == 0 {
		return
	}
	for figure, value := range medians {
		r.Metrics[key+figure] = measure.Round(value, 3)
	}
	if work, known := batchWork(medians, reference); known && mode != BatchAlone {
		r.Metrics[key+"batch_work_percent"] = measure.Round(100*work, 1)
	}
	if mode == BatchAlone {
		return
	}
	var worst []slow
	for _, run := range m.Of(mode, load) {
		for figure, value := range run.figures() {
			r.Series[key+figure] = append(r.Series[key+figure], measure.Round(value, 3))
		}
		worst = append(worst, run.slowest(5)...)
	}
	p99 := r.Series[key+"p99_ms"]
	r.Metrics[key+"p99_min_ms"], r.Metrics[key+"p99_max_ms"] = slices.Min(p99), slices.Max(p99)
	for figure, ratio := range map[string]string{"p99_ms": "p99_ratio", "rise_p99_ms": "rise_p99_ratio"} {
		if alone := m.Medians(Alone, load)[figure]; alone > 0 && mode != Alone {
			r.Metrics[key+ratio] = measure.Round(medians[figure]/alone, 3)
		}
	}
	if mode != Alone {
		if bound, known := measure.UpperRatio(m.p99Ratios(mode, load)); known {
			r.Metrics[key+"p99_ratio_upper"] = measure.Round(bound, 3)
		}
		more := m.addedBy(mode, load)
		maps.Copy(r.Metrics, withKey(key, more.metrics()))
	}
	millis := func(d time.Duration) float64 { return measure.Round(measure.Millis(d), 3) }
	for _, s := range worst {
		for figure, value := range map[string]float64{
			"at_unix_ms": float64(s.at.UnixMilli()), "latency_ms": millis(s.Latency()), "late_ms": millis(s.Late()),
			"before_it_requests": float64(s.Ahead), "ran_ms": millis(s.Server.Ran), "waited_ms": millis(s.Server.Waited),
		} {
			r.Series[key+"slowest_"+figure] = append(r.Series[key+"slowest_"+figure], value)
		}
	}
}

// addWaits adds how much longer waits for a CPU made p99, and how that compares with the server alone.
func (m *Runs) addWaits(r *report.Result, key, mode string, load float64) {
	all := m.WaitsRatios(mode, load)
	if len(all) == 0 {
		return
	}
	median := measure.Median(all)
	r.Series[key+"p99_waits_ratio"], r.Metrics[key+"p99_waits_ratio"] = all, measure.Round(median, 3)
	r.Metrics[key+"p99_waits_ratio_min"], r.Metrics[key+"p99_waits_ratio_max"] = slices.Min(all), slices.Max(all)
	if alone := m.WaitsRatios(Alone, load); len(alone) > 0 && mode != Alone {
		r.Metrics[key+"p99_waits_over_alone"] = measure.Round(median/measure.Median(alone), 3)
	}
}

// WaitsRatios returns for each run p99 to what it would be if the server had not waited for a CPU. Runs on a slow CPU
// count as well: it is in both.
func (m *Runs) WaitsRatios(mode string, load float64) (all []float64) {
	for _, runs := range [][]Run{m.Counted, m.Discarded} {
		for _, run := range runs {
			if run.Mode != mode || run.Load != load || run.lateP99() > measure.Millis(m.Latest) {
				continue
			}
			if ratio := run.waitsRatio(); ratio > 0 {
				all = append(all, measure.Round(ratio, 3))
			}
		}
	}
	return all
}

// p99Ratios returns p99 of each repeat to that of the same repeat alone.
func (m *Runs) p99Ratios(mode string, load float64) (ratios []float64) {
	alone := m.Of(Alone, load)
	for _, with := range m.Of(mode, load) {
		i := slices.IndexFunc(alone, func(r Run) bool { return r.Repeat == with.Repeat })
		if i < 0 || len(with.Latency) == 0 || len(alone[i].Latency) == 0 {
			continue
		}
		ratios = append(ratios, measure.Quantile(with.Latency, 0.99)/measure.Quantile(alone[i].Latency, 0.99))
	}
	return ratios
}

// withKey puts a key before the names of metrics.
func withKey(key string, metrics map[string]float64) map[string]float64 {
	keyed := map[string]float64{}
	for name, value := range metrics {
		keyed[key+name] = value
	}
	return keyed
}

// batchWork returns the work of batch as a part of its work alone: ffmpeg's frames and stress-ng's operations, each
// weighed by its part of the CPU time alone.
func batchWork(is, alone map[string]float64) (part float64, known bool) {
	frames, operations := alone["ffmpeg_frames_per_second"], alone["stress_operations_per_second"]
	if _, measured := is["ffmpeg_frames_per_second"]; !measured || frames == 0 || operations == 0 {
		return 0, false
	}
	encoder := alone["ffmpeg_cpus"] / alone["batch_cpus"]
	return encoder*is["ffmpeg_frames_per_second"]/frames +
		(1-encoder)*is["stress_operations_per_second"]/operations, true
}

// GeneratorNote describes the generator, and how much the hypervisor took.
func (m *Runs) GeneratorNote() string {
	scheduled := map[string]bool{}
	late, steal, generated := 0.0, 0.0, 0.0
	for i := range m.Counted {
		run := &m.Counted[i]
		if run.Scheduled != "" {
			scheduled[run.Scheduled] = true
		}
		late, steal = max(late, run.lateP99()), max(steal, run.Window.Steal)
		generated = max(generated, run.Window.GeneratorCPUs())
	}
	return fmt.Sprintf("The generator has a cgroup of its own outside of kubepods (%s) and used %.3f CPUs at most. It "+
		"was %s ms late, p99 of the worst run that counts. Runs in which that was more than %s ms were discarded, and "+
		"those in which the server's CPU was slow (requests of more than %s ms of CPU): %d. The hypervisor took %.1f %% "+
		"at most. CPUs that idle poll, so that they do not sleep where no batch runs.",
		strings.Join(slices.Sorted(maps.Keys(scheduled)), ", "), generated, measure.MillisText(late),
		measure.MillisText(measure.Millis(m.Latest)), measure.MillisText(measure.Millis(slowTimes*RequestCost)),
		len(m.Discarded), steal)
}

// BusyNotes returns a note if the machine was busy otherwise.
func (m *Runs) BusyNotes() []string {
	if !m.Busy() {
		return nil
	}
	return []string{fmt.Sprintf("The rest of the machine used up to %.2f CPUs. That is in all figures, most of all in "+
		"those of "+
		"Redis alone, so they can hardly be compared.", m.busiest())}
}

// SlowestNote describes the slowest request of a mode at a load. The place names them.
func (m *Runs) SlowestNote(mode string, load float64, place string) string {
	var worst []slow
	for _, run := range m.Of(mode, load) {
		worst = append(worst, run.slowest(1)...)
	}
	if len(worst) == 0 {
		return fmt.Sprintf("There are no figures of %s: the generator was late, or the CPU slow, in each of %d attempts.",
			place, attempts*m.Repeats)
	}
	slowest := slices.MaxFunc(worst, func(a, b slow) int { return int(a.Latency() - b.Latency()) })
	return fmt.Sprintf("The slowest request in %s came at %s.", place, slowest)
}
