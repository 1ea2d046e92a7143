package pool

import (
	"testing"
	"time"
)

// TestRetries has a worker that fails each time: its NodeManager never registers, or its disk fills up. It is tried
// again and again for a day, less and less often, and works as soon as the cause is gone.
func TestRetries(t *testing.T) {
	for _, fault := range []string{"never", "disk"} {
		w := newWorld(t)
		p := &place{
			Worker: Worker{Name: "w0", Wanted: true, Room: true, Allowance: Size{9216, 5}}, read: true, never: fault == "never",
		}
		w.workers = append(w.workers, p)
		var pods []time.Duration // when each was made
		there := false
		for range 24 * 3600 / 10 {
			w.run(10)
			if is := p.Pod != nil; is != there {
				if there = is; is {
					pods = append(pods, w.now.Sub(w.start))
				}
			}
			if m := p.manager(); fault == "disk" && m != nil && m.State == running && w.now.Sub(p.boots) > 5*time.Minute {
				m.State = unhealthy
			}
		}
		if n := len(pods); n < 8 || n > 12 {
			t.Errorf("%s: %d pods in a day: %v", fault, n, pods)
			continue
		}
		for i := 4; i < len(pods); i++ {
			if gap := pods[i] - pods[i-1]; gap < pods[i-1]-pods[i-2] && gap < retryMost {
				t.Errorf("%s: it was tried again sooner than before: %v", fault, pods)
			}
		}
		p.never = false
		w.run(8 * 3600)
		if m := p.manager(); m == nil || m.State != running {
			t.Errorf("it does not work once the cause is gone: %+v", m)
		}
	}
}

// TestWindowBeginsAnew checks that failures before a window do not count in it.
func TestWindowBeginsAnew(t *testing.T) {
	start := time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		ended time.Time
		o     Opening
		want  int
	}{
		{start.Add(-time.Hour), Opening{Open: true, Start: start}, 0},
		{start.Add(time.Hour), Opening{Open: true, Start: start}, 5},
		{start.Add(-time.Hour), Opening{Open: true}, 5}, // around the clock
		{start.Add(-time.Hour), Opening{}, 5},
	} {
		if got := Failures(5, c.ended, c.o); got != c.want {
			t.Errorf("%+v: %d, want %d", c, got, c.want)
		}
	}
}

// TestDeletedPoolGoes deletes a pool whose ResourceManager does not answer. Without a pod, nothing is left to do: at
// once if none ever answered, otherwise after a while in which it may come back.
func TestDeletedPoolGoes(t *testing.T) {
	now := time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		about string
		rm    RM
		w     Worker
		since time.Duration // the deletion
		want  Phase
	}{
		{"none ever answered", RM{}, Worker{}, 0, Terminated},
		{"it answered before", RM{Since: now.Add(-time.Hour)}, Worker{}, time.Minute, Frozen},
		{"a while ago", RM{Since: now.Add(-time.Hour)}, Worker{Excluded: true}, labelRemovalTimeout, Terminated},
		{"its pod has just ended", RM{Since: now.Add(-time.Hour)}, Worker{Ended: now.Add(-time.Minute)}, time.Hour, Frozen},
		{"its pod ended earlier", RM{Since: now.Add(-time.Hour)}, Worker{Ended: now.Add(-labelRemovalTimeout)},
			time.Hour, Terminated},
		{"a pod is left", RM{}, Worker{Pod: &Pod{Started: now.Add(-time.Hour)}}, time.Hour, Frozen},
		{"it answers", RM{Known: true}, Worker{Excluded: true}, time.Hour, Terminated},
	} {
		in := Input{
			Now: now, RM: c.rm, Workers: []Worker{c.w}, Deleted: now.Add(-c.since),
			Settings: Settings{Attempts: 2, Graceful: true, Drain: time.Hour},
		}
		if s := Next(&in)[0]; s.Phase != c.want {
			t.Errorf("%s: %+v, want %s", c.about, s, c.want)
		}
		in.Deleted = time.Time{}
		if s := Next(&in)[0]; !c.rm.Known && s.Phase != Frozen {
			t.Errorf("%s, and the pool stays: %+v", c.about, s)
		}
	}
}
