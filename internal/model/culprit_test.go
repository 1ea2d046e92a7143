package model

import (
	"testing"
	"time"
)

// TestWaited: what a pod's own quota does to it is not what others do.
func TestWaited(t *testing.T) {
	at := time.Hour
	v2 := func(some, throttled int64) Usage {
		return Usage{CPU: CPUUsage{At: at, Milli: 500, Periods: 10, Throttled: throttled}, Pressure: Pressure{At: at + 1, CPU: Stall{Some: some}}}
	}
	for _, c := range []struct {
		name         string
		u            Usage
		limit, delay int64
		want         int64
		at           time.Duration
	}{
		{"pressure", v2(300, 0), 1000, -1, 300, at + 1},
		{"pressure counts before delay", v2(300, 0), 1000, 700, 300, at + 1},
		{"pressure, and its quota stops it", v2(300, 2), 1000, -1, 100, at + 1},
		{"its quota alone", v2(300, 5), 1000, -1, 0, at + 1},
		{"delay", Usage{CPU: CPUUsage{At: at, Periods: 10, Throttled: 1}}, 0, 350, 250, at},
		{"delay of many tasks", Usage{CPU: CPUUsage{At: at}}, 0, 2500, 1000, at},
		{"stopped though it used little", Usage{CPU: CPUUsage{At: at, Milli: 300, Periods: 10, Throttled: 6}}, 1000, -1, 300, at},
		{"stopped because it used all", Usage{CPU: CPUUsage{At: at, Milli: 950, Periods: 10, Throttled: 9}}, 1000, -1, 0, at},
		{"without a quota nobody knows", Usage{CPU: CPUUsage{At: at, Milli: 950}}, 0, -1, 0, 0},
		{"never measured", Usage{}, 1000, -1, 0, 0},
	} {
		if got, when := Waited(&c.u, c.limit, c.delay); got != c.want || when != c.at {
			t.Errorf("%s: %d at %s, want %d at %s", c.name, got, when, c.want, c.at)
		}
	}
}
