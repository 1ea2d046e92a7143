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
	both := v2(300, 0)
	both.Delay = Delay{At: at, Permille: 700}
	for _, c := range []struct {
		name  string
		u     Usage
		limit int64
		want  int64
		at    time.Duration
	}{
		{"pressure", v2(300, 0), 1000, 300, at + 1},
		{"pressure counts before delay", both, 1000, 300, at + 1},
		{"pressure, and its quota stops it", v2(300, 2), 1000, 100, at + 1},
		{"its quota alone", v2(300, 5), 1000, 0, at + 1},
		{"delay", Usage{CPU: CPUUsage{At: at, Periods: 10, Throttled: 9}, Delay: Delay{At: at + 2, Permille: 350, Stopped: 100}}, 0, 250, at + 2},
		{"delay alone", Usage{CPU: CPUUsage{At: at}, Delay: Delay{At: at + 2}}, 0, 0, at + 2},
		{"stopped though it used little", Usage{CPU: CPUUsage{At: at, Milli: 300, Periods: 10, Throttled: 6}}, 1000, 300, at},
		{"stopped because it used all", Usage{CPU: CPUUsage{At: at, Milli: 950, Periods: 10, Throttled: 9}}, 1000, 0, at},
		{"without a quota nobody knows", Usage{CPU: CPUUsage{At: at, Milli: 950}}, 0, 0, 0},
		{"never measured", Usage{}, 1000, 0, 0},
	} {
		if got, when := Waited(&c.u, c.limit); got != c.want || when != c.at {
			t.Errorf("%s: %d at %s, want %d at %s", c.name, got, when, c.want, c.at)
		}
	}
}
