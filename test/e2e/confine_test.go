package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// user is a client of the API server.
type user struct {
	client *http.Client
	host   string
}

func newUser(t testing.TB, kubeconfig string) user {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return user{client, config.Host}
}

// do sends a request and returns the API server's answer. Kubectl is not used, because it first reads the object, which
// an agent may not.
func (u user) do(t testing.TB, method, path, contentType, body string) (answer string, ok bool) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, u.host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	response, err := u.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content), response.StatusCode < 300
}

func (u user) patch(t testing.TB, path, body string) (string, bool) {
	t.Helper()
	kind := types.MergePatchType
	if strings.Contains(path, "/pods/") {
		kind = types.StrategicMergePatchType
	}
	return u.do(t, http.MethodPatch, path, string(kind), body)
}

const (
	nodes   = "/api/v1/nodes/"
	pods    = "/api/v1/namespaces/default/pods/"
	reports = "/apis/waterline.io/v1alpha1/nodereports/"
)

// sells is a patch with which an agent sells CPU.
const sells = `{"status":{"capacity":{"waterline.io/batch-cpu":"4000"},` +
	`"allocatable":{"waterline.io/batch-cpu":"4000"}}}`

// pinned is a patch with which an agent reports a pod's CPUs.
const pinned = `{"status":{"conditions":[{"type":"waterline.io/CPUSet","status":"True",` +
	`"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`

// confined is a cluster with two nodes. An attacker has taken one of them, and the agent's token with it.
type confined struct {
	agent, nameless user
}

func newConfined(t *testing.T) confined {
	t.Helper()
	f := newFake(t)
	f.pod("mine", "")
	for _, manifest := range []string{
		`{apiVersion: v1, kind: Node, metadata: {name: other}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: theirs}, spec: {nodeName: other, containers: [{name: c, ` +
			`image: none}]}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: nobodys}, spec: {schedulerName: none, containers: [{name: c, ` +
			`image: none}]}}`,
		`{apiVersion: waterline.io/v1alpha1, kind: NodeReport, metadata: {name: other}}`,
	} {
		apply(t, manifest)
	}
	c := confined{newUser(t, f.config), newUser(t, kubeconfig(t, agentToken(t, "")))}
	eventually(t, "the admission policies are in force", func() (bool, string) {
		for _, path := range []string{nodes + fakeNode, reports + "other", pods + "mine"} {
			if answer, _ := c.nameless.patch(t, path+"/status", `{"status":{"phase":"Running"}}`); !strings.Contains(answer,
				"not named in its token") {
				return false, answer
			}
		}
		return true, ""
	})
	return c
}

// TestAPIConfinedNode tries to write to Nodes like an attacker who has taken a node.
func TestAPIConfinedNode(t *testing.T) {
	c := newConfined(t)
	for _, refused := range []struct{ what, because, path, body string }{
		{"another node's status", "its own node only", nodes + "other/status", sells},
		{"other resources", "batch and mid resources only", nodes + fakeNode + "/status",
			`{"status":{"capacity":{"cpu":"800"},"allocatable":{"cpu":"800"}}}`},
		{"a new resource", "batch and mid resources only", nodes + fakeNode + "/status",
			`{"status":{"capacity":{"example.com/gpu":"8"}}}`},
		{"taking a resource away", "batch and mid resources only", nodes + fakeNode + "/status",
			`{"status":{"allocatable":{"cpu":null}}}`},
		{"taking all resources away", "batch and mid resources only", nodes + fakeNode + "/status",
			`{"status":{"capacity":null}}`},
		{"conditions", "capacity and allocatable only", nodes + fakeNode + "/status",
			`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`},
		{"addresses", "capacity and allocatable only", nodes + fakeNode + "/status",
			`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`},
		{"labels", "no labels", nodes + fakeNode + "/status", `{"metadata":{"labels":{"pool":"control"}}}`},
		{"annotations", "no annotation of its node but", nodes + fakeNode + "/status", `{"metadata":{"annotations":{"a":"b"}}}`},
		{"the node itself", "cannot patch", nodes + fakeNode, `{"spec":{"unschedulable":true}}`},
	} {
		t.Run(refused.what, func(t *testing.T) {
			answer, ok := c.agent.patch(t, refused.path, refused.body)
			if ok || !strings.Contains(answer, refused.because) {
				t.Errorf("the API server answers %q, want an error with %q", answer, refused.because)
			}
		})
	}
	for _, body := range []string{
		sells, strings.ReplaceAll(sells, "4000", "3000"), strings.ReplaceAll(sells, "waterline.io/batch-cpu",
			"kubernetes.io/mid-memory"),
		strings.ReplaceAll(sells, `"4000"`, "null"),
	} {
		if answer, ok := c.agent.patch(t, nodes+fakeNode+"/status", body); !ok {
			t.Errorf("%s: %s", body, answer)
		}
	}
	if answer, ok := c.agent.do(t, http.MethodGet, "/api/v1/namespaces/waterline-system/secrets/waterline-webhook", "",
		""); ok || !strings.Contains(answer, "cannot get") {
		t.Errorf("the webhook's keys: %.200s", answer)
	}
	for _, path := range []string{"/api/v1/secrets", "/apis/apps/v1/daemonsets",
		"/api/v1/namespaces/waterline-system/configmaps"} {
		if answer, ok := c.agent.do(t, http.MethodGet, path, "", ""); ok || !strings.Contains(answer, "cannot list") {
			t.Errorf("%s: %.200s", path, answer)
		}
	}
	for _, path := range []string{nodes + "other", pods + "theirs", reports + "other",
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/waterline-agent-nodes"} {
		if answer, ok := c.agent.do(t, http.MethodDelete, path, "", ""); ok || !strings.Contains(answer, "cannot delete") {
			t.Errorf("deleting %s: %.200s", path, answer)
		}
	}
}

// TestAPIConfinedPod tries the same with pods.
func TestAPIConfinedPod(t *testing.T) {
	c := newConfined(t)
	for _, refused := range []struct{ what, because, path, body string }{
		{"a pod of another node", "its own node only", pods + "theirs/status", pinned},
		{"a pod of no node", "its own node only", pods + "nobodys/status", pinned},
		{"another condition", "waterline.io/CPUSet only", pods + "mine/status",
			`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`},
		{"the phase", "one condition", pods + "mine/status", `{"status":{"phase":"Failed"}}`},
		{"labels", "no labels", pods + "mine/status", `{"metadata":{"labels":{"app":"x"}}}`},
		{"annotations", "no annotations", pods + "mine/status", `{"metadata":{"annotations":{"iqiyi.com/cpu-share":"262144"}}}`},
		{"the pod itself", "cannot patch", pods + "mine", `{"metadata":{"labels":{"app":"x"}}}`},
	} {
		t.Run(refused.what, func(t *testing.T) {
			answer, ok := c.agent.patch(t, refused.path, refused.body)
			if ok || !strings.Contains(answer, refused.because) {
				t.Errorf("the API server answers %q, want an error with %q", answer, refused.because)
			}
		})
	}
	for _, body := range []string{pinned, strings.ReplaceAll(pinned, "True", "False"),
		`{"status":{"conditions":[{"$patch":"delete","type":"waterline.io/CPUSet"}]}}`} {
		if answer, ok := c.agent.patch(t, pods+"mine/status", body); !ok {
			t.Errorf("%s: %s", body, answer)
		}
	}
}

// TestAPIConfinedReport tries the same with reports.
func TestAPIConfinedReport(t *testing.T) {
	c := newConfined(t)
	uid := object[corev1.Node](t, "node", fakeNode).UID
	create := func(by user, name string, owners ...string) (string, bool) {
		var list []string
		for _, o := range owners {
			kind, name, _ := strings.Cut(o, "/")
			list = append(list, fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"name":%q,"uid":%q}`, kind, name, uid))
		}
		document := fmt.Sprintf(`{"apiVersion":"waterline.io/v1alpha1","kind":"NodeReport","metadata":{"name":%q,`+
			`"ownerReferences":[%s]}}`, name, strings.Join(list, ","))
		return by.do(t, http.MethodPost, strings.TrimSuffix(reports, "/"), "application/json", document)
	}
	const mine = "Node/" + fakeNode
	// The garbage collector removes it some time after its Node.
	forget := func() { kubectl(t, "delete", "nodereport", fakeNode, "--ignore-not-found") }
	forget()
	t.Cleanup(forget)
	for _, refused := range [][]string{{"other2", "Node/other2"}, {fakeNode}, {fakeNode, "Pod/" + fakeNode},
		{fakeNode, "Node/other"}, {fakeNode, mine, "Pod/mine"}} {
		if answer, ok := create(c.agent, refused[0], refused[1:]...); ok || !strings.Contains(answer, "denied request") {
			t.Errorf("a report %v: %s", refused, answer)
		}
	}
	if answer, ok := create(c.nameless, fakeNode, mine); ok {
		t.Errorf("a token without a node creates a report: %s", answer)
	}
	if answer, ok := create(c.agent, fakeNode, mine); !ok {
		t.Errorf("its own report: %s", answer)
	}
	kubectl(t, "patch", "nodereport", fakeNode, "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"Withdrawn","status":"True","reason":"Test","message":"",`+
			`"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	if answer, ok := c.agent.patch(t, reports+"other/status", `{"status":{"policy":"x"}}`); ok ||
		!strings.Contains(answer, "its own node only") {
		t.Errorf("another node's report: %s", answer)
	}
	for _, body := range []string{`{"status":{"conditions":[]}}`, `{"status":{"conditions":null}}`, `{"status":null}`} {
		if answer, ok := c.agent.patch(t, reports+fakeNode+"/status", body); ok ||
			!strings.Contains(answer, "only the manager writes") {
			t.Errorf("an agent restores an offer that the manager withdrew, by %s: %s", body, answer)
		}
	}
	for _, body := range []string{
		`{"status":{"policy":"x","mode":"Observe"}}`,
		`{"status":{"hot":"MemoryExhausted","eviction":{"namespace":"default","name":"job","uid":"1",` +
			`"reason":"MemoryExhausted","message":"left=0B","renewed":"2026-01-01T00:00:00.000000Z"}}}`,
		`{"status":{"hot":null,"eviction":null}}`,
	} {
		if answer, ok := c.agent.patch(t, reports+fakeNode+"/status", body); !ok {
			t.Errorf("its own report: %s: %s", body, answer)
		}
	}
}

const webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"

// TestAPIConfinedManager tries to rewrite the webhook's configuration like an attacker who has taken the manager.
func TestAPIConfinedManager(t *testing.T) {
	m := newManaged(t)
	manager, path := newUser(t, m.config), webhooks+"/waterline"
	read := func() *admission.MutatingWebhookConfiguration {
		t.Helper()
		answer, ok := manager.do(t, http.MethodGet, path, "", "")
		if !ok {
			t.Fatal(answer)
		}
		c := decoded[admission.MutatingWebhookConfiguration](t, []byte(answer))
		return &c
	}
	write := func(change func(c *admission.MutatingWebhookConfiguration)) (string, bool) {
		t.Helper()
		c := read()
		change(c)
		patch, err := json.Marshal([]map[string]any{ // whole, because it may patch and not update
			{"op": "replace", "path": "/metadata", "value": c.ObjectMeta},
			{"op": "replace", "path": "/webhooks", "value": c.Webhooks},
		})
		if err != nil {
			t.Fatal(err)
		}
		return manager.do(t, http.MethodPatch, path, string(types.JSONPatchType), string(patch))
	}
	first := func(change func(w *admission.MutatingWebhook)) func(c *admission.MutatingWebhookConfiguration) {
		return func(c *admission.MutatingWebhookConfiguration) { change(&c.Webhooks[0]) }
	}
	const onlyTrust, onlyObject = "nothing of its webhooks but the caBundle", "no labels, annotations"
	eventually(t, "the admission policy is in force", func() (bool, string) {
		answer, _ := write(first(func(w *admission.MutatingWebhook) { *w.TimeoutSeconds ^= 1 })) // it must stay below 31
		return strings.Contains(answer, onlyTrust), answer
	})
	before := read()
	fail, other, everything := admission.Fail, "https://192.0.2.1/mutate-pods", admission.Rule{
		APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"},
	}
	for _, refused := range []struct {
		what, because string
		change        func(c *admission.MutatingWebhookConfiguration)
	}{
		{"rules for everything", onlyTrust, first(func(w *admission.MutatingWebhook) { w.Rules[0].Rule = everything })},
		{"one more rule", onlyTrust, first(func(w *admission.MutatingWebhook) {
			w.Rules = append(w.Rules, admission.RuleWithOperations{
				Operations: []admission.OperationType{"*"}, Rule: everything,
			})
		})},
		{"all namespaces", onlyTrust, first(func(w *admission.MutatingWebhook) { w.NamespaceSelector = nil })},
		{"all objects", onlyTrust, first(func(w *admission.MutatingWebhook) { w.ObjectSelector = nil })},
		{"no conditions", onlyTrust, first(func(w *admission.MutatingWebhook) { w.MatchConditions = nil })},
		{"another URL", onlyTrust, first(func(w *admission.MutatingWebhook) { w.ClientConfig.URL = &other })},
		{"a Service", onlyTrust, first(func(w *admission.MutatingWebhook) {
			w.ClientConfig.URL = nil
			w.ClientConfig.Service = &admission.ServiceReference{Namespace: "default", Name: "mine"}
		})},
		{"refusals", onlyTrust, first(func(w *admission.MutatingWebhook) { w.FailurePolicy = &fail })},
		{"another name", onlyTrust, first(func(w *admission.MutatingWebhook) { w.Name = "other.waterline.io" })},
		{"one more webhook", onlyTrust, func(c *admission.MutatingWebhookConfiguration) {
			w := *c.Webhooks[0].DeepCopy()
			w.Name = "other.waterline.io"
			c.Webhooks = append(c.Webhooks, w)
		}},
		{"one less", onlyTrust, func(c *admission.MutatingWebhookConfiguration) { c.Webhooks = c.Webhooks[1:] }},
		{"none", onlyTrust, func(c *admission.MutatingWebhookConfiguration) { c.Webhooks = nil }},
		{"labels", onlyObject, func(c *admission.MutatingWebhookConfiguration) { c.Labels["a"] = "b" }},
		{"no labels", onlyObject, func(c *admission.MutatingWebhookConfiguration) { c.Labels = nil }},
		{"an owner", onlyObject, func(c *admission.MutatingWebhookConfiguration) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "1"}}
		}},
		{"a finalizer", onlyObject, func(c *admission.MutatingWebhookConfiguration) { c.Finalizers = []string{"a.example/b"} }},
	} {
		t.Run(refused.what, func(t *testing.T) {
			if answer, ok := write(refused.change); ok || !strings.Contains(answer, refused.because) {
				t.Errorf("the API server answers %q, want an error with %q", answer, refused.because)
			}
		})
	}
	for what, forbidden := range map[string]func() (string, bool){
		"a configuration of another name": func() (string, bool) {
			return manager.do(t, http.MethodPost, webhooks, "application/json", `{"metadata":{"name":"mine"}}`)
		},
		"its own end": func() (string, bool) { return manager.do(t, http.MethodDelete, path, "", "") },
		"an update": func() (string, bool) {
			return manager.do(t, http.MethodPut, path, "application/json", `{"metadata":{"name":"waterline"}}`)
		},
		"the policy's end": func() (string, bool) {
			return manager.do(t, http.MethodDelete, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"+
				"waterline-manager-webhook", "", "")
		},
	} {
		if answer, ok := forbidden(); ok || !strings.Contains(answer, "forbidden") {
			t.Errorf("%s: %s", what, answer)
		}
	}
	if now := read(); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("the configuration was changed: %+v", now)
	}
	config, err := clientcmd.LoadFromFile(m.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, bundle := range [][]byte{config.Clusters["bed"].CertificateAuthorityData, nil} {
		if answer, ok := write(func(c *admission.MutatingWebhookConfiguration) {
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.CABundle = bundle
			}
		}); !ok {
			t.Errorf("a caBundle of %d bytes: %s", len(bundle), answer)
		}
	}
	// The rights of other users are as before.
	if answer, ok := m.admin.do(t, http.MethodPatch, path, string(types.MergePatchType),
		`{"metadata":{"labels":{"a":"b"}}}`); !ok {
		t.Errorf("an administrator: %s", answer)
	}
	m.manager()
	m.answering() // the manager writes its own authority
}
