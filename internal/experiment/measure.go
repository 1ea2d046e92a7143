package experiment

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// reading is what had been used at one moment.
type reading struct {
	at   time.Time
	used map[string]time.Duration // by pod
	asks time.Duration            // by the generator of requests
	host hostCPU
}

// window is what was used between two readings.
type window struct {
	length time.Duration
	used   map[string]time.Duration // by pod
	asks   time.Duration            // used by the generator of requests
	steal  float64                  // percent of the machine's CPU time
	busy   float64                  // CPUs of the machine that did anything, on average
}

// read takes a reading. A pod that does not run yet has used nothing.
func (l *lab) read() (reading, error) {
	r := reading{used: map[string]time.Duration{}}
	for _, p := range l.pods {
		used, err := l.box.usage(l.kubelet.dir(p))
		if err != nil {
			return reading{}, err
		}
		r.used[p.name] = used
	}
	var err error
	if l.asking != "" {
		if r.asks, err = l.box.usage(l.asking); err != nil {
			return reading{}, err
		}
	}
	r.at = time.Now()
	r.host, err = readHostCPU()
	return r, err
}

// since returns what was used after an earlier reading.
func (r reading) since(before reading) window {
	w := window{length: r.at.Sub(before.at), used: map[string]time.Duration{}, asks: r.asks - before.asks, steal: r.host.stealSince(before.host), busy: r.host.busySince(before.host)}
	for name, used := range r.used {
		w.used[name] = used - before.used[name]
	}
	return w
}

// together returns what was used in some windows, which follow each other or are of different runs.
func together(windows []window) window {
	all := window{used: map[string]time.Duration{}}
	for _, w := range windows {
		all.length += w.length
		all.asks += w.asks
		all.steal += w.steal * w.length.Seconds()
		all.busy += w.busy * w.length.Seconds()
		for name, used := range w.used {
			all.used[name] += used
		}
	}
	all.steal /= all.length.Seconds()
	all.busy /= all.length.Seconds()
	return all
}

// total is what all pods used together.
func (w window) total() time.Duration {
	var sum time.Duration
	for _, used := range w.used {
		sum += used
	}
	return sum
}

// share is the part of what all pods used that one of them used.
func (w window) share(name string) float64 {
	total := w.total()
	if total == 0 {
		return 0
	}
	return float64(w.used[name]) / float64(total)
}

// of is how many CPUs a pod had, on average.
func (w window) of(name string) float64 { return float64(w.used[name]) / float64(w.length) }

// cpus is how many CPUs the pods had, on average.
func (w window) cpus() float64 { return float64(w.total()) / float64(w.length) }

// asked is how many CPUs the generator of requests had, on average.
func (w window) asked() float64 { return float64(w.asks) / float64(w.length) }

// measure reads once a second for a number of seconds, calls each after every one of them, and returns the whole.
func (l *lab) measure(ctx context.Context, doing string, seconds int, each func(second window) (now string)) (window, error) {
	first, err := l.read()
	if err != nil {
		return window{}, err
	}
	last := first
	total := time.Duration(seconds) * time.Second
	l.tell(Progress{Doing: doing, Total: total})
	for i := range seconds {
		if err := Sleep(ctx, time.Until(first.at.Add(time.Duration(i+1)*time.Second))); err != nil {
			return window{}, fmt.Errorf("%s: %w", doing, err)
		}
		if err := l.running(); err != nil {
			return window{}, fmt.Errorf("%s: %w", doing, err)
		}
		now, err := l.read()
		if err != nil {
			return window{}, err
		}
		l.tell(Progress{Doing: doing, Now: each(now.since(last)), Elapsed: now.at.Sub(first.at), Total: total})
		last = now
	}
	return last.since(first), nil
}

// circumstances adds what else went on during a window to the metrics and, where it matters, to the notes.
func (r *Result) circumstances(w window) {
	if r.Metrics == nil {
		r.Metrics = map[string]float64{}
	}
	cpus := float64(runtime.NumCPU())
	r.Metrics["cpus_won"], r.Metrics["cpus_machine"] = round(w.cpus(), 3), cpus
	r.Metrics["steal_percent"], r.Metrics["load_1m"] = round(w.steal, 2), loadAverage()
	if w.cpus() < 0.9*cpus {
		r.Notes = append(r.Notes, fmt.Sprintf("Others on this machine took %.1f of its %.0f CPUs meanwhile. Ratios may be a few percent off then, and all that is timed takes longer.",
			cpus-w.cpus(), cpus))
	}
}
