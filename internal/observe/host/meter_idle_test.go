package host

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestMeterIdleThrottle: on v1, throttling is not looked at while a group has used too little for any quota to stop it,
// and nothing of it is lost.
func TestMeterIdleThrottle(t *testing.T) {
	bothVersions(t, func(t *testing.T, v cgroup.Version) {
		n := newFakeNode(t, v, "batch")
		n.after(0)
		u := used{nanos: 5e6, periods: 10, throttled: 4}
		seen := model.CPUUsage{}
		for i := range 8 {
			u.nanos, u.periods, u.throttled = u.nanos+4e5, u.periods+2, u.throttled+1
			n.pod("batch", u)
			got := n.after(time.Second).Pod("batch").CPU
			if late := v == cgroup.V1 && i != 0 && i != 3 && i != 6; late && got.Periods != 0 || !late && got.Periods == 0 {
				t.Errorf("after %d s: %+v", i+1, got)
			}
			seen.Periods, seen.Throttled = seen.Periods+got.Periods, seen.Throttled+got.Throttled
		}
		u.nanos += 1e6
		n.pod("batch", u)
		got := n.after(time.Second).Pod("batch").CPU
		if seen.Periods+got.Periods != int64(u.periods) || seen.Throttled+got.Throttled != int64(u.throttled) {
			t.Errorf("%d of %d periods and %d of %d that were throttled", seen.Periods+got.Periods, u.periods,
				seen.Throttled+got.Throttled, u.throttled)
		}
	})
}

// TestMeterIdleMemory: what kind of memory a pod has is not asked again while it has as much and does nothing, but now
// and then.
func TestMeterIdleMemory(t *testing.T) {
	bothVersions(t, func(t *testing.T, v cgroup.Version) {
		n := newFakeNode(t, v, "batch")
		u := used{nanos: 5e6, bytes: 15 << 20}
		n.pod("batch", u)
		n.after(0)
		size := filepath.Join(n.mount.OfStat(cgroup.MemoryUsage), n.pods["batch"].Dir, cgroup.StatFile(v, cgroup.MemoryUsage))
		kernel := func() { // moves pages from list to list
			n.pod("batch", used{nanos: u.nanos, bytes: 15})
			n.file(size, fmt.Sprintln(u.bytes))
		}
		anon := func() int64 {
			t.Helper()
			m := n.after(time.Second).Pod("batch").Memory
			if m.At != n.boot {
				t.Errorf("measured at %s, want %s", m.At, n.boot)
			}
			return m.Anon
		}
		kernel()
		for range detailTicks - 1 {
			if got := anon(); got != 10<<20 {
				t.Fatalf("anon %d", got)
			}
		}
		if got := anon(); got != 10 {
			t.Errorf("after a while: anon %d", got)
		}
		for what, change := range map[string]func(){"another size": func() { u.bytes += 15 },
			"work": func() { u.nanos += 1e6 }} {
			change()
			n.pod("batch", u)
			if got := anon(); got < 10<<20 {
				t.Errorf("after %s: anon %d", what, got)
			}
			kernel()
			if got := anon(); got < 10<<20 {
				t.Errorf("the second after %s: anon %d", what, got)
			}
		}
	})
}
