package model

import (
	"testing"
	"time"
)

// TestWaited checks that waiting caused by the pod's own quota does not count.
func TestWaited(t *testing.T) {
	at := time.Hour
	v2 := func(some, throttled int64) Usage {
		return Usage{
			CPU:      CPUUsage{At: at, Milli: 500, Periods: 10, Throttled: throttled},
			Pressure: Pressure{At: at + 1, CPU: Stall{Some: some}},
		}
	}
	quota := func(milli, throttled int64) Usage {
		return Usage{CPU: CPUUsage{At: at, Milli: milli, Periods: 10, Throttled: throttled}}
	}
	for _, c := range []struct {
		name    string
		u       Usage
		limit   int64
		delay   int64
		delayAt time.Duration
		want    int64
		at      time.Duration
	}{
		{"pressure", v2(300, 0), 1000, 0, 0, 300, at + 1},
		{"pressure counts before delay", v2(300, 0), 1000, 700, at, 300, at + 1},
		{"pressure, and its quota throttles it", v2(300, 2), 1000, 0, 0, 100, at + 1},
		{"its quota alone", v2(300, 5), 1000, 0, 0, 0, at + 1},
		{"delay", quota(0, 1), 0, 350, at + 2, 250, at + 2},
		{"delay counts before quota", quota(0, 0), 1000, 0, at + 2, 0, at + 2},
		{"delay of a pod without a quota", Usage{CPU: CPUUsage{At: at}}, 0, 350, at + 2, 350, at + 2},
		{"delay of many tasks", quota(0, 0), 0, 4000, at + 2, 4000, at + 2},
		{"delay of many tasks, and its quota throttles it", quota(0, 4), 0, 4000, at + 2, 600, at + 2},
		{"delay by its quota alone", quota(0, 10), 0, 8000, at + 2, 0, at + 2},
		{"throttled with little usage", quota(300, 6), 1000, 0, 0, 300, at},
		{"throttled with full usage", quota(950, 9), 1000, 0, 0, 0, at},
		{"without a quota there is no measurement", Usage{CPU: CPUUsage{At: at, Milli: 950}}, 0, 0, 0, 0, 0},
		{"never measured", Usage{}, 1000, 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, when := Waited(&c.u, c.delay, c.delayAt, c.limit); got != c.want || when != c.at {
				t.Errorf("%d at %s, want %d at %s", got, when, c.want, c.at)
			}
		})
	}
}
