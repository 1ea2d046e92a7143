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
	both := v2(300, 0)
	both.Delay = Delay{At: at, Permille: 700}
	delayed := quota(0, 9)
	delayed.Delay = Delay{At: at + 2, Permille: 350, Stopped: 100}
	for _, c := range []struct {
		name  string
		u     Usage
		limit int64
		want  int64
		at    time.Duration
	}{
		{"pressure", v2(300, 0), 1000, 300, at + 1},
		{"pressure counts before delay", both, 1000, 300, at + 1},
		{"pressure, and its quota throttles it", v2(300, 2), 1000, 100, at + 1},
		{"its quota alone", v2(300, 5), 1000, 0, at + 1},
		{"delay", delayed, 0, 250, at + 2},
		{"delay alone", Usage{CPU: CPUUsage{At: at}, Delay: Delay{At: at + 2}}, 0, 0, at + 2},
		{"throttled with little usage", quota(300, 6), 1000, 300, at},
		{"throttled with full usage", quota(950, 9), 1000, 0, at},
		{"without a quota there is no measurement", Usage{CPU: CPUUsage{At: at, Milli: 950}}, 0, 0, 0},
		{"never measured", Usage{}, 1000, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, when := Waited(&c.u, c.limit); got != c.want || when != c.at {
				t.Errorf("%d at %s, want %d at %s", got, when, c.want, c.at)
			}
		})
	}
}
