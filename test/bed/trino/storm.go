package trino

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// counts are the queries of a storm, with the count that each returns.
var counts = map[string]float64{
	"select count(*) from tpch.tiny.lineitem where shipdate >= date '1992-01-01'":                         60175,
	"select count(*) from tpch.tiny.orders o join tpch.tiny.customer c on o.custkey = c.custkey":          15000,
	"select count(*) from (select suppkey, sum(extendedprice) from tpch.tiny.lineitem group by suppkey)":  100,
	"select count(distinct name) from tpch.sf1.supplier":                                                  10000,
	"select count(*) from tpch.tiny.nation a cross join tpch.tiny.nation b cross join tpch.tiny.nation c": 15625,
}

// Storm is what became of queries.
type Storm struct {
	Queries     int
	Median, P99 time.Duration
	Failed      []error
}

// String returns the storm for people.
func (s Storm) String() string {
	return fmt.Sprintf("%d queries, median %s, p99 %s, %d failed", s.Queries, s.Median.Round(time.Millisecond),
		s.P99.Round(time.Millisecond), len(s.Failed))
}

// Rain starts queries in an open loop until the context ends, and waits for those that run. A query that returns
// another count than it must has failed, and so has one that takes 4 minutes.
func Rain(ctx context.Context, every time.Duration) (s Storm) {
	texts := slices.Sorted(maps.Keys(counts))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-ctx.Done():
			continue
		case <-tick.C:
		}
		wg.Go(func() {
			sql, start := texts[i%len(texts)], time.Now()
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Minute)
			defer cancel()
			rows, err := Query(within, Coordinator, sql)
			if err == nil && fmt.Sprint(rows) != fmt.Sprint([][]any{{counts[sql]}}) {
				err = fmt.Errorf("%s returns %v", sql, rows)
			}
			mu.Lock()
			defer mu.Unlock()
			if took = append(took, time.Since(start)); err != nil {
				s.Failed = append(s.Failed, fmt.Errorf("at %s, after %s: %w", start.Format(time.TimeOnly), time.Since(start), err))
			}
		})
	}
	wg.Wait()
	if slices.Sort(took); len(took) > 0 {
		s.Queries, s.Median, s.P99 = len(took), took[len(took)/2], took[len(took)*99/100]
	}
	return s
}
