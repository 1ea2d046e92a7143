package host

import (
	"cmp"
	"os"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/dataset"
	"github.com/waterline-io/waterline/test/fixture"
)

// unsold is no method: nothing is sold.
const unsold model.SellMethod = ""

// fleetSize is for how many nodes writes are told: each machine stands for many, at other times of its trace.
const fleetSize = 5000

// TestWritesOnTraces counts what agents would write to the API if they ran on machines that were really measured: they
// decide once a second, in time that only seems to pass, and tell the API what they decided with what the agent tells
// it with. It holds the budgets for 5,000 nodes, for each data set and method, for nodes that sell nothing, and in a
// morning in which the slack of all nodes goes from 60 to 20 % within two hours. WATERLINE_TRACES names the directory
// of the traces, which are not in the repository.
//
// Traces have means of a minute at best. What is used in a second differs from that by 5 % here; in the full form also
// by nothing, and by 20 %.
func TestWritesOnTraces(t *testing.T) {
	root := cmp.Or(os.Getenv("WATERLINE_TRACES"), "../../../../shared/traces")
	if _, err := os.Stat(root); err != nil {
		t.Skipf("there are no traces: %v", err)
	}
	noises, watched := []float64{0.05}, 6*time.Hour
	every := 1 // trace
	if testing.Short() {
		every = 3
	}
	if os.Getenv("WATERLINE_SOAK") != "" {
		noises, watched = []float64{0, 0.05, 0.2}, 24*time.Hour
	}
	sets := traced(t, root)
	for range 8 {
		sets["ramp"] = append(sets["ramp"], morning(2*time.Hour))
	}
	for _, set := range []string{"alibaba2018", "bitbrains", "cloudcluster", "ramp"} {
		for _, method := range []model.SellMethod{model.SellRealtime, model.SellPredicted, unsold} {
			for _, noise := range noises {
				node, report, over := 5.0, 15.0, watched
				if set == "ramp" {
					node, report, over = 10, 30, 2*time.Hour
				}
				var all outcome
				for i := 0; i < len(sets[set]); i += every {
					simulate(&sets[set][i], uint64(i), method, noise, over, &all)
				}
				if all.oversold > 0 {
					t.Errorf("%s, %s: more was sold than there is for %d seconds", set, method, all.oversold)
				}
				rate := fleetSize / all.seconds
				name := cmp.Or(method, "unsold")
				t.Logf("%-12s %-9s noise %2.0f %%: %5.2f Nodes and %5.2f NodeReports a second, %2.0f %% of the slack in CPU and "+
					"%3.0f %% of that in memory sold", set, name, 100*noise,
					all.nodes*rate, all.reports*rate, 100*all.sold.CPU/all.room.CPU, 100*all.sold.Memory/all.room.Memory)
				if all.nodes*rate > node || all.reports*rate > report {
					t.Errorf("%s, %s: the budget is %v and %v", set, name, node, report)
				}
			}
		}
	}
}

// traced reads the traces that have values of five minutes or less, in the finest steps that they have.
func traced(t *testing.T, root string) map[string][]dataset.Machine {
	t.Helper()
	sets := map[string][]dataset.Machine{}
	for name, step := range map[string]int64{"alibaba2018": 60, "cloudcluster": 60, "bitbrains": 300} {
		d, _ := dataset.Find(name)
		files, err := d.Files(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			machines, err := d.ReadEvery(file, step)
			if err != nil {
				t.Fatal(err)
			}
			sets[name] = append(sets[name], machines...)
		}
	}
	return sets
}

// morning is a machine that uses 40 % for some time, as long as is not counted, and in the two hours after that more
// and more, up to 80 %.
func morning(begins time.Duration) dataset.Machine {
	at := int64(begins / time.Second)
	return dataset.Machine{
		Name: "morning", Times: []int64{0, at, at + 7200, 1 << 40}, Parts: [][]float64{{40, 40, 80, 80}},
		Limits: []float64{100},
	}
}

// outcome is what was counted.
type outcome struct {
	seconds, nodes, reports float64
	sold, room              struct{ CPU, Memory float64 } // sums over the seconds
	oversold                int
}

// simulate has a machine sell for two hours, which are not counted, and for as long as is watched. It starts in the
// middle of its trace, with predictors that know what was before.
func simulate(
	m *dataset.Machine, seed uint64, method model.SellMethod, noise float64, watched time.Duration, o *outcome,
) {
	const before = 2 * time.Hour
	var start int64
	if m.Name != "morning" {
		start = (m.Times[len(m.Times)-1] - m.Times[0]) / 2
	}
	h := New(m, model.Amount{CPU: 64_000, Memory: 256 << 30}, start, seed)
	h.Noise, h.Object.UID = noise, "uid"
	p := fixture.Policy()
	p.Mode = model.ModeEnforce
	p.CPU = model.SellPolicy{Method: method, Waterline: 1000}
	p.Memory = p.CPU
	began := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	h.Learn(began)
	for after := time.Duration(0); after < before+watched; after += time.Second {
		plan := h.Decide(began.Add(after), after, &p)
		offer, report := plan.Publish.Write, plan.Report.Write
		if offer {
			h.Object.Published = plan.Publish.Resources // the API shows it before the next second
		}
		h.Object.Reported = h.Object.Reported || report
		if after < before {
			continue
		}
		if offer {
			o.nodes++
		}
		if report {
			o.reports++
		}
		o.see(plan.Slack)
	}
}

// see notes a second.
func (o *outcome) see(s *model.Slack) {
	o.seconds++
	o.sold.CPU += float64(s.CPU.Offer.Batch)
	o.room.CPU += float64(s.CPU.Room.Batch)
	o.sold.Memory += float64(s.Memory.Offer.Batch)
	o.room.Memory += float64(s.Memory.Room.Batch)
	if s.CPU.Offer.Batch > s.CPU.Room.Batch || s.Memory.Offer.Batch > s.Memory.Room.Batch {
		o.oversold++
	}
}
