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
	"github.com/waterline-io/waterline/internal/fixture"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/sim/host"
	"github.com/waterline-io/waterline/internal/sim/trace"
)

// warm is how long machines have sold before their agents come to the API, in time that is reckoned through in steps of five
// seconds, the longest that the decision takes for watched. After it offers are what they are on a machine that has run.
const warm = 90 * time.Minute

// fleet are agents of which everything is real that writes to the API: what they decide from what their machines use, once a
// second and in real time, how seldom they tell it, and with which requests. They have no kernel, and believe what they wrote
// instead of watching it.
type fleet struct {
	t      testing.TB
	policy model.Policy
	agents []*fakeAgent

	mu    sync.Mutex // held while they are put onto other machines, and while they decide
	began time.Time  // when the machines' time was warm
}

type fakeAgent struct {
	host *host.Host
	core *actkube.Publisher
	api  *actkube.Reports
	jobs sync.WaitGroup

	mu      sync.Mutex
	object  model.NodeObject // as the API shows it, if it shows what was written
	writes  model.APIWrites
	decided bool // for the machine that it is on now
	wants   []model.Published
	settled bool // what it wants stood on the Node once, since it is on this machine
}

// newFleet makes agents for nodes of these names, whose UIDs are their names.
func newFleet(t testing.TB, method model.SellMethod, names []string) *fleet {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // one client is that of all agents
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

// begin writes beside the rounds, and notes what became of it.
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

// kinds is how many machines are reckoned through until they are warm, at most. Where there are more nodes, several have one of
// these, and from then on noise of their own.
const kinds = 500

// place puts all agents onto other machines: machine returns the i-th of so many, at some time of its trace. From now on its
// time goes on as ours does.
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

// compare looks whether it stands on the Node what should.
func (a *fakeAgent) compare() {
	a.settled = a.settled || a.decided && slices.Equal(a.object.Published, a.wants)
}

// each calls something for the first numbers, on all CPUs.
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

// unsettled returns how many nodes do not show yet what changed when everything did.
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

// measured returns the machines of the traces below WATERLINE_TRACES or beside the repository; where there are none, such as
// are made.
func measured(t testing.TB) []trace.Machine {
	t.Helper()
	root := cmp.Or(os.Getenv("WATERLINE_TRACES"), "../../../shared/traces")
	var all []trace.Machine
	for _, set := range []struct {
		name string
		step int64
	}{{"alibaba2018", 60}, {"cloudcluster", 60}, {"bitbrains", 300}} {
		d, _ := trace.Find(set.name)
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
			t.Fatalf("there are no traces in %s", root)
		}
		t.Logf("there are no traces in %s; usage is made", filepath.Clean(root))
		for seed := range uint64(20) {
			all = append(all, trace.Generate(trace.Online(8), seed))
		}
	}
	return all
}

// at returns the i-th of many machines: all of the traces in turn, at a time that is another for each.
func at(machines []trace.Machine, i, of int) *host.Host {
	m := &machines[i%len(machines)]
	length := m.Times[len(m.Times)-1] - m.Times[0]
	h := host.New(m, large64, length/2+length/2*int64(i)/int64(of), uint64(i))
	h.Noise = 0.05
	return h
}

// large64 is a node of 64 CPUs.
var large64 = model.Amount{CPU: 64_000, Memory: 256 << 30}

// inTheMorning returns the i-th of many machines whose slack goes from 60 to 20 % within two hours, each at another time of
// these. A minute of all is what a minute of the two hours is on average.
func inTheMorning(i, of int) *host.Host {
	const begins, lasts = int64(warm / time.Second), 7200
	m := &trace.Machine{Name: "morning", Times: []int64{0, begins, begins + lasts, 1 << 40},
		Parts: [][]float64{{40, 40, 80, 80}}, Limits: []float64{100}}
	h := host.New(m, large64, lasts*int64(i)/int64(of), uint64(i))
	h.Noise = 0.05
	return h
}

func largeName(i int) string { return fmt.Sprintf("large-%04d", i) }
