//go:build bench

package e2e_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	decide "github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
	simulated "github.com/waterline-io/waterline/internal/sim/node"
)

// mostOutside is how many CPUs everything outside of pods may use so that a comparison says something.
const mostOutside = 0.4

// Loads of online pods: some tenths of a CPU, another number every six seconds. One works for that part of each second
// in one piece, and the other in pieces of milliseconds, of which a glance of 100 ms sees the mean.
const (
	inBursts = "while :; do for d in 1 7 3 9 2 5; do for i in 1 2 3 4 5 6; do " +
		"timeout 0.$d sh -c 'while :; do :; done'; sleep 0.$((10-d)); done; done; done"
	evenly = "k=$(timeout 1 sh -c 'while :; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; echo; done' | wc -l); " +
		"while :; do for d in 1 7 3 9 2 5; do j=0; while [ $j -lt 300 ]; do j=$((j+1)); i=0; " +
		"while [ $i -lt $((k*2*d)) ]; do i=$((i+1)); done; usleep $((20000-2000*d)); done; done; done"
)

// TestNodeSimulateFigures compares the simulators' node with a real one. A batch pod wants all CPUs of the real node,
// beside an online pod whose load changes. What everything but batch used in each second is then given to the simulated
// node, which says what batch uses.
//
// Simulations know neither harm nor what happens within a second. Batch under OnHarm therefore has more on the real
// node: there, the simulated node without a limit shows what harm cost. Under Quota, it has less if the load of each
// second comes in one piece, for which the agent withholds CPU. The figures say how much.
func TestNodeSimulateFigures(t *testing.T) {
	oneNode(t, "the simulated node knows no kernel")
	n := install(t)
	policy := func(by string) {
		n.policy(`{"mode": "Enforce", "cpu": {"waterline": "80%", "method": "Realtime", "suppression": "` + by + `"}}`)
	}
	policy("Arithmetic")
	n.loaded("batch", "BE", "for i in 1 2 3 4; do sh -c 'while :; do :; done' & done; wait", "")
	var daemons []string
	for _, pod := range object[corev1.PodList](t, "pods", "-A", "--field-selector",
		"status.phase=Running,spec.nodeName="+n.name, "-l", v1alpha1.LabelQoS+"=SYSTEM").Items {
		daemons = append(daemons, n.dirOf(&pod))
	}
	const long = 2 * time.Minute
	c, figures, busy := &comparison{node: n, daemons: daemons}, map[string]float64{}, false
	for _, run := range []struct {
		by, load, script string
		lasts            time.Duration
	}{
		{"Arithmetic", "evenly", evenly, 5*time.Minute + 6*time.Second}, {"Arithmetic", "bursts", inBursts, long},
		{"OnHarm", "bursts", inBursts, long},
	} {
		policy(run.by)
		n.loaded("online", "", run.script, "requests: {cpu: 500m}")
		time.Sleep(10 * time.Second) // the policy counts, and limits are as they would be after a while
		r, past := c.watch(t, run.lasts)
		kubectl(t, "delete", "pod", "online", "--wait", "--timeout=1m")
		limited, same := c.again(t, r, past, run.by == "Arithmetic"), run.by == "OnHarm" || run.load == "evenly"
		from, to := r.at[0], r.at[len(r.at)-1]
		cpus, outside := r.node(from, to), r.system(from, to, 1)+r.stolen(from, to)
		real := r.cores(from, to, 0)
		simulatedCPUs := cpus + limited.batch - real
		falls := fallsOf(past)
		t.Logf("%s, %s: of %.2f CPUs, %.3f are used, %.3f outside of pods and %.3f by batch, whose limit falls %d times; "+
			"%.3f are withheld; simulated %.3f, %.3f by batch, %d times", run.by, run.load, r.cpus, cpus, outside, real, falls,
			withheld(past), simulatedCPUs, limited.batch, limited.falls)
		if outside > mostOutside {
			busy = true
			continue
		}
		name := map[string]string{
			"Quotaevenly": "arithmetic_", "Quotabursts": "bursts_", "OnHarmbursts": "unlimited_",
		}[run.by+run.load]
		figures[name+"batch_percent_off"] = 100 * (limited.batch/real - 1)
		figures[name+"cpu_percent_off"] = 100 * (simulatedCPUs/cpus - 1)
		for what, off := range map[string]float64{"batch": limited.batch / real, "all": simulatedCPUs / cpus} {
			if same && (off < 0.85 || off > 1.15) {
				t.Errorf("%s, %s: the simulated node says %.2f times the CPU that %s used", run.by, run.load, off, what)
			}
		}
		switch {
		case run.by == "OnHarm":
			arithmetic := c.again(t, r, past, true)
			figures["simulated_percent_of_onharm"] = 100 * arithmetic.batch / real
			t.Logf("by arithmetic, batch would use %.3f", arithmetic.batch)
			if arithmetic.batch > 1.05*real {
				t.Error("a simulation, which knows no harm, says more than the real node did")
			}
		case run.load == "evenly":
			figures["arithmetic_falls"], figures["arithmetic_falls_simulated"] = float64(falls), float64(limited.falls)
			figures["peak_to_mean_of_5m"] = peaks(r)
		}
	}
	if busy {
		t.Skip("what other programs use without batch is not known where they use all that batch leaves")
	}
	noCrowd(t).judge("simulated-node", figures, nil)
}

// comparison compares a real node with a simulated one.
type comparison struct {
	*node
	daemons []string // cgroups of online pods that began before batch, and are the system's
}

// watch reads what is used for a while, and what the agent decided meanwhile.
func (c *comparison) watch(t *testing.T, lasts time.Duration) (*reader, []decide.Round) {
	t.Helper()
	r := newReader(c.groups, append([]string{c.dir("batch"), c.layout.Root}, c.daemons...))
	began := time.Now()
	r.read(t, lasts)
	past := c.past(t, began)
	if len(past) < 2 {
		t.Fatalf("the journal has %d rounds", len(past))
	}
	return r, past
}

// withheld returns the CPUs that the agent withheld from batch for what happens within a second, in the mean.
func withheld(rounds []decide.Round) (cpus float64) {
	for i := range rounds {
		if s := rounds[i].Plan.Suppress; s != nil {
			for _, o := range s.Reason.Operands {
				if o.Name == "rise" || o.Name == "withheld" {
					cpus += float64(o.Value) / 1000
				}
			}
		}
	}
	return cpus / float64(len(rounds))
}

// past returns the rounds that the agent recorded since a time.
func (n *node) past(t *testing.T, since time.Time) (rounds []decide.Round) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range journal.Files() {
		if content, err := n.readFile(filepath.Join(n.runDir(), name)); err == nil {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for r, err := range journal.Read(dir) {
		if err == nil && !r.Node.Now.Before(since) {
			rounds = append(rounds, r)
		}
	}
	return rounds
}

// fallsOf returns how often the limit of batch fell.
func fallsOf(rounds []decide.Round) (falls int) {
	for i := range rounds[1:] {
		was, is := rounds[i].Plan.Suppress, rounds[i+1].Plan.Suppress
		if was != nil && is != nil && is.Milli < was.Milli {
			falls++
		}
	}
	return falls
}

// retold is what a simulated node said.
type retold struct {
	batch float64 // CPUs that batch used, in the mean
	falls int     // of its limit
}

// again lets a simulated node begin as the real one did in the first of some rounds, and tells it second by second what
// all but batch used, as it was read. Batch wants all CPUs, and is limited by arithmetic or not at all.
func (c *comparison) again(t *testing.T, r *reader, rounds []decide.Round, limited bool) (told retold) {
	t.Helper()
	first := &rounds[0]
	n := simulated.New(first.Node.Capacity, first.Node.Allocatable)
	var job *model.Pod
	for _, p := range first.Node.Pods {
		if p.Class == model.ClassBE {
			job = p
		}
	}
	if job == nil {
		t.Fatal("the journal has no batch pod")
	}
	n.View.Pods, n.Load.Pods = []*model.Pod{job}, []model.PodUsage{{UID: job.UID}}
	n.View.Kubelet = first.Node.Kubelet
	n.View.Tree.Pods[job.UID] = model.PodGroup{Dir: n.View.Tree.BestEffort + "/pod" + job.UID}
	p := first.Policy
	p.Suppress.By = model.SuppressByArithmetic
	n.State.Contention.Arithmetic = first.State.Contention.Arithmetic
	limit := &n.State.Contention.Arithmetic
	limit.Shrunk, limit.Looked, limit.Grown = 0, 0, 0
	n.Limit = first.Plan.Suppress.Milli
	seconds := 0
	for from := r.at[0]; !from.Add(time.Second).After(r.at[len(r.at)-1]); from = from.Add(time.Second) {
		to := from.Add(time.Second)
		milli := func(cpus float64) int64 { return int64(1000 * max(cpus, 0)) }
		var daemons float64
		for i := 2; i < len(r.files)-1; i++ {
			daemons += r.cores(from, to, i)
		}
		system := milli(r.system(from, to, 1) + r.stolen(from, to) + daemons)
		online := milli(r.cores(from, to, 1) - r.cores(from, to, 0) - daemons)
		if !limited {
			n.Limit = -1
		}
		before := n.Limit
		batch := model.Amount{CPU: max(n.Left(system, online), 0)}
		told.batch += float64(batch.CPU) / 1000
		seconds++
		n.At(time.Duration(seconds) * time.Second)
		n.Load.Pods[0].Usage = n.Usage(batch)
		n.Measure(simulated.Use{System: model.Amount{CPU: system}, Online: model.Amount{CPU: online}, Batch: batch})
		n.Decide(&p)
		if n.Limit < before {
			told.falls++
		}
	}
	told.batch /= float64(seconds)
	return told
}

// peaks returns how many times the mean of five minutes their second with the most use is, of online pods: the most of
// all five minutes that were read.
func peaks(r *reader) (most float64) {
	end := r.at[len(r.at)-1]
	for from := r.at[0]; ; from = from.Add(time.Second) {
		to := from.Add(5 * time.Minute)
		if to.After(end) {
			return most
		}
		mean, highest := r.cores(from, to, 1)-r.cores(from, to, 0), 0.0
		for at := from; !at.Add(time.Second).After(to); at = at.Add(time.Second) {
			highest = max(highest, r.cores(at, at.Add(time.Second), 1)-r.cores(at, at.Add(time.Second), 0))
		}
		most = max(most, highest/mean)
	}
}
