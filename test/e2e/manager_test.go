package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// webhookAddress returns where the API server reaches a manager that runs beside the cluster.
func webhookAddress() string { return bed.HostAddress() + ":19443" }

// managerAddress returns where a manager serves metrics. It differs between clusters, because levels 4 and 5a run at
// the same time.
func managerAddress() string { return bed.HostAddress() + ":19466" }

// managed is a cluster with the chart installed, and nodes that exist as objects only. Managers run as processes with
// the rights of the chart's ServiceAccount.
type managed struct {
	t      *testing.T
	admin  user
	config string // kubeconfig of the manager
	// the manager; empty: this version's
	program string

	mu       sync.Mutex
	kubelets map[string]bool // whose Leases are renewed
}

func newManaged(t *testing.T, values ...string) *managed {
	t.Helper()
	installChart(t, append([]string{"--set-json", sellAll,
		"--set-json", `agent.nodeSelector={"nowhere":"true"}`, "--set-json", `manager.nodeSelector={"nowhere":"true"}`,
		// A manager that stands still for some seconds still counts as answering.
		"--set", "manager.webhook.timeoutSeconds=20,manager.webhook.url=https://" + webhookAddress()}, values...)...)
	t.Cleanup(func() {
		helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--wait", "--ignore-not-found")
	})
	m := &managed{t: t, admin: newUser(t, bed.Kubeconfig()), kubelets: map[string]bool{}}
	m.config = kubeconfig(t, kubectl(t, "create", "token", "waterline-manager", "-n", "waterline-system"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.renew(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"

// renew renews the Leases of running kubelets, once a second and all at once. If each renewal took its time, they would
// be renewed as seldom as on lost nodes.
func (m *managed) renew(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.mu.Lock()
		var up []string
		for name, is := range m.kubelets {
			if is {
				up = append(up, name)
			}
		}
		m.mu.Unlock()
		var all sync.WaitGroup
		for _, name := range up {
			all.Go(func() {
				body := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
				r, err := http.NewRequestWithContext(ctx, http.MethodPatch, m.admin.host+leases+name, strings.NewReader(body))
				if err != nil {
					return
				}
				r.Header.Set("Content-Type", "application/merge-patch+json")
				if response, err := m.admin.client.Do(r); err == nil { // stopped for a while in some tests
					_ = response.Body.Close()
				}
			})
		}
		all.Wait()
	}
}

// kubelet sets whether nodes' kubelets are up, for all at the same moment.
func (m *managed) kubelet(up bool, names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		m.kubelets[name] = up
	}
}

// machine makes a node with a kubelet and a ready agent.
func (m *managed) machine(name, labels string) {
	m.t.Helper()
	apply(m.t, fmt.Sprintf(`
{apiVersion: v1, kind: Node, metadata: {name: %[1]s, labels: {%[2]s}}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: %[1]s, namespace: kube-node-lease}, spec: {holderIdentity: %[1]s}}
`, name, labels))
	m.kubelet(true, name)
	m.t.Cleanup(func() { m.kubelet(false, name) })
	m.agent(name)
}

// node makes a node with a kubelet, a ready agent and a report. It sells CPU under a name.
func (m *managed) node(name, resource string, labels string) {
	m.t.Helper()
	m.machine(name, labels)
	uid := object[corev1.Node](m.t, "node", name).UID
	apply(m.t, fmt.Sprintf(`{apiVersion: waterline.io/v1alpha1, kind: NodeReport, metadata: {name: %s, `+
		`ownerReferences: [{apiVersion: v1, kind: Node, name: %s, uid: %s}]}}`, name, name, uid))
	if resource != "" {
		m.patch(nodes+name+"/status", strings.ReplaceAll(sells, "waterline.io/batch-cpu", resource))
		if resource == koordinators { // which are ours only if the Node says so
			kubectl(m.t, "annotate", "node", name, v1alpha1.AnnotationPublished+"="+resource+"=4000")
		}
	}
}

// agent makes the pod of a node's agent, which is ready.
func (m *managed) agent(node string) {
	m.t.Helper()
	apply(m.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: agent-%s, namespace: waterline-system, labels: {app.kubernetes.io/name: waterline-agent}}
spec: {nodeName: %s, tolerations: [{operator: Exists}], containers: [{name: agent, image: none}]}
`, node, node))
	m.ready(node, true)
}

func (m *managed) ready(node string, is bool) {
	m.t.Helper()
	status := map[bool]string{true: "True", false: "False"}[is]
	m.patch("/api/v1/namespaces/waterline-system/pods/agent-"+node+"/status",
		`{"status":{"phase":"Running","conditions":[{"type":"ContainersReady","status":"`+status+`"}]}}`)
}

func (m *managed) patch(path, body string) {
	m.t.Helper()
	if answer, ok := m.admin.patch(m.t, path, body); !ok {
		m.t.Fatalf("%s: %s", path, answer)
	}
}

// manager starts a manager with shorter periods than in production. It ends with the test.
func (m *managed) manager(args ...string) *process {
	m.t.Helper()
	p := &process{t: m.t, log: &lockedBuffer{}, done: make(chan error, 1)}
	p.cmd = exec.Command(cmp.Or(m.program, filepath.Join(built, "bin/waterline-manager")),
		append([]string{"--kubeconfig", m.config, "--namespace", "waterline-system",
			"--identity", fmt.Sprintf("test-%d", time.Now().UnixNano()), "--listen", managerAddress(), "--webhook",
			webhookAddress(), "--webhook-names", bed.HostAddress(),
			// The test renews Leases, and can stand still as long as the machine.
			"--lost-after", "1m", "--fresh-within", "25s", "--back-after", "5s", "--sweep-period", "3s"}, args...)...)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	m.t.Cleanup(func() {
		p.stop(syscall.SIGTERM) // it releases its Lease, so that the next test need not wait
		if m.t.Failed() {
			m.t.Logf("the manager's log:\n%s", p.log)
		}
	})
	return p
}

// metrics reads the manager's metrics; "" while it does not answer.
func (m *managed) metrics() string { return metricsAt(managerAddress()) }

func metricsAt(address string) string {
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body) // a truncated answer counts as none
	return string(content)
}

// shows waits until a metric has a value.
func (m *managed) shows(line string) {
	m.t.Helper()
	eventually(m.t, line, func() (bool, string) {
		all := m.metrics()
		return strings.Contains(all, line+"\n"), all
	})
}

// withdrawn returns the reason for which the offer of a node is withdrawn, "" if it is not.
func (m *managed) withdrawn(node string) string {
	m.t.Helper()
	c := meta.FindStatusCondition(object[v1alpha1.NodeReport](m.t, "nodereport", node).Status.Conditions,
		v1alpha1.ConditionWithdrawn)
	if c == nil || c.Status != "True" {
		return ""
	}
	return c.Reason
}

func (m *managed) expectWithdrawn(node, reason string) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("the offer of %s is withdrawn for %q", node, reason), func() (bool, string) {
		is := m.withdrawn(node)
		return is == reason, fmt.Sprintf("%q", is)
	})
}

// amount returns the amount of a resource on a Node, "" if there is none, "uneven" if capacity and allocatable differ.
func (m *managed) amount(node string, resource corev1.ResourceName) string {
	m.t.Helper()
	status := object[corev1.Node](m.t, "node", node).Status
	capacity, has := status.Capacity[resource]
	allocatable, also := status.Allocatable[resource]
	switch {
	case has != also || capacity.Cmp(allocatable) != 0:
		return "uneven"
	case !has:
		return ""
	}
	return capacity.String()
}

func (m *managed) expectAmount(node string, resource corev1.ResourceName, amount string) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%s has %q of %s", node, amount, resource), func() (bool, string) {
		is := m.amount(node, resource)
		return is == amount, fmt.Sprintf("%q", is)
	})
}

const ours, koordinators = v1alpha1.ResourceBatchCPU, v1alpha1.ResourceKoordinatorBatchCPU

// TestAPINodeHealth stops and restarts the agents and kubelets of nodes.
func TestAPINodeHealth(t *testing.T) {
	m := newManaged(t)
	for i := range 12 {
		resource := ours
		if i == 2 {
			resource = koordinators
		}
		m.node(fmt.Sprintf("m%d", i), resource, "")
	}
	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: bound}
spec: {nodeName: m2, tolerations: [{operator: Exists}], containers: [{name: c, image: none, resources: {requests: {kubernetes.io/batch-cpu: 1500}, limits: {kubernetes.io/batch-cpu: 1500}}}]}
`)
	// Still longer than a machine was seen to stand still.
	sooner := []string{"--lost-after", "30s", "--fresh-within", "12s"}
	first := m.manager(sooner...)
	m.shows(`waterline_nodes{state="agent"} 12`)

	t.Log("an agent dies, and a kubelet")
	m.ready("m1", false)
	m.kubelet(false, "m2")
	m.expectWithdrawn("m1", "AgentNotReady")
	m.expectWithdrawn("m2", "KubeletLost")
	m.expectAmount("m1", ours, "")
	m.expectAmount("m2", koordinators, "1500")

	t.Log("another manager takes over: it knows the withdrawn nodes, and withdraws no more")
	first.stop(os.Kill)
	second := m.manager(sooner...)
	m.shows(`waterline_nodes{state="withdrawn"} 2`)
	m.shows(`waterline_node_withdrawn{node="m1"} 1`)
	m.shows(`waterline_node_withdrawn{node="m2"} 1`)
	time.Sleep(15 * time.Second)
	for i := range 12 {
		name := fmt.Sprintf("m%d", i)
		if is := m.withdrawn(name); (is != "") != (i == 1 || i == 2) {
			t.Errorf("%s is withdrawn for %q", name, is)
		}
	}

	t.Log("the agents and kubelets come back")
	m.ready("m1", true)
	m.kubelet(true, "m2")
	m.expectWithdrawn("m1", "")
	m.expectWithdrawn("m2", "")

	t.Log("an agent is gone for good; its offer is removed, and finally its report")
	kubectl(t, "delete", "pod", "agent-m3", "-n", "waterline-system", "--grace-period=0", "--force")
	m.expectWithdrawn("m3", "AgentNotThere")
	m.expectAmount("m3", ours, "")

	t.Log("the objects without an agent or a node are deleted")
	apply(t, `{apiVersion: waterline.io/v1alpha1, kind: NodeReport, metadata: {name: nowhere}}`)
	eventually(t, "the report of a missing node is deleted", func() (bool, string) {
		out, err := tryKubectl("get", "nodereport", "nowhere")
		return err != nil && strings.Contains(out, "not found"), out
	})

	t.Log("8 of 12 nodes die at once: one a minute is withdrawn")
	var dying []string
	for i := 4; i < 12; i++ {
		dying = append(dying, fmt.Sprintf("m%d", i))
	}
	m.kubelet(false, dying...)
	m.shows(`waterline_manager_braked 1`)
	if soak {
		eventually(t, "two are withdrawn", func() (bool, string) {
			gone := 0
			for _, name := range dying {
				if m.withdrawn(name) != "" {
					gone++
				}
			}
			return gone > 1, fmt.Sprint(gone)
		})
	}
	time.Sleep(15 * time.Second)
	var at []time.Time // when nodes were withdrawn, by the manager's clock, in whole seconds
	for _, name := range dying {
		report := object[v1alpha1.NodeReport](t, "nodereport", name)
		c := meta.FindStatusCondition(report.Status.Conditions, v1alpha1.ConditionWithdrawn)
		if c != nil && c.Status == "True" {
			at = append(at, c.LastTransitionTime.Time)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	for i := range at[:max(len(at)-1, 0)] {
		if apart := at[i+1].Sub(at[i]); apart < 59*time.Second {
			t.Errorf("two of the nodes were withdrawn %s apart: %s", apart, at)
		}
	}
	if out := m.metrics(); strings.Contains(out, `outcome="failed"`) {
		t.Errorf("something could not be done: %s\n%s", out, second.log)
	}
}
