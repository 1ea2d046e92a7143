package manager

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/fleet"
)

// TestNodesForPools checks what a pool learns of a node: the worker that is to leave it, and whether it is stopped.
func TestNodesForPools(t *testing.T) {
	f := fleet.New()
	if err := f.Nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	nodes := nodesForPools(f, map[string]string{"a": "u"}, map[string]bool{"a": true})
	if n := nodes["a"]; len(nodes) != 1 || n.Evict != "u" || !n.Off || n.Selling {
		t.Errorf("%+v", nodes)
	}
}

// TestWakesOfPools changes Nodes and reports as kubelets and agents do all the time. Pools, which look every two
// seconds anyway, are woken for what they must not wait for: an end, or less than before.
func TestWakesOfPools(t *testing.T) {
	f, wakes := fleet.New(), 0
	f.Nodes.Changed, f.Reports.Changed = func() { wakes++ }, func() { wakes++ }
	f.Nodes.Matters, f.Reports.Matters = urgentNode, urgentReport
	add := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	node := func(name, pool string, cordoned bool, heartbeat int64) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Labels: map[string]string{"pool": pool}}}
		n.Spec.Unschedulable = cordoned
		n.Status.Allocatable = corev1.ResourceList{
			v1alpha1.ResourceBatchCPU: *resource.NewQuantity(heartbeat, resource.DecimalSI),
		}
		return n
	}
	report := func(name string, offer, bound, allowance int64, hot string) *v1alpha1.NodeReport {
		r := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}}
		q := func(n int64) resource.Quantity { return *resource.NewMilliQuantity(n, resource.DecimalSI) }
		r.Status = v1alpha1.NodeReportStatus{Mode: "Enforce", Selling: "Open", Hot: hot, CPU: &v1alpha1.ResourceReport{}}
		r.Status.CPU.Offer.Batch, r.Status.CPU.Bound.Batch, r.Status.CPU.Allowance = q(offer), q(bound), q(allowance)
		return r
	}
	const n = 500
	for i := range n {
		add(f.Nodes.Add(node(fmt.Sprint(i), "web", false, 0)))
		add(f.Reports.Add(report(fmt.Sprint(i), 8000, 1000, 9000, "")))
	}
	if wakes != 2*n {
		t.Errorf("%d wakes for %d new nodes", wakes, n)
	}
	wakes = 0
	for i := range n {
		add(f.Nodes.Add(node(fmt.Sprint(i), "web", false, 5))) // a heartbeat of the kubelet, or another offer
		add(f.Reports.Add(report(fmt.Sprint(i), 9000, 500, 9500, "")))
	}
	if wakes != 0 {
		t.Errorf("%d wakes for changes that can wait", wakes)
	}
	for about, change := range map[string]func() error{
		"cordoned":        func() error { return f.Nodes.Add(node("0", "web", true, 5)) },
		"labelled":        func() error { return f.Nodes.Add(node("1", "other", false, 5)) },
		"a lower offer":   func() error { return f.Reports.Add(report("2", 8999, 500, 9500, "")) },
		"a bound pod":     func() error { return f.Reports.Add(report("3", 9000, 501, 9501, "")) },
		"less to be used": func() error { return f.Reports.Add(report("4", 9000, 500, 9499, "")) },
		"nothing sold":    func() error { return f.Reports.Add(report("5", 9000, 500, 9500, "MemoryExhausted")) },
		"gone":            func() error { return f.Nodes.Delete(node("6", "web", false, 5)) },
	} {
		wakes = 0
		if add(change()); wakes != 1 {
			t.Errorf("%s: %d wakes, want 1", about, wakes)
		}
	}
}
