package experiment

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// measured is all that a bench measured.
type measured struct {
	When      time.Time
	Machine   string
	Repeats   int
	Latest    time.Duration // that the generator may be late, p99, before a run is discarded
	runs      []colocated   // that count
	discarded []colocated   // because the generator was late
}

// begin returns the result of an experiment with what is the same in each.
func (m *measured) begin(name, about string) Result {
	r := Result{Name: name, About: about, When: m.When, Machine: m.Machine, Metrics: map[string]float64{}, Series: map[string][]float64{}}
	late := 0.0
	for i := range m.runs {
		late = max(late, m.runs[i].late(0.99))
	}
	r.Metrics["runs"], r.Metrics["runs_discarded"] = float64(len(m.runs)), float64(len(m.discarded))
	r.Metrics["generator_late_p99_ms"], r.Metrics["cpus_machine"] = round(late, 3), float64(runtime.NumCPU())
	return r
}

// of returns the runs of one mode at one load.
func (m *measured) of(name string, load float64) []colocated {
	return slices.DeleteFunc(slices.Clone(m.runs), func(r colocated) bool { return r.mode != name || r.load != load })
}

// medians returns the medians of all repeats, of every figure.
func (m *measured) medians(name string, load float64) map[string]float64 {
	all := map[string][]float64{}
	for _, run := range m.of(name, load) {
		for figure, value := range run.figures() {
			all[figure] = append(all[figure], value)
		}
	}
	middle := map[string]float64{}
	for figure, values := range all {
		slices.Sort(values)
		middle[figure] = (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	return middle
}

// busiest is how many CPUs the rest of the machine used, but for what keeps a node running, in the run in which that was most.
func (m *measured) busiest() float64 {
	most := 0.0
	for i := range m.runs {
		most = max(most, m.runs[i].strange())
	}
	return most
}

// add adds the figures of one mode at one load.
func (m *measured) add(r *Result, key, name string, load float64, reference map[string]float64) {
	middle := m.medians(name, load)
	if len(middle) == 0 {
		return
	}
	for figure, value := range middle {
		r.Metrics[key+figure] = round(value, 3)
	}
	if work, known := batchWork(middle, reference); known && name != modeBatch {
		r.Metrics[key+"batch_work_percent"] = round(100*work, 1)
	}
	if name == modeBatch {
		return
	}
	var worst []slow
	for _, run := range m.of(name, load) {
		for figure, value := range run.figures() {
			r.Series[key+figure] = append(r.Series[key+figure], round(value, 3))
		}
		worst = append(worst, run.slowest(5)...)
	}
	p99 := r.Series[key+"p99_ms"]
	r.Metrics[key+"p99_min_ms"], r.Metrics[key+"p99_max_ms"] = slices.Min(p99), slices.Max(p99)
	if alone := m.medians(modeAlone, load)["p99_ms"]; alone > 0 && name != modeAlone {
		r.Metrics[key+"p99_ratio"] = round(middle["p99_ms"]/alone, 3)
	}
	for _, s := range worst {
		for figure, value := range map[string]float64{
			"at_unix_ms": float64(s.at.UnixMilli()), "latency_ms": round(inMillis(s.latency()), 3), "late_ms": round(inMillis(s.late()), 3),
			"before_it_requests": float64(s.ahead), "ran_ms": round(inMillis(s.server.ran), 3), "waited_ms": round(inMillis(s.server.waited), 3),
		} {
			r.Series[key+"slowest_"+figure] = append(r.Series[key+"slowest_"+figure], value)
		}
	}
}

// batchWork returns what part of its work alone batch did: of ffmpeg's frames and of stress-ng's operations, each as much as
// it has of the CPU time alone.
func batchWork(is, alone map[string]float64) (part float64, known bool) {
	frames, operations := alone["ffmpeg_frames_per_second"], alone["stress_operations_per_second"]
	if _, measured := is["ffmpeg_frames_per_second"]; !measured || frames == 0 || operations == 0 {
		return 0, false
	}
	encoder := alone["ffmpeg_cpus"] / alone["batch_cpus"]
	return encoder*is["ffmpeg_frames_per_second"]/frames + (1-encoder)*is["stress_operations_per_second"]/operations, true
}

// figureOf returns what writes a figure into a cell of a table.
func figureOf(metrics map[string]float64, key string) func(name, format string) string {
	return func(name, format string) string {
		if value, found := metrics[key+name]; found {
			return fmt.Sprintf(format, value)
		}
		return "–"
	}
}

// generatorNote says how the generator was, and what the hypervisor took.
func (m *measured) generatorNote() string {
	scheduled := map[string]bool{}
	late, steal, generated := 0.0, 0.0, 0.0
	for i := range m.runs {
		run := &m.runs[i]
		if run.scheduled != "" {
			scheduled[run.scheduled] = true
		}
		late, steal, generated = max(late, run.late(0.99)), max(steal, run.window.steal), max(generated, run.window.asked())
	}
	return fmt.Sprintf("The generator has a cgroup of its own outside of kubepods (%s) and used %.3f CPUs at most. It was %s ms late, p99 of the worst run that counts; %d runs in which that was more than %s ms were discarded. The hypervisor took %.1f %% at most.",
		strings.Join(slices.Sorted(maps.Keys(scheduled)), ", "), generated, millis(late), len(m.discarded), millis(inMillis(m.Latest)), steal)
}

// busyNotes says so if the machine did something else.
func (m *measured) busyNotes() []string {
	busiest := m.busiest()
	if busiest <= tooBusy {
		return nil
	}
	return []string{fmt.Sprintf("The rest of the machine used up to %.2f CPUs, which is in the figures, in those alone most of all: they compare little.", busiest)}
}

// slowestNote tells of the slowest request of a mode at a load.
func (m *measured) slowestNote(name string, load float64, where string) string {
	var worst []slow
	for _, run := range m.of(name, load) {
		worst = append(worst, run.slowest(1)...)
	}
	if len(worst) == 0 {
		return fmt.Sprintf("Nothing is known of %s: the generator was late in each of %d attempts.", where, attempts*m.Repeats)
	}
	slowest := slices.MaxFunc(worst, func(a, b slow) int { return int(a.latency() - b.latency()) })
	return fmt.Sprintf("The slowest request in %s came at %s.", where, slowest)
}
