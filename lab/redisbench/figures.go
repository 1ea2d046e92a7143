package redisbench

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
)

// Run is what was measured in one run.
type Run struct {
	Mode        string
	Repeat      int
	Load        float64          // part of one CPU; 0 without a server
	Lead        time.Duration    // requests that were due earlier do not count
	Began       time.Time        // when the generator did
	Scheduled   string           // scheduling class of the generator
	Window      measure.Window   // the whole run
	Seconds     []measure.Window // of which it consists
	Requests    []load.Request   // that count
	Rises       []time.Duration  // after the lead: when the rate of requests rose at once
	Latency     []float64        // of the requests, in milliseconds, sorted; of an unanswered one, the longest wait
	Crowd       []float64        // latency of the requests to memcached, in milliseconds, sorted; nil: it did not run
	Late        []float64        // how late they were sent, in milliseconds, sorted
	Errors      int              // answers that were errors, or are missing
	Frames      float64          // of ffmpeg, a second
	Operations  float64          // of stress-ng, a second
	Waited      time.Duration    // that the server waited for a CPU
	LoadAverage float64
	NodeCPU     map[string]time.Duration // CPU time of what keeps a real node running, which is part of Other
	Lost        int                      // pods of a real node that did not last; in a sandbox a lost process is an error
}

// Count takes from the generator's requests those that count.
func (r *Run) Count(all []load.Request) {
	for _, a := range all {
		if a.Due < r.Lead {
			continue
		}
		if a.Ready == 0 {
			a.Ready = a.Due + load.AnswerTimeout
			a.Refused = true
		}
		if a.Refused {
			r.Errors++
		}
		r.Requests = append(r.Requests, a)
		r.Latency, r.Late = append(r.Latency, measure.Millis(a.Latency())), append(r.Late, measure.Millis(a.Late()))
	}
	slices.Sort(r.Latency)
	slices.Sort(r.Late)
}

// firstSeconds returns the latency of the requests that were due within a second of a rise, in milliseconds, sorted.
func (r *Run) firstSeconds() []float64 {
	var all []float64
	for _, a := range r.Requests {
		due := a.Due - r.Lead
		if slices.ContainsFunc(r.Rises, func(at time.Duration) bool { return due >= at && due < at+time.Second }) {
			all = append(all, measure.Millis(a.Latency()))
		}
	}
	slices.Sort(all)
	return all
}

// Requests that take much more CPU time than they should were on a CPU that was slow: the hypervisor stops it, and not
// all hypervisors say so. Batch beside the server costs a request some percent more.
const (
	slowTimes = 2     // RequestCost
	slowPart  = 0.005 // of a run's requests, so that p99 is not theirs
)

// slowCPU reports whether the server's CPU was slow for so many requests that p99 may be theirs.
func (r *Run) slowCPU() bool {
	n := 0
	for _, a := range r.Requests {
		if a.Took > slowTimes*RequestCost {
			n++
		}
	}
	return float64(n) > slowPart*float64(len(r.Requests))
}

// waitsRatio returns p99, divided by p99 if the server had not waited for a CPU; 0 if that is not known.
func (r *Run) waitsRatio() float64 {
	unwaited := measure.Quantile(r.unwaited(), 0.99)
	if unwaited == 0 {
		return 0
	}
	return measure.Quantile(r.Latency, 0.99) / unwaited
}

// unwaited returns the latency that the requests would have had if the server had not waited for a CPU, in
// milliseconds, sorted: one after another, with the CPU time that each took. A run without batch, at another time, may
// have a CPU of another speed: on one machine, the mean request took 1.03 to 1.39 ms in the runs of one hour.
func (r *Run) unwaited() []float64 {
	all := make([]float64, 0, len(r.Requests))
	var free time.Duration
	for _, a := range r.Requests {
		free = max(free, a.Due) + a.Took
		all = append(all, measure.Millis(free-a.Due))
	}
	slices.Sort(all)
	return all
}

// lateP99 returns how late the generator was, p99, in milliseconds.
func (r *Run) lateP99() float64 { return measure.Quantile(r.Late, 0.99) }

// CPUs returns how many CPUs the machine had, on average: without the share that the hypervisor gave to other machines.
func (r *Run) CPUs() float64 { return float64(runtime.NumCPU()) * (1 - r.Window.Steal/100) }

// Used returns how many of them were not idle.
func (r *Run) Used() float64 { return r.Window.Busy - (float64(runtime.NumCPU()) - r.CPUs()) }

// Batch returns how many CPUs the batch pods used.
func (r *Run) Batch() float64 { return r.Window.CPUsOf(FFmpeg) + r.Window.CPUsOf(StressNG) }

// Other returns how many CPUs were used by neither pods nor the generator.
func (r *Run) Other() float64 { return max(r.Used()-r.Window.CPUs()-r.Window.GeneratorCPUs(), 0) }

// foreign returns how many CPUs were used by processes that are neither measured nor keep the node running.
func (r *Run) foreign() float64 {
	rest := r.Other()
	for _, used := range r.NodeCPU {
		rest -= float64(used) / float64(r.Window.Length)
	}
	return max(rest, 0)
}

// free returns how many CPUs were left for batch: those that nothing else used.
func (r *Run) free() float64 { return max(r.CPUs()-r.Used(), 0) + r.Batch() }

// figures returns the metrics of a run, by names that end in units.
func (r *Run) figures() map[string]float64 {
	f := map[string]float64{
		"steal_percent":     r.Window.Steal,
		"load_1m":           r.LoadAverage,
		"cpu_total_percent": 100 * r.Used() / r.CPUs(),
		"other_cpus":        r.Other(),
		"agent_cpus":        r.Window.CPUsOf("agent"),
		"pods_lost":         float64(r.Lost),
	}
	if r.Mode != Alone {
		f["batch_cpus"], f["ffmpeg_cpus"] = r.Batch(), r.Window.CPUsOf(FFmpeg)
		f["batch_share_of_free_cpu"] = r.Batch() / r.free()
		f["ffmpeg_frames_per_second"] = r.Frames
	}
	for part, used := range r.NodeCPU {
		f[part+"_cpus"] = float64(used) / float64(r.Window.Length)
	}
	if _, ran := r.Window.Used[StressNG]; ran {
		f["stress_operations_per_second"] = r.Operations
	}
	if len(r.Crowd) > 0 {
		f["memcached_p50_ms"], f["memcached_p99_ms"] = measure.Quantile(r.Crowd, 0.5), measure.Quantile(r.Crowd, 0.99)
		f["memcached_cpus"] = r.Window.CPUsOf(Memcached)
	}
	if r.Mode != BatchAlone {
		n := float64(max(len(r.Requests), 1))
		for name, q := range map[string]float64{"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1} {
			f[name] = measure.Quantile(r.Latency, q)
		}
		for name, q := range map[string]float64{"late_p50_ms": 0.5, "late_p99_ms": 0.99, "late_max_ms": 1} {
			f[name] = measure.Quantile(r.Late, q)
		}
		if first := r.firstSeconds(); len(first) > 0 {
			f["rise_p99_ms"] = measure.Quantile(first, 0.99)
		}
		f["errors"], f["requests"] = float64(r.Errors), float64(len(r.Requests))
		f["online_cpus"], f["generator_cpus"] = r.Window.CPUsOf("redis"), r.Window.GeneratorCPUs()
		f["cpu_ms_per_request"] = measure.Millis(r.Window.Used["redis"]) / n
		f["wait_ms_per_request"] = measure.Millis(r.Waited) / n
	}
	return f
}

// slowest returns the n slowest requests, slowest first.
func (r *Run) slowest(n int) []slow {
	all := make([]slow, 0, len(r.Requests))
	for _, a := range r.Requests {
		all = append(all, slow{a, r.Began.Add(a.Due)})
	}
	slices.SortFunc(all, func(a, b slow) int { return cmp.Compare(b.Latency(), a.Latency()) })
	return all[:min(n, len(all))]
}

// slow is one of the slowest requests.
type slow struct {
	load.Request
	at time.Time // when it was due, to some milliseconds
}

// String returns when the request was due and where its time went.
func (s slow) String() string {
	millis := func(d time.Duration) string { return measure.MillisText(measure.Millis(d)) }
	return fmt.Sprintf("%s: %s ms; sent %s ms late with %d requests before it; until the answer the server ran for %s "+
		"ms and "+
		"waited for a CPU for %s ms", s.at.UTC().Format("15:04:05.000"), millis(s.Latency()), millis(s.Late()), s.Ahead,
		millis(s.Server.Ran), millis(s.Server.Waited))
}
