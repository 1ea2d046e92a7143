package experiment

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// colocated is what was measured in one run. Times of requests are in milliseconds.
type colocated struct {
	mode        string
	load        float64 // part of one CPU; 0 without a server
	repeat      int
	began       time.Time // when the generator did
	window      window
	seconds     []window      // of which it consists
	scheduled   string        // how the generator was
	lead        time.Duration // what was asked that long after the beginning counts
	asked       []asked       // that count
	latency     []float64     // sorted; of one without an answer, as long as was waited for it
	lateness    []float64     // sorted
	errors      int           // answers that were errors, or are missing
	frames      float64       // of ffmpeg, a second
	operations  float64       // of stress-ng, a second
	waited      time.Duration // that the server wanted a CPU and had none
	loadAverage float64
	upkeep      map[string]time.Duration // CPU time of what keeps the node running, which is in rest; empty without a node
	lost        int                      // pods that did not last; without a node that is an error, and there is no run
}

// count takes from the generator's requests what counts.
func (r *colocated) count(all []asked) {
	for _, a := range all {
		if a.due < r.lead {
			continue
		}
		if a.ready == 0 {
			a.ready = a.due + lastAnswers
			a.refused = true
		}
		if a.refused {
			r.errors++
		}
		r.asked = append(r.asked, a)
		r.latency, r.lateness = append(r.latency, inMillis(a.latency())), append(r.lateness, inMillis(a.late()))
	}
	slices.Sort(r.latency)
	slices.Sort(r.lateness)
}

// late returns a quantile of what the generator was late, in milliseconds.
func (r *colocated) late(q float64) float64 { return quantile(r.lateness, q) }

// cpus is how many CPUs the machine had, on average: those that it has, less what the hypervisor gave to somebody else.
func (r *colocated) cpus() float64 { return float64(runtime.NumCPU()) * (1 - r.window.steal/100) }

// used is how many of them did anything.
func (r *colocated) used() float64 { return r.window.busy - (float64(runtime.NumCPU()) - r.cpus()) }

// batch is how many CPUs the batch pods had.
func (r *colocated) batch() float64 { return r.window.of("ffmpeg") + r.window.of("stress-ng") }

// rest is how many CPUs were used by neither pods nor the generator.
func (r *colocated) rest() float64 { return max(r.used()-r.window.cpus()-r.window.asked(), 0) }

// strange is how many CPUs were used by what neither is measured nor keeps the node running.
func (r *colocated) strange() float64 {
	rest := r.rest()
	for _, used := range r.upkeep {
		rest -= float64(used) / float64(r.window.length)
	}
	return max(rest, 0)
}

// free is how many CPUs were left for batch: what nobody else used.
func (r *colocated) free() float64 { return max(r.cpus()-r.used(), 0) + r.batch() }

// figures returns what a run is judged by, by names that end in units.
func (r *colocated) figures() map[string]float64 {
	f := map[string]float64{
		"steal_percent":     r.window.steal,
		"load_1m":           r.loadAverage,
		"cpu_total_percent": 100 * r.used() / r.cpus(),
		"other_cpus":        r.rest(),
		"agent_cpus":        r.window.of("agent"),
		"pods_lost":         float64(r.lost),
	}
	if r.mode != modeAlone {
		f["batch_cpus"], f["ffmpeg_cpus"] = r.batch(), r.window.of("ffmpeg")
		f["batch_share_of_free_cpu"] = r.batch() / r.free()
		f["ffmpeg_frames_per_second"] = r.frames
	}
	for who, used := range r.upkeep {
		f[who+"_cpus"] = float64(used) / float64(r.window.length)
	}
	if _, ran := r.window.used["stress-ng"]; ran {
		f["stress_operations_per_second"] = r.operations
	}
	if r.mode != modeBatch {
		n := float64(max(len(r.asked), 1))
		f["p50_ms"], f["p99_ms"], f["p999_ms"] = quantile(r.latency, 0.5), quantile(r.latency, 0.99), quantile(r.latency, 0.999)
		f["max_ms"] = quantile(r.latency, 1)
		f["errors"], f["requests"] = float64(r.errors), float64(len(r.asked))
		f["online_cpus"] = r.window.of("redis")
		f["cpu_ms_per_request"] = inMillis(r.window.used["redis"]) / n
		f["wait_ms_per_request"] = inMillis(r.waited) / n
		f["generator_cpus"] = r.window.asked()
		f["late_p50_ms"], f["late_p99_ms"], f["late_max_ms"] = r.late(0.5), r.late(0.99), r.late(1)
	}
	return f
}

// slowest returns the requests that took longest, those first.
func (r *colocated) slowest(n int) []slow {
	all := make([]slow, 0, len(r.asked))
	for _, a := range r.asked {
		all = append(all, slow{a, r.began.Add(a.due)})
	}
	slices.SortFunc(all, func(a, b slow) int { return cmp.Compare(b.latency(), a.latency()) })
	return all[:min(n, len(all))]
}

// slow is one of the slowest requests.
type slow struct {
	asked
	at time.Time // when it was due, to some milliseconds
}

// String tells where its time went.
func (s slow) String() string {
	return fmt.Sprintf("%s: %s ms; sent %s ms late with %d requests before it, and until it was answered the server had a CPU for %s ms and waited for one for %s ms",
		s.at.UTC().Format("15:04:05.000"), millis(inMillis(s.latency())), millis(inMillis(s.late())), s.ahead, millis(inMillis(s.server.ran)), millis(inMillis(s.server.waited)))
}
