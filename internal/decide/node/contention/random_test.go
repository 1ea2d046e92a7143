package contention

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

// worlds returns how many random worlds a property is checked on: twenty times as many in the soak.
func worlds(some int) uint64 {
	if os.Getenv("WATERLINE_SOAK") != "" {
		some *= 20
	}
	return uint64(some)
}

// randomNode returns a world with some online pods beside web, which are seen by their tasks or by their pressure. In
// half of the worlds the node's own services are seen too.
func randomNode(r *rand.Rand) *node {
	w := newNode(model.SuppressOnHarm)
	w.tasks = r.IntN(3) > 0
	web := w.pods["web"]
	web.uses = 1000 + r.Int64N(4000)
	for i := range r.IntN(5) {
		w.pod(fmt.Sprintf("other%d", i), load{uses: r.Int64N(600), waits: r.Int64N(20)})
	}
	if r.IntN(2) == 0 {
		for _, uid := range model.SystemGroups() {
			w.service(uid, load{uses: r.Int64N(60)})
		}
	}
	return w
}

// leaves returns what arithmetic leaves batch.
func (w *node) leaves() int64 { return max(12_800-w.uses(), 0) }

// harm returns a function that lets a pod wait for so much of each milli-core that batch uses above a limit.
func (w *node) harm(uid string, above, slope int64) func() {
	return func() {
		if l := w.pods[uid]; l != nil {
			l.waits = max(w.used()-above, 0) * slope / 2
		}
	}
}

func (w *node) String() string {
	var all []string
	for uid, l := range w.pods {
		all = append(all, fmt.Sprintf("%s uses %d", uid, l.uses))
	}
	slices.Sort(all)
	return fmt.Sprintf("tasks %v, %s", w.tasks, strings.Join(all, ", "))
}

// TestRandomHarm checks that batch harms online pods and the node's services for 30 s of an hour at most, whatever
// comes and goes, and when batch sleeps.
func TestRandomHarm(t *testing.T) {
	worst := 0
	for seed := range worlds(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomNode(r)
		every := []int{0, 120, 60, 30, 5}[seed%5]
		victim := "web"
		if w.pods[model.SystemKubelet] != nil && r.IntN(2) == 0 {
			victim, w.tasks = model.SystemKubelet, true // services have no pressure
		}
		above := w.leaves() + r.Int64N(max(15_000-w.uses()-w.leaves(), 1))
		now := w.harm(victim, above, 1+r.Int64N(4))
		sleeps, wakes := r.IntN(20)*r.IntN(2), 25+r.IntN(60)
		harmed := 0
		for s := range 3600 {
			if every > 0 && s%every == 0 {
				if uid := fmt.Sprintf("new%d", s/every-1); w.pods[uid] != nil {
					w.gone(uid)
				}
				w.pod(fmt.Sprintf("new%d", s/every), load{uses: r.Int64N(300)})
			}
			if w.wants = 16_000; s%(sleeps+wakes) < sleeps {
				w.wants = 0
			}
			harmed += w.second(now)
		}
		worst = max(worst, harmed)
		if harmed > 30 {
			t.Errorf("seed %d: harm in %d s of an hour: %s waits above %d, a pod every %d s, batch sleeps %d s, %v",
				seed, harmed, victim, above, every, sleeps, w)
		}
	}
	t.Logf("harm in %d s of an hour at most", worst)
}

// TestRandomAnswer checks that harm lasts for ten seconds at most until batch has found how much room to make, also
// where it begins up to a fifth of the machine below what arithmetic leaves.
func TestRandomAnswer(t *testing.T) {
	worst, spent, all := 0, 0, worlds(300)
	for seed := range all {
		r := rand.New(rand.NewPCG(seed, 2))
		w := randomNode(r)
		w.run(60+r.IntN(60), quietly)
		if w.state.Harm.Tried != 0 {
			spent++ // other waits spent the trial of these two minutes
			continue
		}
		above := w.leaves() - 3200 + r.Int64N(max(15_000-w.uses()-w.leaves()+3200, 1))
		now := w.harm("web", above, 1+r.Int64N(4))
		harmed := 0
		for range 30 {
			harmed += w.second(now)
		}
		worst = max(worst, harmed)
		if harmed > 10 {
			t.Errorf("seed %d: harmed in %d of 30 s; web waits above %d, arithmetic leaves %d, %v",
				seed, harmed, above, w.leaves(), w)
		}
	}
	t.Logf("harm in %d of 30 s at most, %d worlds left out of %d", worst, spent, all)
	if spent > int(all)/20 {
		t.Errorf("%d of %d worlds left out", spent, all)
	}
}

// TestRandomLies checks that pods of a tenant, or services, that wait whatever batch does cost batch no more than
// arithmetic would, but for the seconds in which it is tried whether less helps: a quarter of the machine for 16 s in
// two minutes, whatever their rhythm.
func TestRandomLies(t *testing.T) {
	most := int64(0)
	for seed := range worlds(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := randomNode(r)
		w.run(60, quietly)
		every := 1 + r.IntN(90)
		liar := "web"
		if w.pods[model.SystemServices] != nil && r.IntN(3) == 0 {
			liar = model.SystemServices
		}
		less := int64(0)
		for s := range 3600 {
			if s%every == 0 {
				w.pods[liar].waits = []int64{0, 200, 1000, 4000, 16_000}[r.IntN(5)]
			}
			w.second(quietly)
			less += max(w.leaves()-w.may(), 0)
		}
		less /= 3600
		most = max(most, less)
		if less > 16_000/4*16/120 {
			t.Errorf("seed %d: batch has %d milli-cores less than arithmetic leaves; %s waits anew each %d s, %v",
				seed, less, liar, every, w)
		}
	}
	t.Logf("batch has %d milli-cores less than arithmetic leaves at most", most)
}

// TestRandomTenants checks that what pods of one tenant wait changes no baseline of another.
func TestRandomTenants(t *testing.T) {
	for seed := range worlds(20) {
		learned := func(hostile bool) (all []Baseline) {
			r, evil := rand.New(rand.NewPCG(seed, 4)), rand.New(rand.NewPCG(seed, 5))
			w := randomNode(r)
			if hostile {
				for i := range 4 {
					w.pod(fmt.Sprintf("evil%d", i), load{uses: 30}).Namespace = "evil"
				}
			}
			for s := range 600 {
				if w.wants = 2000; s%90 < 60 {
					w.wants = 0
				}
				for i := range 4 {
					if l := w.pods[fmt.Sprintf("evil%d", i)]; l != nil {
						l.waits = evil.Int64N(20_000)
					}
				}
				w.pods["web"].waits = r.Int64N(2000)
				w.second(quietly)
			}
			return slices.DeleteFunc(slices.Clone(w.state.Baselines), func(b Baseline) bool { return spaceOf(b.Key) == "evil" })
		}
		if alone, beside := learned(false), learned(true); len(alone) == 0 || !reflect.DeepEqual(alone, beside) {
			t.Errorf("seed %d: alone %v, beside a tenant that waits %v", seed, alone, beside)
		}
	}
}
