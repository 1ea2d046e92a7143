package experiment

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/chart"
)

const (
	goalDayCPU = 60 // percent of the machine's CPU time that is used
	dayParts   = 20 // of which latency and use are shown apart
)

// LivedDay is all that experiment headline measured.
type LivedDay struct {
	measured
	Day     Day
	Percent float64 // of the machine that the day was to take in the mean
	Length  time.Duration
	OnNode  bool   // in pods of a real node
	course  course // parts of one CPU that Redis was asked for
	capped  int    // parts of it that were to be more
}

// mean is how much of one CPU Redis was asked for in the mean.
func (d *LivedDay) mean() float64 { return mean(d.course) }

// Result makes figures of it: medians of all repeats, and of the parts of the day those of all repeats together.
//
// Metrics, each beginning with alone_ or waterline_: those of [colocated.figures]; p99_min_ms, p99_max_ms and p99_ratio as in
// [Colocation.Result]; online_percent, batch_percent, agent_percent, generator_percent and other_percent, of the machine's CPU
// time, and on a node kubelet_percent and control_plane_percent, which are parts of other_percent. Then cpu_total_percent and p99_ratio of mode waterline, pods_lost of all runs; asked_percent, what Redis was asked for, of
// the machine; day_seconds, day_values and day_values_capped; runs, runs_discarded and generator_late_p99_ms.
//
// Series, beginning likewise: part_p99_ms and part_p50_ms, part_cpu_total_percent, and one for each of the percentages above: of
// twentieths of the day.
func (d *LivedDay) Result() Result {
	r := d.begin(LiveDayName, LiveDayAbout)
	r.Table.Head = []string{"", "p50 ms", "p99", "p99.9", "× alone", "errors", "online", "batch", "agent", "generator", "other", "of it kubelet", "control plane", "used", "frames/s", "pods lost"}
	for _, name := range []string{modeAlone, modeWaterline} {
		key := key(0, name)
		d.add(&r, key, name, d.mean(), nil)
		for who, cpus := range map[string]string{"online": "online_cpus", "batch": "batch_cpus", "agent": "agent_cpus", "generator": "generator_cpus",
			nodeUpkeep: "kubelet_cpus", clusterUpkeep: "control_plane_cpus", "other": "other_cpus"} {
			if value, found := r.Metrics[key+cpus]; found {
				r.Metrics[key+who+"_percent"] = round(100*value/(float64(runtime.NumCPU())*(1-r.Metrics[key+"steal_percent"]/100)), 2)
			}
		}
		d.addParts(&r, key, name)
		r.Table.Rows = append(r.Table.Rows, dayRow(r.Metrics, key, name))
	}
	d.sumUp(&r)
	d.draw(&r)
	r.Notes = d.notes()
	return r
}

func dayRow(m map[string]float64, key, name string) []string {
	figure := figureOf(m, key)
	cells := []string{name}
	for _, c := range []struct{ figure, format string }{
		{"p50_ms", "%.2f"}, {"p99_ms", "%.2f"}, {"p999_ms", "%.2f"}, {"p99_ratio", "%.2f"}, {"errors", "%.0f"},
		{"online_percent", "%.1f %%"}, {"batch_percent", "%.1f %%"}, {"agent_percent", "%.1f %%"}, {"generator_percent", "%.1f %%"},
		{"other_percent", "%.1f %%"}, {"kubelet_percent", "%.1f %%"}, {"control_plane_percent", "%.1f %%"}, {"cpu_total_percent", "%.1f %%"}, {"ffmpeg_frames_per_second", "%.1f"}, {"pods_lost", "%.0f"},
	} {
		cells = append(cells, figure(c.figure, c.format))
	}
	return cells
}

// addParts adds what was in each part of the day.
func (d *LivedDay) addParts(r *Result, key, name string) {
	runs := d.of(name, d.mean())
	parts := dayParts
	for _, run := range runs {
		parts = min(parts, len(run.seconds))
	}
	for i := range parts {
		all := colocated{}
		var windows []window
		for _, run := range runs {
			n := len(run.seconds)
			windows = append(windows, run.seconds[i*n/parts:(i+1)*n/parts]...)
			for _, a := range run.asked {
				if int(int64(a.due-run.lead)*int64(parts)/int64(d.Length)) == i {
					all.latency = append(all.latency, inMillis(a.latency()))
				}
			}
		}
		if len(windows) == 0 {
			continue
		}
		slices.Sort(all.latency)
		all.window = together(windows)
		percent := func(cpus float64) float64 { return 100 * cpus / all.cpus() }
		for figure, value := range map[string]float64{
			"p50_ms": quantile(all.latency, 0.5), "p99_ms": quantile(all.latency, 0.99),
			"cpu_total_percent": percent(all.used()), "online_percent": percent(all.window.of("redis")), "batch_percent": percent(all.batch()),
			"agent_percent": percent(all.window.of("agent")), "generator_percent": percent(all.window.asked()), "other_percent": percent(all.rest()),
		} {
			r.Series[key+"part_"+figure] = append(r.Series[key+"part_"+figure], round(value, 3))
		}
	}
}

// sumUp adds the figures that the experiment is run for.
func (d *LivedDay) sumUp(r *Result) {
	m := r.Metrics
	m["asked_percent"] = round(100*d.mean()/float64(runtime.NumCPU()), 2)
	m["day_seconds"], m["day_values"], m["day_values_capped"] = d.Length.Seconds(), float64(len(d.course)), float64(d.capped)
	for i := range d.runs {
		m["pods_lost"] += float64(d.runs[i].lost)
	}
	r.Headline.Goal = fmt.Sprintf("CPU ≥ %d %% used, p99 ≤ %.2f × alone, no pod lost", goalDayCPU, goalRatio)
	ratio, timely := m[key(0, modeWaterline)+"p99_ratio"]
	if !timely {
		r.Headline.Value = "not measured: the generator was late too often"
		return
	}
	cpu := m[key(0, modeWaterline)+"cpu_total_percent"]
	m["cpu_total_percent"], m["p99_ratio"] = cpu, ratio
	r.Headline.Value = fmt.Sprintf("CPU %.0f %% used, p99 %.2f × alone, %.0f pods lost", cpu, ratio, m["pods_lost"])
	busy := d.busiest() > tooBusy
	if busy {
		r.Headline.Value += ", on a machine that was busy otherwise"
	}
	r.Headline.Met = cpu >= goalDayCPU && ratio <= goalRatio && m["pods_lost"] == 0 && !busy
}

// draw shows the day beside batch, and the latency of both.
func (d *LivedDay) draw(r *Result) {
	with, alone := key(0, modeWaterline)+"part_", key(0, modeAlone)+"part_"
	rest := slices.Clone(r.Series[with+"other_percent"])
	for i := range rest {
		rest[i] += r.Series[with+"agent_percent"][i] + r.Series[with+"generator_percent"][i]
	}
	r.Chart = chart.Stack{
		Title: "CPU of the machine in the course of a day",
		Desc:  "Areas, one upon the other: what online, batch and everything else used beside batch. Line across them: what was used without batch. Below: p99 of Redis.",
		Layers: []chart.Layer{
			{Name: "online", Values: r.Series[with+"online_percent"]}, {Name: "batch", Values: r.Series[with+"batch_percent"]}, {Name: "all else", Values: rest},
		},
		Over: chart.Layer{Name: "used without batch", Values: r.Series[alone+"cpu_total_percent"]},
		Goal: goalDayCPU, Unit: "ms", Caption: "p99 of Redis",
		Below: []chart.Line{{Name: "alone", Values: r.Series[alone+"p99_ms"]}, {Name: "beside batch", Values: r.Series[with+"p99_ms"], Strong: true}},
	}
}

// notes says what a reader should know to judge the figures.
func (d *LivedDay) notes() []string {
	cpus := float64(runtime.NumCPU())
	notes := []string{
		fmt.Sprintf("The day is that of %s, %d values within %v. What stood there is scaled to a mean of %.3g %% of the machine's %.0f CPUs; Redis was asked for %.0f to %.0f %% of one CPU.",
			d.Day.Name, len(d.course), d.Length, d.Percent, cpus, 100*slices.Min(d.course), 100*slices.Max(d.course)),
	}
	if d.capped > 0 {
		notes = append(notes, fmt.Sprintf("In %d of %d values it was to be more than Redis's one thread can do in good time, and was capped at %.0f %% of a CPU: the mean is %.1f %% of the machine.",
			d.capped, len(d.course), 100*mostOnline, 100*d.mean()/cpus))
	}
	notes = append(notes,
		fmt.Sprintf("Redis requests %d milli-cores as a Burstable pod; each request is a loop of %.1f ms of CPU. Requests come at random moments, at the same in both modes, by %d connections. Runs came in random order; each mode had %d, of which the figures are medians.",
			onlineMilli, inMillis(redisRequest), connections, d.Repeats),
		fmt.Sprintf("Batch is ffmpeg with %d threads in a batch pod; in mode alone there is neither batch nor a policy.", runtime.NumCPU()),
		"Online, batch, agent, generator and other are parts of the machine's CPU time, less what the hypervisor took; other is that of everything outside of these pods and of the generator's cgroup. Latency is counted from when a request was due.",
		d.generatorNote())
	if d.OnNode {
		notes = append(notes, "Kubelet, with the container runtime, and what of the control plane is on this machine are parts of other. A pod is lost that did not last until the end of a run, was to be deleted, or was started again.")
	}
	notes = append(notes, d.busyNotes()...)
	for _, name := range []string{modeAlone, modeWaterline} {
		notes = append(notes, d.slowestNote(name, d.mean(), "mode "+name))
	}
	return notes
}
