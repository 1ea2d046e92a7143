package dataset

import "slices"

// aggregate reads the use of a whole cluster or region. Each of the three sources has columns of its own, and only one
// has times.
func aggregate(r *rows) ([]Machine, error) {
	kind := struct {
		column string
		every  int64   // seconds between two rows without a time
		limit  float64 // 0: the most that was ever used
	}{"cpu_usage", 0, 0} // Azure's, in cores
	switch {
	case slices.Contains(r.header, "cpu_util_percent"):
		kind.column, kind.every, kind.limit = "cpu_util_percent", 30, 100 // Alibaba's
	case slices.Contains(r.header, "avg_cpu"):
		kind.column, kind.every, kind.limit = "avg_cpu", 300, 1 // Google's
	}
	names := []string{kind.column}
	if kind.every == 0 {
		names = append(names, "timestamp")
	}
	columns, err := r.columns(names...)
	if err != nil {
		return nil, err
	}
	at := -kind.every
	return whole(r, kind.limit, func() (int64, float64, error) {
		at += kind.every
		if kind.every == 0 {
			if at, err = r.seconds(columns[1]); err != nil {
				return 0, 0, err
			}
		}
		v, err := r.number(columns[0])
		return at, v, err
	})
}
