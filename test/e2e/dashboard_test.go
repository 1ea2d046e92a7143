package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// dashboardRights are those of a viewer: everything about nodes and policies, and the pods of one namespace.
const dashboardRights = `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: viewer, namespace: default}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: nobody, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dashboard-viewer}
rules:
  - {apiGroups: [waterline.io], resources: [nodereports, colocationpolicies], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dashboard-viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dashboard-viewer}
subjects: [{kind: ServiceAccount, name: viewer, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: dashboard-pods, namespace: default}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dashboard-pods, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: dashboard-pods}
subjects: [{kind: ServiceAccount, name: viewer, namespace: default}]
`

// TestAPIDashboard asks the manager's dashboard with real tokens. The manager has the rights of the chart and no
// others, nodes report as agents do, and the connection is verified by the authority that the webhook has.
func TestAPIDashboard(t *testing.T) {
	m := newManaged(t, "--set", "dashboard.enabled=true")
	apply(t, dashboardRights)
	address := bed.HostAddress() + ":19467"
	m.manager("--dashboard", address)
	config, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	custom, err := kube.NewCustomClient(config)
	if err != nil {
		t.Fatal(err)
	}
	slack := &model.Slack{CPU: model.Account{
		Capacity: 8000, Ceiling: 5200, Use: model.Use{Measured: true, Online: 1234, Batch: 567}, Allow: 3000,
		Offer: model.TierAmounts{Batch: 2000}, Reason: model.Reason{Code: model.SoldRealtime},
	}, Memory: model.Account{Capacity: 1 << 34}}
	for i := range 3 {
		name := fmt.Sprintf("dash-%d", i)
		m.machine(name, "")
		uid := string(object[corev1.Node](t, "node", name).UID)
		report := model.Report{Policy: "default", Mode: model.ModeEnforce, Selling: model.SellOpen, Slack: slack,
			Pressure: &model.NodePressure{CPU: 321}}
		if err := actkube.NewReports(custom, name).Write(t.Context(), uid, report); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: seen, namespace: default}, spec: {nodeName: dash-0, containers: [{name: c, image: none}]}}`)

	var bundle string
	eventually(t, "the webhook has an authority", func() (bool, string) {
		bundle = kubectl(t, "get", "mutatingwebhookconfiguration", "waterline", "-o",
			"jsonpath={.webhooks[0].clientConfig.caBundle}")
		return bundle != "", bundle
	})
	authority, err := base64.StdEncoding.DecodeString(bundle)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(authority) {
		t.Fatalf("%v: %s", err, bundle)
	}
	client := &http.Client{
		Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	t.Cleanup(client.CloseIdleConnections)
	get := func(token, path string) (int, string) {
		r, err := http.NewRequest(http.MethodGet, "https://"+address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return 0, err.Error()
		}
		return response.StatusCode, string(body)
	}
	create := func(args ...string) string {
		return strings.TrimSpace(kubectl(t, append([]string{"create", "token", "-n", "default"}, args...)...))
	}
	viewer, nobody := create("viewer"), create("nobody")
	eventually(t, "the viewer sees three nodes", func() (bool, string) {
		status, body := get(viewer, "/api/v1/nodes")
		return status == 200 && strings.Count(body, `"dash-`) == 3 && strings.Contains(body, "1234,567,2000") &&
			strings.Contains(body, "[321,0,0]"), body
	})
	for _, c := range []struct {
		who, token, path string
		status           int
		has, not         string
	}{
		{"viewer", viewer, "/api/v1/cluster", 200, "24000", ""},
		{"viewer", viewer, "/api/v1/nodes/dash-0", 200, `"seen"`, "agent-dash-0"},
		{"viewer", viewer, "/api/v1/policies", 200, `"default"`, ""},
		{"viewer", viewer, "/api/v1/me", 200, "system:serviceaccount:default:viewer", ""},
		{"nobody", nobody, "/api/v1/nodes", 403, "may not list nodereports", "dash"},
		{"nobody", nobody, "/api/v1/cluster", 403, "", "24000"},
		{"nobody", nobody, "/api/v1/nodes/dash-0", 403, "may not get nodereports", "seen"},
		{"nobody", nobody, "/api/v1/policies", 403, "", `"default"`},
		{"another audience", create("viewer", "--audience", "elsewhere"), "/api/v1/nodes", 401, "does not accept", "dash"},
		{"a forged token", viewer[:len(viewer)-6] + "AAAAAA", "/api/v1/nodes", 401, "does not accept", "dash"},
		{"no token", "", "/api/v1/nodes", 401, "needs a token", "dash"},
	} {
		status, body := get(c.token, c.path)
		if status != c.status || !strings.Contains(body, c.has) || c.not != "" && strings.Contains(body, c.not) {
			t.Errorf("%s at %s: %d, want %d with %q and without %q: %.400s", c.who, c.path, status, c.status, c.has, c.not, body)
		}
	}
	if status, body := get("", "/"); status != 200 || !strings.Contains(body, "<title>Waterline</title>") {
		t.Errorf("the page: %d %.200s", status, body)
	}
}
