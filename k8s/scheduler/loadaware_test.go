package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
)

// TestLoadsFollow checks after random changes, and after some time, that what the plugin keeps of nodes is what the
// view knows of them.
func TestLoadsFollow(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(1, seed))
		v := newView(v1alpha1.Namespace)
		s := place.DefaultSettings()
		l := newLoads(v)
		name := func() string { return fmt.Sprintf("n%d", r.IntN(5)) }
		for range 100 {
			switch uid := fmt.Sprintf("p%d", r.IntN(20)); r.IntN(7) {
			case 0:
				status := reportOf(r.IntN(8))
				status["hot"] = fmt.Sprint(r.IntN(100))
				status["changed"] = time.Now().Add(v.now()).UTC().Format(time.RFC3339)
				v.seeReport(nodeReport(name(), status))
			case 1:
				v.loseReport(name())
			case 2:
				v.assume(name(), testPod(uid, ""), model.Amount{CPU: r.Int64N(1000)})
			case 3:
				v.release(testPod(uid, ""))
			case 4:
				v.seePod(testPod(uid, name()))
			case 5:
				longest := []int{3, 100, 2000}[r.IntN(3)]
				v.started = v.started.Add(-time.Duration(1+r.IntN(longest)) * time.Second)
			default:
				agent := readyAgent(name())
				if r.IntN(2) == 0 {
					v.losePod(agent)
				} else {
					v.seePod(agent)
				}
			}
			l.refresh(v, &s)
			for i := range 5 {
				node := fmt.Sprintf("n%d", i)
				n, report := lookup(v, node)
				kept := l.nodes[node]
				if kept == nil {
					if n.Report != nil {
						t.Fatalf("%s has a report, and the plugin does not know the node", node)
					}
					continue
				}
				ready := (kept.node.Agent.Gone == 0) == (n.Agent.Gone == 0)
				if kept.scored(&s) != (&load{node: n}).scored(&s) || kept.node.Assumed != n.Assumed || !ready ||
					(kept.node.Report == nil) != (n.Report == nil) ||
					kept.report.Hot != report.Hot {
					t.Fatalf("the plugin has %+v %+v of %s, the view %+v %+v", kept.node, kept.report, node, n, report)
				}
			}
		}
	}
}

// TestLoadArguments checks that the arguments of LoadAware count for what the profiles share: which pods the ledger
// takes in, for how much and how long, and which reports are trusted.
func TestLoadArguments(t *testing.T) {
	v := newView(v1alpha1.Namespace)
	for _, settle := range []time.Duration{2 * time.Minute, 20 * time.Minute, 10 * time.Minute} {
		half := int64(50)
		args := LoadAwareArgs{
			Hold: &metav1.Duration{Duration: time.Minute}, Settle: &metav1.Duration{Duration: settle},
			ReportMaxAge: &metav1.Duration{Duration: 3 * settle}, EstimatePercent: &half,
		}
		if _, err := newLoadAware(v, args, nil); err != nil {
			t.Fatal(err)
		}
	}
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	v.nodes = corelisters.NewNodeLister(nodes)
	if err := nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	status := reportOf(0)
	status["changed"] = time.Now().Add(-40 * time.Minute).UTC().Format(time.RFC3339)
	v.agents.ready["a"] = 1
	v.seeReport(nodeReport("a", status))
	registerMetrics()
	p := testPod("p", "a")
	bound := metav1.NewTime(time.Now().Add(-8 * time.Minute))
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: bound},
	}
	v.seePod(p)
	v.count()
	if !v.ledger.Has("a", "p") {
		t.Error("the estimate of a pod does not count although it has not settled")
	}
	s := v.loadLocked()
	if got := v.ledger.Load("a", -8*time.Minute, &s).CPU; got != 1000 {
		t.Errorf("the estimate is %d, and half of 2000 are expected", got)
	}
	if got, err := testutil.GetGaugeMetricValue(nodesByReport.WithLabelValues("Trusted")); got != 1 || err != nil {
		t.Errorf("%g nodes are trusted with a report of 40 minutes: %v", got, err)
	}
}
