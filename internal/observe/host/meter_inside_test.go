package host

import (
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// contain gives a pod containers.
func (n *fakeNode) contain(uid string, names ...string) {
	g := n.pods[uid]
	g.Containers = names
	n.pods[uid] = g
	for _, name := range names {
		n.set(g.Dir+"/"+name, used{})
	}
}

// TestMeterInside follows the containers of pods that use enough: every fifth time, and each time once their quotas
// stop them.
func TestMeterInside(t *testing.T) {
	bothVersions(t, func(t *testing.T, v cgroup.Version) {
		n := newFakeNode(t, v, "busy", "batch", "quiet")
		n.from = 100
		for uid := range n.pods {
			n.contain(uid, "a", "b")
		}
		times := map[string]uint64{"busy": 200e6, "batch": 500e6, "quiet": 99e6}
		spent, throttled := uint64(0), uint64(0)
		read := func(seconds int) (reads int) {
			t.Helper()
			for range seconds {
				spent++
				for uid, each := range times {
					n.pod(uid, used{nanos: spent * each})
				}
				n.set(n.pods["busy"].Dir+"/a", used{nanos: spent * 150e6, periods: spent * 10, throttled: throttled})
				n.set(n.pods["busy"].Dir+"/b", used{nanos: spent * 50e6, periods: spent * 10})
				load := n.after(time.Second)
				for _, u := range load.Inside {
					if u.UID != "busy" || u.Milli != map[string]int64{"a": 150, "b": 50}[u.Name] {
						t.Fatalf("%+v", u)
					}
					if u.At == n.boot {
						reads++
					}
				}
			}
			return reads
		}
		read(7)
		if got := read(10); got != 4 {
			t.Errorf("two containers were read %d times in ten seconds, want each twice", got)
		}
		open := n.meter.reader.held
		throttled = 5
		read(5)
		if u := n.meter.Load().Container("busy", "a"); u == nil || u.Throttled != 5 && u.Throttled != 0 {
			t.Errorf("%+v", u)
		}
		if got := read(10); got != 12 {
			t.Errorf("with one that was stopped: %d times, want 12", got)
		}
		if held := n.meter.reader.held - open; held != map[cgroup.Version]int{cgroup.V1: 2, cgroup.V2: 1}[v] {
			t.Errorf("%d files are open for it", held)
		}
		read(50)
		if got := read(10); got != 4 || n.meter.reader.held != open {
			t.Errorf("a minute later: %d times, %d files", got, n.meter.reader.held-open)
		}
		times["busy"] = 1e6
		read(nearTicks + 2) // the first shows a gap
		if got := n.meter.Load().Inside; len(got) != 0 {
			t.Errorf("five minutes after its pod last used enough: %+v", got)
		}
		times["busy"] = 200e6
		read(7)
		details := n.details()
		allocs := testing.AllocsPerRun(20, func() {
			n.boot, n.mono = n.boot+time.Second, n.mono+time.Second
			_, _ = n.meter.Measure(n.pods, details)
		})
		if got := n.meter.Load().Inside; allocs != 0 || len(got) != 2 {
			t.Errorf("%v allocations a measurement of %+v", allocs, got)
		}
		n.meter.Close()
		if n.meter.reader.held != 0 {
			t.Errorf("%d files are open", n.meter.reader.held)
		}
	})
}

// TestMeterInsideGone: containers come and go, and pods with them.
func TestMeterInsideGone(t *testing.T) {
	n := newFakeNode(t, cgroup.V2, "busy")
	n.from = 100
	n.contain("busy", "a", "b")
	spent := uint64(0)
	pass := func(seconds int) string {
		t.Helper()
		for range seconds {
			spent++
			for uid, g := range n.pods {
				n.pod(uid, used{nanos: spent * 200e6})
				for _, name := range g.Containers {
					n.set(g.Dir+"/"+name, used{nanos: spent * 100e6, throttled: spent, periods: spent})
				}
			}
			n.after(time.Second)
		}
		var names []string
		for _, u := range n.meter.Load().Inside {
			names = append(names, u.Name)
		}
		return strings.Join(names, " ")
	}
	if got := pass(12); got != "a b" {
		t.Errorf("%q", got)
	}
	n.contain("busy", "b", "c")
	if got := pass(12); got != "b c" {
		t.Errorf("%q", got)
	}
	n.pods = map[string]model.PodGroup{}
	none := newFakeNode(t, cgroup.V2)
	none.after(0)
	if got := pass(1); got != "" || n.meter.reader.held != none.meter.reader.held {
		t.Errorf("%q; %d files are open, want %d", got, n.meter.reader.held, none.meter.reader.held)
	}
}
