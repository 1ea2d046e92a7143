package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/waterline-io/waterline/api/v1alpha1"
	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/decide/cluster/rebalance"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// rebalanced is a cluster of nodes without kubelets. The scheduler, the controllers and the Eviction API are real; the
// test says which pods are ready, and ends those that are deleted.
type rebalanced struct {
	t      *testing.T
	core   *rest.RESTClient
	custom *rest.RESTClient
	starts atomic.Bool // pods become ready
}

const rebalanceSpace = "rebalance"

func newRebalanced(t *testing.T) *rebalanced {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	c := &rebalanced{t: t}
	if c.core, err = kube.NewClient(config); err != nil {
		t.Fatal(err)
	}
	if c.custom, err = kube.NewCustomClient(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// node makes a node of 8 CPUs that is ready, and its report, as an agent writes it.
func (c *rebalanced) node(name string, online int64) {
	c.t.Helper()
	apply(c.t, `{apiVersion: v1, kind: Node, metadata: {name: `+name+`, labels: {test: rebalance}}}`)
	now := metav1.Now().UTC().Format(time.RFC3339)
	c.patch("nodes", "", name, fmt.Sprintf(`{"status":{"capacity":{"cpu":"8","memory":"32Gi","pods":"20"},`+
		`"allocatable":{"cpu":"8","memory":"32Gi","pods":"20"},"conditions":[{"type":"Ready","status":"True",`+
		`"reason":"Test","lastHeartbeatTime":%[1]q,"lastTransitionTime":%[1]q}]}}`, now))
	node := object[corev1.Node](c.t, "node", name)
	account := model.Account{Capacity: 8000, Ceiling: 5600, Use: model.Use{System: 200, Online: online, Measured: true}}
	account.Peaks[model.Hour].Value = online
	topology := &model.Topology{CPUs: []model.CPU{{ID: 0}, {ID: 1, Core: 1}, {ID: 2}, {ID: 3, Core: 1}}}
	err := actkube.NewReports(c.custom, name).Write(c.t.Context(), string(node.UID), model.Report{
		Mode: model.ModeEnforce, Slack: &model.Slack{CPU: account},
		CPUs: &model.CPURoom{Free: model.CPUs(1, 3), Exclusive: 2, Topology: topology},
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *rebalanced) patch(resource, namespace, name, body string) {
	c.t.Helper()
	r := c.core.Patch(types.MergePatchType).Resource(resource).Name(name).SubResource("status").Body([]byte(body))
	if namespace != "" {
		r = r.Namespace(namespace)
	}
	if err := r.Do(context.Background()).Error(); err != nil && !apierrors.IsNotFound(err) {
		c.t.Errorf("patching %s %s: %v", resource, name, err)
	}
}

// pods returns the pods of the test's namespace.
func (c *rebalanced) pods() []corev1.Pod {
	var list corev1.PodList
	if err := c.core.Get().Namespace(rebalanceSpace).Resource("pods").Do(context.Background()).Into(&list); err != nil {
		c.t.Error(err)
	}
	return list.Items
}

// attend does what kubelets do: deleted pods end and, while pods become ready, those that are bound do.
func (c *rebalanced) attend() {
	for _, p := range c.pods() {
		switch {
		case p.DeletionTimestamp != nil:
			_ = c.core.Delete().Namespace(p.Namespace).Resource("pods").Name(p.Name).SetHeader("Content-Type",
				"application/json").Body([]byte(`{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}`)).
				Do(context.Background()).Error() // it may be gone
		case p.Spec.NodeName != "" && c.starts.Load() && !kube.Ready(&p):
			c.patch("pods", p.Namespace, p.Name,
				`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
		}
	}
}

// kubelets attends until everything that the test makes from now on is deleted.
func (c *rebalanced) kubelets() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			c.attend()
			time.Sleep(100 * time.Millisecond)
		}
	}()
	c.t.Cleanup(func() { cancel(); <-ended })
}

// names returns the pods of a workload, each with its node.
func (c *rebalanced) names() []string {
	var all []string
	for _, p := range c.pods() {
		if p.DeletionTimestamp == nil {
			all = append(all, p.Name+"@"+p.Spec.NodeName)
		}
	}
	slices.Sort(all)
	return all
}

// rebalanceOutput is the command's JSON.
type rebalanceOutput struct {
	Plan    rebalance.Plan `json:"plan"`
	Stopped string         `json:"stopped"`
	Done    []struct {
		Outcome   string `json:"outcome"`
		Pod, Node string
	} `json:"done"`
}

// rebalance runs the command.
func (c *rebalanced) rebalance(args ...string) (rebalanceOutput, error) {
	c.t.Helper()
	out, failed := program("waterline", append([]string{"rebalance", "-o", "json", "--min-age", "0s", "--kubeconfig",
		bed.Kubeconfig()}, args...)...)
	var parsed rebalanceOutput
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&parsed); err != nil {
		c.t.Fatalf("waterline rebalance %q: %v, %v: %s", args, failed, err, out)
	}
	return parsed, failed
}

// TestAPIRebalance moves pods away from a hot node: first only on paper, then through the Eviction API, against a
// PodDisruptionBudget, and with replacements that never become ready.
func TestAPIRebalance(t *testing.T) {
	c := newRebalanced(t)
	c.starts.Store(true)
	c.kubelets()
	makeNamespace(t, rebalanceSpace, "")
	c.node("warm-a", 7000)
	deployment := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: rebalance}, spec: {replicas: 4,
 selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {
 terminationGracePeriodSeconds: 1, nodeSelector: {test: rebalance}, containers: [{name: web, image: none, resources: {requests: {cpu: "1"}}}]}}}}`
	apply(t, deployment)
	budget := func(least int) {
		t.Helper()
		apply(t, fmt.Sprintf(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: rebalance},
 spec: {minAvailable: %d, selector: {matchLabels: {app: web}}}}`, least))
		eventually(t, "the budget is computed", func() (bool, string) {
			out, err := tryKubectl("get", "pdb", "web", "-n", rebalanceSpace, "-o",
				"jsonpath={.metadata.generation}={.status.observedGeneration} {.status.disruptionsAllowed}")
			g, allowed, _ := strings.Cut(out, " ")
			before, after, _ := strings.Cut(g, "=")
			return err == nil && before == after && allowed == fmt.Sprint(4-least), out
		})
	}
	eventually(t, "four pods are ready on warm-a", func() (bool, string) {
		all := c.names()
		ready := 0
		for _, p := range c.pods() {
			if kube.Ready(&p) && p.Spec.NodeName == "warm-a" {
				ready++
			}
		}
		return ready == 4, strings.Join(all, " ")
	})
	c.node("warm-b", 1000)
	c.node("warm-old", 1000)
	if err := c.custom.Patch(types.MergePatchType).Resource("nodereports").Name("warm-old").SubResource("status").
		Body([]byte(`{"status":{"changed":"2026-01-01T00:00:00Z"}}`)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	apply(t, `{apiVersion: v1, kind: Node, metadata: {name: warm-mute, labels: {test: rebalance}}, `+
		`spec: {unschedulable: true}}`)
	kubectl(t, "cordon", "warm-old") // so that the scheduler chooses as the plan does

	t.Run("a report goes through the API and back", func(t *testing.T) {
		report := object[v1alpha1.NodeReport](t, "nodereport", "warm-b")
		room, err := kube.CPURoom(report.Status.CPUSets)
		if err != nil || room == nil || room.Free != model.CPUs(1, 3) || room.Exclusive != 2 ||
			room.Topology.CPUs[3].Core != 1 {
			t.Errorf("the room is %+v, %v", room, err)
		}
	})

	before := c.names()
	budget(4)
	out, err := c.rebalance()
	if len(out.Plan.Moves) != 0 || err != nil {
		t.Errorf("the budget has no room, and these should move: %+v, %v", out.Plan.Moves, err)
	}
	for _, n := range out.Plan.Nodes {
		if n.Name == "warm-a" && n.Stay[rebalance.DisruptionBudget] != 4 || n.Name == "warm-old" &&
			n.Absent != rebalance.ReportStale || n.Name == "warm-mute" && n.Absent != rebalance.NodeNotReady {
			t.Errorf("node %+v", n)
		}
	}
	budget(3)
	out, err = c.rebalance("--dry-run")
	if err != nil || len(out.Plan.Moves) != 1 || out.Plan.Moves[0].From != "warm-a" || out.Plan.Moves[0].To != "warm-b" ||
		out.Plan.Moves[0].Reason != rebalance.CoolsNode {
		t.Fatalf("the plan is %+v, %v", out.Plan, err)
	}
	if after := c.names(); !slices.Equal(before, after) {
		t.Fatalf("a dry run changed the pods from %v to %v", before, after)
	}

	text, err := program("waterline", "rebalance", "--min-age", "0s", "--kubeconfig", bed.Kubeconfig())
	if err != nil || !strings.Contains(text, "Nothing was changed") ||
		!strings.Contains(text, "takes no part: ReportStale") {
		t.Errorf("the table: %v\n%s", err, text)
	}
	// Replacements are bound and never ready: one pod leaves, and the command stops.
	c.starts.Store(false)
	out, err = c.rebalance("--execute", "--timeout", "3s", "--per-owner", "2")
	if err == nil || len(out.Done) != 1 || out.Done[0].Outcome != "NoReplacement" ||
		!strings.Contains(out.Stopped, "no replacement was ready after 3s") {
		t.Errorf("without a replacement: %+v, %v", out, err)
	}
	if lost := missing(before, c.names()); len(lost) != 1 {
		t.Errorf("these pods left: %v", lost)
	}

	c.starts.Store(true)
	budget(3)
	before = c.names()
	out, err = c.rebalance("--execute", "--timeout", "20s")
	lost := missing(before, c.names())
	if err != nil || len(out.Done) != 1 || out.Done[0].Outcome != "Moved" || out.Done[0].Node != "warm-b" ||
		len(lost) != 1 || !strings.HasSuffix(lost[0], "@warm-a") {
		t.Errorf("executed: %+v, %v; these pods left: %v", out, err, lost)
	}
}

// missing returns what is only in the first list.
func missing(before, after []string) []string {
	return slices.DeleteFunc(slices.Clone(before), func(s string) bool { return slices.Contains(after, s) })
}
