package redisbench

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/lab/measure"
)

// added is what batch added to the requests of one run, compared with the same requests without batch: one value for
// each repeat in which both runs count.
type added struct {
	wait    []float64 // mean of all requests, in milliseconds
	waitP99 []float64 // of pairs of requests
	cpu     []float64 // mean of all requests
}

// addedBy compares the runs of a mode with those of the same repeats alone.
func (m *Runs) addedBy(mode string, load float64) (a added) {
	alone := m.Of(Alone, load)
	for _, with := range m.Of(mode, load) {
		i := slices.IndexFunc(alone, func(r Run) bool { return r.Repeat == with.Repeat })
		if i < 0 || len(with.Requests) == 0 {
			continue
		}
		is, was := with.figures(), alone[i].figures()
		a.wait = append(a.wait, is["wait_ms_per_request"]-was["wait_ms_per_request"])
		a.cpu = append(a.cpu, is["cpu_ms_per_request"]-was["cpu_ms_per_request"])
		if pairs := pairedWaits(&with, &alone[i]); len(pairs) > 0 {
			a.waitP99 = append(a.waitP99, measure.Quantile(pairs, 0.99))
		}
	}
	return a
}

// pairedWaits returns by how much longer the server waited for a CPU until it answered a request than it did until it
// answered the same request in another run, in milliseconds, sorted.
func pairedWaits(with, alone *Run) []float64 {
	const apart = time.Microsecond // the moments are drawn alike, and counted from different beginnings
	var pairs []float64
	next := 0
	for i := range with.Requests {
		due := with.Requests[i].Due - with.Lead
		for next < len(alone.Requests) && alone.Requests[next].Due-alone.Lead < due-apart {
			next++
		}
		if next == len(alone.Requests) || alone.Requests[next].Due-alone.Lead > due+apart {
			continue
		}
		pairs = append(pairs, measure.Millis(with.Requests[i].Server.Waited-alone.Requests[next].Server.Waited))
		next++
	}
	slices.Sort(pairs)
	return pairs
}

// metrics returns the medians of all repeats.
func (a *added) metrics() map[string]float64 {
	all := map[string]float64{}
	for name, values := range map[string][]float64{
		"added_wait_ms_per_request": a.wait, "added_wait_p99_ms": a.waitP99, "added_cpu_ms_per_request": a.cpu,
	} {
		if len(values) > 0 {
			all[name] = measure.Round(measure.Median(values), 3)
		}
	}
	return all
}
