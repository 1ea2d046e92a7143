package metrics

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	acthost "github.com/waterline-io/waterline/internal/act/host"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// most is the number of series of a node in the lean profile, with all features in use. Two more come from elsewhere:
// the version, and whether the container runtime is connected.
const most = 60 - 2

// busy returns a recorder and a view of a cgroup v2 node that uses every feature and measures everything.
func busy(t *testing.T) (*Recorder, *View) {
	t.Helper()
	r := &Recorder{}
	n := fixture.Node(model.Amount{CPU: 64_000, Memory: 256 << 30})
	fixture.Bind(&n, &model.Pod{UID: "a", Class: model.ClassLS}, &model.Pod{UID: "b", Class: model.ClassBE})
	policy := fixture.Policy()
	policy.Protect.Interference, policy.Protect.EvictPerHour = true, 6
	plan := &model.Plan{
		Slack: &model.Slack{}, Harm: &model.Harm{Known: true}, CPUs: &model.CPUPlan{},
	}
	for _, a := range []*model.Account{&plan.Slack.CPU, &plan.Slack.Memory} {
		a.Offer = model.TierAmounts{Mid: 1, Batch: 1}
		a.Room, a.Bound = a.Offer, a.Offer
		for h := range a.Peaks {
			a.Peaks[h] = model.Peak{Known: true, Checked: 1}
		}
	}
	var load *model.Load
	for second := range 700 {
		now := time.Hour + time.Duration(second)*time.Second
		u := fixture.Usage(now, 1000, 1<<30)
		u.Pressure.At = now
		load = &model.Load{Clock: now, Node: u, Classes: [3]model.Usage{u, u, u}}
		for _, uid := range []string{"a", "b"} {
			fixture.Measure(load, uid, u)
		}
		r.Measured(load, n.Pods, plan)
	}
	r.Round(plan, plan, time.Millisecond)
	return r, &View{
		Node: &n, Policy: &policy, Plan: plan, Load: load, Lean: true,
		Sampled: &model.SampledPods{Some: 1},
		Files:   acthost.Stats{},
		Errors:  func(f func(what string, count uint64)) { f("reading the load", 1) },
	}
}

// selector is what an expression asks for: a metric, and the values that its labels must have.
var selector = regexp.MustCompile(`(waterline_\w+)(?:\{([^}]*)\})?`)

// answers reports whether a series has the labels that an expression asks for. Labels that Prometheus adds fit always.
func answers(t *testing.T, m *dto.Metric, labels string) bool {
	t.Helper()
	for _, want := range regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`).FindAllStringSubmatch(labels, -1) {
		if want[1] == "instance" || want[1] == "job" {
			continue
		}
		is := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == want[1] {
				is = l.GetValue()
			}
		}
		fits := is == want[3]
		if strings.HasSuffix(want[2], "~") {
			fits = regexp.MustCompile("^(?:" + want[3] + ")$").MatchString(is)
		}
		if fits == strings.HasPrefix(want[2], "!") {
			return false
		}
	}
	return true
}

// TestLean counts the series of the lean profile, and checks that each expression of the rules and of the dashboard
// finds series in it, as it does in the full one.
func TestLean(t *testing.T) {
	r, v := busy(t)
	gather := func(lean bool) (map[string][]*dto.Metric, int) {
		v.Lean = lean
		registry := prometheus.NewPedanticRegistry()
		for _, m := range r.Collect(v) {
			registry.MustRegister(one{m})
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		all, n := map[string][]*dto.Metric{}, 0
		for _, f := range families {
			all[f.GetName()] = f.GetMetric()
			n += len(f.GetMetric())
		}
		return all, n
	}
	full, inFull := gather(false)
	lean, inLean := gather(true)
	t.Logf("%d series, %d in the lean profile", inFull, inLean)
	if inLean > most || inFull < 3*inLean {
		t.Errorf("%d series in the lean profile of %d, want at most %d and a third", inLean, inFull, most)
	}
	asked := 0
	for _, file := range []string{"rules/waterline.yaml", "dashboards/waterline.json"} {
		content, err := os.ReadFile("../../../deploy/chart/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range selector.FindAllStringSubmatch(strings.ReplaceAll(string(content), `\"`, `"`), -1) {
			found := func(in map[string][]*dto.Metric) bool {
				for _, s := range in[m[1]] {
					if answers(t, s, m[2]) {
						return true
					}
				}
				return false
			}
			if !found(full) {
				continue // of the manager, or of an event that did not happen here
			}
			asked++
			if !found(lean) {
				t.Errorf("%s asks for %s, which the lean profile lacks", file, m[0])
			}
		}
	}
	if asked < 30 {
		t.Errorf("only %d selectors were found", asked)
	}
}

// one collects one metric.
type one struct{ metric prometheus.Metric }

func (o one) Describe(chan<- *prometheus.Desc)     {}
func (o one) Collect(out chan<- prometheus.Metric) { out <- o.metric }
