package trace

import (
	"fmt"
	"slices"
	"time"
)

// cloudcluster reads the CPU use of one pool, in values of a minute.
func cloudcluster(r *rows) ([]Machine, error) {
	return single(r, "minute_epoch", "cpu_used_units", func(column int) (int64, error) {
		minute, err := r.seconds(column)
		return minute * 60, err
	})
}

// nab reads one metric of Numenta's Anomaly Benchmark.
func nab(r *rows) ([]Machine, error) {
	return single(r, "timestamp", "value", func(column int) (int64, error) {
		text, err := r.text(column)
		if err != nil {
			return 0, err
		}
		at, err := time.Parse(time.DateTime, text)
		if err != nil || at.Unix() < 0 {
			return 0, r.bad(column, text, "a time such as "+time.DateTime)
		}
		return at.Unix(), nil
	})
}

// single reads a file about one machine. The file does not state the machine's capacity, so the limit is the
// highest use.
func single(r *rows, timeName, valueName string, parse func(column int) (int64, error)) ([]Machine, error) {
	columns, err := r.columns(timeName, valueName)
	if err != nil {
		return nil, err
	}
	means := means{}
	for r.next() {
		at, err := parse(columns[0])
		if err != nil {
			return nil, err
		}
		v, err := r.number(columns[1])
		if err != nil {
			return nil, err
		}
		if err := addMean(r, means, at/r.step, v); err != nil {
			return nil, err
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	if len(means) == 0 {
		return nil, fmt.Errorf("trace %s has no values", r.name)
	}
	m := meanMachine(r, "", means)
	m.Limits = []float64{slices.Max(m.Parts[0])}
	return []Machine{m}, nil
}
