package model

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// TestOwe checks from which debt on a pod lacks CPU, how much it lacks then, and that a debt is bounded.
func TestOwe(t *testing.T) {
	for _, c := range []struct {
		name              string
		waited, debt      time.Duration // of a tenth of a second, in which the pod ran for 50 ms
		most              time.Duration
		owed              time.Duration
		lacks             int64
		tolerated, anyway int64
	}{
		{"it waits as it may", 5 * ms, 0, 25 * ms, 0, 0, 100, 0},
		{"a single wait is no harm", 25 * ms, 0, 25 * ms, 20 * ms, 0, 100, 0},
		{"with the one before it is", 25 * ms, 10 * ms, 25 * ms, 30 * ms, 80, 100, 0},
		{"what it waited less counts too", 0, 20 * ms, 25 * ms, 15 * ms, 0, 100, 0},
		{"no debt is below nothing", 0, 2 * ms, 25 * ms, 0, 0, 100, 0},
		{"no debt is above twice the most", 95 * ms, 45 * ms, 25 * ms, 50 * ms, 360, 100, 0},
		{"what is beyond its baseline is", 55 * ms, 30 * ms, 25 * ms, 35 * ms, 20, 1000, 0},
		{"what it lacks anyway is no harm", 55 * ms, 30 * ms, 25 * ms, 30 * ms, 0, 100, 500},
		{"noise is no harm", 6 * ms, 30 * ms, 25 * ms, 31 * ms, 0, 100, 0},
	} {
		s := WaitSpan{Length: 100 * ms, Ran: 50 * ms, Waited: c.waited}
		owed, lacks := s.Owe(c.debt, c.most, Tolerated{Permille: c.tolerated, Milli: c.anyway})
		if owed != c.owed || lacks != c.lacks {
			t.Errorf("%s: it owes %s and lacks %d, want %s and %d", c.name, owed, lacks, c.owed, c.lacks)
		}
	}
}

// TestMostDebt checks that a pod that hardly runs may owe more.
func TestMostDebt(t *testing.T) {
	for milli, want := range map[int64]time.Duration{-1: 100 * ms, 0: 100 * ms, 20: 85 * ms, 100: 25 * ms, 4000: 25 * ms} {
		if got := MostDebt(milli); got != want {
			t.Errorf("at %d milli-cores %s, want %s", milli, got, want)
		}
	}
}

// TestPressed checks that pressure counts as waiting, from the second measurement on.
func TestPressed(t *testing.T) {
	var w PodWait
	for _, c := range []struct {
		at          time.Duration
		milli, some int64
		want        PodWait
	}{
		{time.Hour, 9000, 900, PodWait{At: time.Hour}},
		{time.Hour + time.Second, 2500, 300, PodWait{At: time.Hour + time.Second, Ran: 2500 * ms, Waited: 300 * ms}},
		{time.Hour + 2*time.Second, -1, 2000, PodWait{At: time.Hour + 2*time.Second, Ran: 2500 * ms, Waited: 1300 * ms}},
	} {
		u := PodUsage{Usage: Usage{CPU: CPUUsage{Milli: c.milli}, Pressure: Pressure{At: c.at, CPU: Stall{Some: c.some}}}}
		if w = w.Pressed(&u); w != c.want {
			t.Errorf("%+v, want %+v", w, c.want)
		}
	}
}

// TestThrottled checks whose quota counts: that of the pod, and those of its containers, where measured lately.
func TestThrottled(t *testing.T) {
	inside := func(uid string, at time.Duration, milli, throttled int64) InsideUsage {
		return InsideUsage{UID: uid, CPUUsage: CPUUsage{At: at, Milli: milli, Periods: 10, Throttled: throttled}}
	}
	l := &Load{Clock: time.Hour, Inside: []InsideUsage{
		inside("a", time.Hour, 900, 3), inside("b", time.Hour, 600, 0), inside("b", time.Hour-time.Second, 500, 1),
		inside("c", time.Hour-time.Minute, 900, 9), inside("e", time.Hour, 900, 2), inside("f", time.Hour, 499, 10),
	}}
	for uid, want := range map[string]int64{"a": 300, "b": 100, "c": 0, "d": 0, "f": 0} {
		if got := l.Throttled(&PodUsage{UID: uid, Usage: Usage{CPU: CPUUsage{Milli: 1000}}}, 8*time.Second); got != want {
			t.Errorf("%s: %d", uid, got)
		}
	}
	for age, want := range map[time.Duration]int64{0: 250, 8 * time.Second: 250, 9 * time.Second: 0, time.Hour: 0} {
		pod := PodUsage{UID: "d", Usage: Usage{CPU: CPUUsage{At: l.Clock - age, Periods: 4, Throttled: 1}}}
		if got := l.Throttled(&pod, 8*time.Second); got != want {
			t.Errorf("by the quota of the pod, measured %s ago: %d", age, got)
		}
	}
}
