//go:build bench

package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/lab/dataset"
	"github.com/waterline-io/waterline/lab/host"
	"github.com/waterline-io/waterline/test/fixture"
)

// warm is the time for which machines have sold before their agents write to the API. It is simulated in steps of five
// seconds, the longest step that the decision accepts as continuous. Afterwards the offers are those of a machine that
// has run.
const warm = 90 * time.Minute

// fleet is a set of agents. Everything about them that writes to the API is real: the decisions from the usage of their
// machines, once a second and in real time, the rate of their writes, and the requests. They have no kernel, and trust
// their own writes instead of watching files.
type fleet struct {
	t      testing.TB
	policy model.Policy
	agents []*fakeAgent

	mu    sync.Mutex // locked while they are moved to other machines, and while they decide
	began time.Time  // when the machines' time was warm
}

type fakeAgent struct {
	host *host.Host
	core *actkube.Publisher
	api  *actkube.Reports
	jobs sync.WaitGroup

	mu      sync.Mutex
	object  model.NodeObject // as the API shows it, if it shows the last write
	writes  model.APIWrites
	decided bool // for the present machine
	wants   []model.Published
	settled bool // the wanted offer was on the Node once, on the present machine
}

// newFleet makes agents for nodes of these names. The UIDs are the names.
func newFleet(t testing.TB, method model.SellMethod, names []string) *fleet {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // all agents share one client
	core, err := kube.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	custom, err := kube.NewCustomClient(config)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, policy: fixture.Policy()}
	f.policy.Mode = model.ModeEnforce
	f.policy.CPU = model.SellPolicy{Method: method, Waterline: 1000}
	f.policy.Memory = f.policy.CPU
	for _, name := range names {
		f.agents = append(f.agents, newFakeAgent(name, core, custom))
	}
	return f
}

func newFakeAgent(name string, core, custom *rest.RESTClient) *fakeAgent {
	return &fakeAgent{
		core: actkube.NewPublisher(core, name), api: actkube.NewReports(custom, name), object: model.NodeObject{UID: name},
	}
}

// carryOut begins the writes of a plan.
func (a *fakeAgent) carryOut(ctx context.Context, plan *model.Plan) {
	uid := a.object.UID
	if plan.Publish.Write {
		before, wanted := a.object.Published, plan.Publish.Resources
		a.begin(&a.writes.Offer, func() error { return a.core.Write(ctx, uid, before, wanted) }, func() {
			a.object.Published = wanted
			a.compare()
		})
	}
	if plan.Report.Write {
		report := plan.Report
		a.begin(&a.writes.Report, func() error { return a.api.Write(ctx, uid, report) }, func() { a.object.Reported = true })
	}
}

// begin writes beside the rounds, and notes the result.
func (a *fakeAgent) begin(state *model.APIWrite, write func() error, written func()) {
	*state = model.APIWrite{Busy: true}
	a.jobs.Go(func() {
		err := write()
		a.mu.Lock()
		defer a.mu.Unlock()
		if *state = (model.APIWrite{Failed: err != nil}); err == nil {
			written()
		}
	})
}

// kinds is the largest number of machines that are simulated until they are warm. If there are more nodes, several
// start from the same machine, and have their own noise from then on.
const kinds = 500

// place moves all agents to other machines. machine returns the i-th of so many, at some time of its trace. From then
// on its time runs like real time.
func (f *fleet) place(machine func(i, of int) *host.Host) {
	hosts := make([]*host.Host, min(len(f.agents), kinds))
	now := time.Now()
	each(len(hosts), func(i int) {
		h := machine(i, len(hosts))
		for after := time.Duration(0); after < warm; after += 5 * time.Second {
			h.Decide(now.Add(after-warm), after, &f.policy)
		}
		hosts[i] = h
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = time.Now()
	for i, a := range f.agents {
		a.host = hosts[i%len(hosts)].Clone(uint64(i))
		a.mu.Lock()
		a.decided, a.settled = false, false
		a.mu.Unlock()
	}
}

// compare checks whether the Node has the wanted offer.
func (a *fakeAgent) compare() {
	a.settled = a.settled || a.decided && slices.Equal(a.object.Published, a.wants)
}

// each calls a function for the first numbers, on all CPUs.
func each(n int, do func(i int)) {
	var wg sync.WaitGroup
	workers := runtime.NumCPU()
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				do(i)
			}
		})
	}
	wg.Wait()
}

// round decides for each node.
func (f *fleet) round(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	after := warm + now.Sub(f.began)
	each(len(f.agents), func(i int) {
		a := f.agents[i]
		a.mu.Lock()
		defer a.mu.Unlock()
		a.host.Object, a.host.Writes = a.object, a.writes
		a.host.Ruling = model.Ruling{Policy: "large", Generation: 1, Selling: model.SellOpen}
		plan := a.host.Decide(now, after, &f.policy)
		a.decided, a.wants = true, plan.Publish.Resources
		a.compare()
		a.carryOut(ctx, &plan)
	})
}

// run lets the agents live until the context ends.
func (f *fleet) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		f.round(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	for _, a := range f.agents {
		a.jobs.Wait()
	}
}

// unsettled returns the number of nodes that do not show their new offer yet, after all were moved.
func (f *fleet) unsettled() (n int) {
	for _, a := range f.agents {
		a.mu.Lock()
		if !a.settled {
			n++
		}
		a.mu.Unlock()
	}
	return n
}

// measured returns the machines of the traces below WATERLINE_TRACES or beside the repository. Without traces, it
// generates machines.
func measured(t testing.TB) []dataset.Machine {
	t.Helper()
	root := cmp.Or(os.Getenv("WATERLINE_TRACES"), "../../../shared/traces")
	var all []dataset.Machine
	for _, set := range []struct {
		name string
		step int64
	}{{"alibaba2018", 60}, {"cloudcluster", 60}, {"bitbrains", 300}} {
		d, _ := dataset.Find(set.name)
		files, err := d.Files(root)
		if err != nil {
			continue
		}
		for _, file := range files {
			machines, err := d.ReadEvery(file, set.step)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, machines...)
		}
	}
	if len(all) == 0 {
		if benchFile != "" {
			t.Fatalf("no traces in %s", root)
		}
		t.Logf("no traces in %s; usage is generated", filepath.Clean(root))
		for seed := range uint64(20) {
			all = append(all, dataset.Generate(trace.Online(8), seed))
		}
	}
	return all
}

// at returns the i-th of many machines: all of the traces in turn, each at another time.
func at(machines []dataset.Machine, i, of int) *host.Host {
	m := &machines[i%len(machines)]
	length := m.Times[len(m.Times)-1] - m.Times[0]
	h := host.New(m, large64, length/2+length/2*int64(i)/int64(of), uint64(i))
	h.Noise = 0.05
	return h
}

// large64 is a node of 64 CPUs.
var large64 = model.Amount{CPU: 64_000, Memory: 256 << 30}

// inTheMorning returns the i-th of many machines whose slack goes from 60 to 20 % within two hours, each at another
// time of these two hours. One minute of all machines stands for an average minute of the two hours.
func inTheMorning(i, of int) *host.Host {
	const begins, lasts = int64(warm / time.Second), 7200
	m := &dataset.Machine{Name: "morning", Times: []int64{0, begins, begins + lasts, 1 << 40},
		Parts: [][]float64{{40, 40, 80, 80}}, Limits: []float64{100}}
	h := host.New(m, large64, lasts*int64(i)/int64(of), uint64(i))
	h.Noise = 0.05
	return h
}

func largeName(i int) string { return fmt.Sprintf("large-%04d", i) }
