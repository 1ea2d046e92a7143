package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestAPIPolicyStatus checks the policies' statuses, which the manager computes from the reports of nodes.
func TestAPIPolicyStatus(t *testing.T) {
	m := newManaged(t)
	for i, labels := range []string{"pool: web", "pool: web", "", `waterline.io/opt-out: ""`} {
		m.node(fmt.Sprintf("m%d", i), "", labels)
	}
	apply(t, `
apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: web}
spec: {mode: Enforce, priority: 10, nodeSelector: {matchLabels: {pool: web}}, cpu: {}}
`)
	m.manager()
	reports := func(node, policy string, generation int64, offer string) {
		t.Helper()
		m.patch("/apis/waterline.io/v1alpha1/nodereports/"+node+"/status", fmt.Sprintf(
			`{"status":{"policy":%q,"policyGeneration":%d,"mode":"Enforce","selling":"Open","cpu":{"offer":{"batch":%q,`+
				`"mid":"0"},"allowance":"0","capacity":"8","ceiling":"5","system":"0","online":"1","peaks":{"hour":"1","day":"1"},`+
				`"bound":{"batch":"0","mid":"0"}}}}`,
			policy, generation, offer))
	}
	says := func(policy, nodes, ready, overlaps string) {
		t.Helper()
		eventually(t, policy+" says "+nodes, func() (bool, string) {
			p := object[v1alpha1.ColocationPolicy](t, "colocationpolicy", policy)
			n := p.Status.Nodes
			is := fmt.Sprintf("%d selected, %d governed, %d enforcing, %d offering", n.Selected, n.Governed, n.Enforcing,
				n.Offering)
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionOverlaps} {
				if c := meta.FindStatusCondition(p.Status.Conditions, kind); c != nil {
					is += "; " + string(c.Status) + " " + c.Reason + " " + c.Message
				}
			}
			return p.Status.ObservedGeneration == p.Generation && strings.HasPrefix(is, nodes) && strings.Contains(is, ready) &&
				strings.Contains(is, overlaps), is
		})
	}
	says("web", "2 selected, 2 governed, 0 enforcing, 0 offering", "False NodesBehind 2 of 2",
		"governs 2 nodes that default selects too")
	says("default", "4 selected, 1 governed, 0 enforcing, 0 offering", "False NodesBehind 1 of 1",
		"2 nodes are governed by web, which has a higher rank")

	generation := object[v1alpha1.ColocationPolicy](t, "colocationpolicy", "web").Generation
	reports("m0", "web", generation, "2")
	reports("m1", "web", generation, "0")
	says("web", "2 selected, 2 governed, 2 enforcing, 1 offering", "True AllNodesFollow", "True SharedNodes")
	shows(t, "status", "4 nodes: 1 behind, 1 offers, 1 offers nothing, 1 opted out",
		"web      Enforce  Open     2         2")
	shows(t, "top --once --sort offered", "m0    offers", "q quit\x00")
	shows(t, "explain policy web", "1      yes       offers             m0", "1      no        PolicyNotSelected",
		"PolicyNotSelected: the policy's nodeSelector does not select the node")
	shows(t, "explain policy default -o yaml", "state: PolicyOutranked", "governed: false")

	m.kubelet(false, "m0")
	says("web", "2 selected, 2 governed, 1 enforcing, 0 offering", "False NodesWithdrawn 1 of 2", "")
	m.kubelet(true, "m0")
	says("web", "2 selected, 2 governed, 2 enforcing, 1 offering", "True AllNodesFollow", "")

	kubectl(t, "patch", "colocationpolicy", "web", "--type=merge", "-p", `{"spec":{"rollout":{"nodes":"0%"}}}`)
	says("web", "2 selected, 0 governed, 0 enforcing, 0 offering", "True AllNodesFollow", "False NoOverlap")
	says("default", "4 selected, 3 governed", "False NodesBehind 3 of 3", "False NoOverlap")
	shows(t, "explain policy web", "2      no        PolicyNotRolledOut  m0 (percent=0% from=")
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	shows(t, "support-bundle --node m0 --file "+bundle, "missing: nodes/m0/ port 9465: ")
	if info, err := os.Stat(bundle); err != nil || info.Size() < 1000 {
		t.Errorf("the bundle: %v", err)
	}
}

// shows runs a command against the cluster, and checks that its output has texts, and none of those that end in a NUL.
func shows(t testing.TB, command string, texts ...string) {
	t.Helper()
	out, err := program("waterline", append(strings.Fields(command), "--kubeconfig", bed.Kubeconfig())...)
	if err != nil {
		t.Errorf("waterline %s: %v: %s", command, err, out)
	}
	for _, text := range texts {
		text, not := strings.CutSuffix(text, "\x00")
		if strings.Contains(out, text) == not {
			t.Errorf("waterline %s: %q is %v in\n%s", command, text, not, out)
		}
	}
}

// TestAPIPolicyRules checks that the API server refuses invalid rules for batch pods.
func TestAPIPolicyRules(t *testing.T) {
	for spec, want := range map[string]string{
		"{batchPods: [{selector: {}}]}":                                           "",
		"{batchPods: [{selector: {matchLabels: {app: a}}, owners: 0%}]}":          "",
		"{batchPods: [{selector: {}, owners: 100%, tier: Mid}]}":                  "",
		"{batchPods: [{owners: 5%}]}":                                             "spec.batchPods[0].selector: Required",
		"{batchPods: [{selector: {}, owners: 101%}]}":                             "write a whole percentage",
		"{batchPods: [{selector: {}, owners: 5}]}":                                "must be of type string",
		"{batchPods: [{selector: {}, tier: prod}]}":                               `supported values: "Batch", "Mid"`,
		"{batchPods: [{selector: {matchLabels: {a b: c}}}]}":                      "write names of labels",
		"{batchPods: [{selector: {matchExpressions: [{key: a, operator: In}]}}]}": "In and NotIn need values",
		"{mode: all}": "Unsupported value",
	} {
		t.Run(spec, func(t *testing.T) {
			c := bed.Kubectl(t.Context(), "apply", "--dry-run=server", "-f", "-")
			c.Stdin = strings.NewReader("{apiVersion: waterline.io/v1alpha1, kind: ColocationPolicy, " +
				"metadata: {name: tried}, spec: " + spec + "}")
			out, err := c.CombinedOutput()
			if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
				t.Errorf("%v: %s, want %q", err, out, want)
			}
		})
	}
}
