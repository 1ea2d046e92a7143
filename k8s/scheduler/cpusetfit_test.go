package scheduler

import (
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// TestFilteredGetsCPUs checks on random machines that a node which passes the filter has CPUs for the pod, and that a
// node which is refused for want of CPUs has none.
func TestFilteredGetsCPUs(t *testing.T) {
	s := place.DefaultSettings()
	passed, uneven := 0, 0
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(6, seed))
		v := newView(v1alpha1.Namespace)
		room := randomRoom(r)
		v.reports["a"] = &report{
			room: room, changed: time.Now(), content: place.Report{Zones: place.ZonesOf(room.Topology, room.Free)},
		}
		v.agents.ready["a"] = 1
		var promised model.CPUSet
		for id := range room.Free.All() {
			if r.IntN(8) == 0 {
				promised.Add(id)
			}
		}
		v.ledger.Promise("a", "other", 0, promised)
		ask := node.Ask{
			Exclusive: r.IntN(2) == 0,
			Placement: []model.CPUPlacement{model.PlacePacked, model.PlaceSpread, model.PlaceCores}[r.IntN(3)],
		}
		for range 1 + r.IntN(3) {
			ask.CPUs = append(ask.CPUs, 1+r.IntN(5))
		}
		w := waiter{asks: &asks{perPolicy[node.Ask]{of: func(*model.Policy) node.Ask { return ask }}}, cpus: &s}
		why := v.cpuReason("a", v.reports["a"], &w)
		gets := v.promise("a", testPod("p", ""), &ask, &s)
		if gets != (why.Code == "") && why.Code != place.CPUsKept {
			t.Fatalf("seed %d: the filter says %q, and promised: %v; %+v of %s", seed, why, gets, ask, room.Free)
		}
		want := wantOf(&ask)
		switch {
		case gets:
			passed++
		case why.Code == place.CoresTooFew && place.CPUFilter(
			&v.reports["a"].content, place.ZonesOf(room.Topology, room.Free.Minus(promised)), 999, &want).Code == "":
			uneven++
		}
	}
	if passed < 100 || uneven < 100 {
		t.Fatalf("%d passed, and %d had whole cores that did not add up", passed, uneven)
	}
}

// TestOldCPUsRefuseNobody checks that the free CPUs of a report count only while the report does.
func TestOldCPUsRefuseNobody(t *testing.T) {
	s := place.DefaultSettings()
	ask := node.Ask{CPUs: []int{2}, Exclusive: true}
	w := waiter{asks: &asks{perPolicy[node.Ask]{of: func(*model.Policy) node.Ask { return ask }}}, cpus: &s}
	for name, test := range map[string]struct {
		changed any
		refused bool
	}{
		"young":                           {time.Now().Add(-20 * time.Minute).UTC().Format(time.RFC3339), true},
		"old":                             {time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), false},
		"it does not say when it changed": {nil, false},
	} {
		v := newView(v1alpha1.Namespace)
		v.agents.ready["a"] = 1
		status := freeOf("2", 1)
		if test.changed != nil {
			status["changed"] = test.changed
		}
		v.seeReport(nodeReport("a", status))
		v.started = v.started.Add(-time.Minute)
		if why := v.cpuReason("a", v.reports["a"], &w); (why.Code != "") != test.refused {
			t.Errorf("%s: %q", name, why)
		}
		if age := v.now() - v.reports["a"].at; age < 0 {
			t.Errorf("%s: it is %s old", name, age)
		}
	}
}

// TestPodsAreSeenFirst checks that no pod gets CPUs before the view knows which CPUs other pods have.
func TestPodsAreSeenFirst(t *testing.T) {
	v := newView(v1alpha1.Namespace)
	v.namespaces = noNamespaces()
	looks := 0
	v.podsSeen = func() bool { looks++; return looks == 3 }
	(&cpuSetFit{view: v}).PreFilter(t.Context(), framework.NewCycleState(), exclusivePod("p", 1), nil)
	if looks != 3 {
		t.Errorf("it looked %d times, and should until the pods are seen", looks)
	}
}

// randomRoom returns the free CPUs of a machine of up to 16 cores of one to four threads, mostly equal ones.
func randomRoom(r *rand.Rand) *model.CPURoom {
	room := &model.CPURoom{Topology: &model.Topology{}, Exclusive: r.IntN(40)}
	threads := 1 + r.IntN(4)
	id := 0
	for core := range 1 + r.IntN(16) {
		if r.IntN(8) == 0 {
			threads = 1 + r.IntN(4)
		}
		for range threads {
			room.Topology.CPUs = append(room.Topology.CPUs, model.CPU{ID: id, Node: core / 8, L3: core / 4, Core: core})
			if r.IntN(10) > 0 {
				room.Free.Add(id)
			}
			id++
		}
	}
	return room
}
