package dataset

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

// single reads a file about one machine, whose capacity it does not state.
func single(r *rows, timeName, valueName string, parse func(column int) (int64, error)) ([]Machine, error) {
	columns, err := r.columns(timeName, valueName)
	if err != nil {
		return nil, err
	}
	return whole(r, 0, func() (at int64, v float64, err error) {
		if at, err = parse(columns[0]); err != nil {
			return 0, 0, err
		}
		v, err = r.number(columns[1])
		return at, v, err
	})
}

// whole returns the one machine that a file is about, whose rows have a time and a value. With a limit of 0, that is
// the highest use.
func whole(r *rows, limit float64, read func() (at int64, v float64, err error)) ([]Machine, error) {
	means := means{}
	err := r.each(func() error {
		at, v, err := read()
		if err != nil {
			return err
		}
		return addMean(r, means, at/r.step, v)
	})
	if err != nil {
		return nil, err
	}
	if len(means) == 0 {
		return nil, fmt.Errorf("trace %s has no values", r.name)
	}
	m := meanMachine(r, "", means)
	if limit == 0 {
		limit = slices.Max(m.Parts[0])
	}
	m.Limits = []float64{limit}
	return []Machine{m}, nil
}
