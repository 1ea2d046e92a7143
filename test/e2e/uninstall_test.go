package e2e_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestAPIUninstall checks that an upgrade keeps the manager's values in objects of the chart, and that an uninstalled
// release leaves only the objects that Helm never removes.
func TestAPIUninstall(t *testing.T) {
	m := newManaged(t)
	p := m.manager()
	m.answering()
	m.shows("waterline_manager_leading 1")
	lease := func() string {
		if who := object[coordinationv1.Lease](t, "lease", "waterline-manager", "-n",
			"waterline-system").Spec.HolderIdentity; who != nil {
			return *who
		}
		return ""
	}
	secret := func() map[string][]byte {
		return object[corev1.Secret](t, "secret", "waterline-webhook", "-n", "waterline-system").Data
	}
	leads, certificates := lease(), secret()
	helm(t, "upgrade", "waterline", "../../deploy/chart", "--namespace", "waterline-system", "--reuse-values", "--set",
		"manager.replicas=3")
	if now := lease(); now != leads || leads == "" {
		t.Errorf("after an upgrade, %q leads, before %q", now, leads)
	}
	if now := secret(); !bytes.Equal(now["ca.key"], certificates["ca.key"]) || len(now["tls.crt"]) == 0 {
		t.Errorf("after an upgrade, the certificates differ: %d of %d", len(now), len(certificates))
	}
	m.answering() // the certificate that API servers trust was kept too

	p.stop(syscall.SIGTERM)
	helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--wait")
	eventually(t, "no other object is left", func() (bool, string) {
		// A node of another test may have been there for a moment, and got pods. It has no kubelet that ends them.
		for _, pod := range object[corev1.PodList](t, "pods", "-n", "waterline-system").Items {
			if pod.DeletionTimestamp != nil && pod.Spec.NodeName != "" {
				t.Logf("%s ends on %s, which has no kubelet", pod.Name, pod.Spec.NodeName)
				kubectl(t, "delete", "pod", pod.Name, "-n", "waterline-system", "--force", "--grace-period=0", "--ignore-not-found")
			}
		}
		is := m.everything()
		return slices.Equal(is, keptByHelm()), fmt.Sprint(is)
	})
}

// keptByHelm are the objects that an uninstallation leaves.
func keptByHelm() []string {
	return []string{
		"apiservice.apiregistration.k8s.io/v1alpha1.waterline.io",
		"customresourcedefinition.apiextensions.k8s.io/colocationpolicies.waterline.io",
		"customresourcedefinition.apiextensions.k8s.io/nodereports.waterline.io",
		"customresourcedefinition.apiextensions.k8s.io/workerpools.waterline.io",
		"namespace/waterline-system",
	}
}

// everything lists all objects with our names. Events belong to Kubernetes, and expire.
func (m *managed) everything() []string {
	m.t.Helper()
	var all []string
	for _, namespaced := range []string{"true", "false"} {
		kinds := strings.Fields(kubectl(m.t, "api-resources", "--verbs=list", "--namespaced="+namespaced, "-o", "name"))
		kinds = slices.DeleteFunc(kinds, func(kind string) bool { return strings.HasPrefix(kind, "events") })
		for name := range strings.FieldsSeq(kubectl(m.t, "get", strings.Join(kinds, ","), "--all-namespaces", "-o", "name",
			"--ignore-not-found")) {
			if strings.Contains(name, "waterline") {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestAPIUninstallIgnores runs what the chart's Job runs before an uninstallation, with the Job's arguments and rights.
// A node whose agent is dead keeps it waiting, unless the chart's values name the node.
func TestAPIUninstallIgnores(t *testing.T) {
	m := newManaged(t)
	report := func(node, mode, policy string) {
		t.Helper()
		m.node(node, "", "")
		m.patch(reports+node+"/status", fmt.Sprintf(`{"status":{"mode":%q,"policy":%q,"policyGeneration":1}}`, mode, policy))
		m.patch(nodes+node+"/status", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	}
	report("alive", "Disabled", "")
	report("dead", "Enforce", "default")
	m.ready("dead", false)

	farewell := func(values string) (string, error) {
		t.Helper()
		helm(t, "upgrade", "waterline", "../../deploy/chart", "--namespace", "waterline-system", "--reuse-values", "--set",
			values)
		hooks := helm(t, "get", "hooks", "waterline", "--namespace", "waterline-system")
		var args []string
		for document := range strings.SplitSeq(hooks, "\n---\n") {
			if !strings.Contains(document, "kind: Job") {
				apply(t, document)
				continue
			}
			args = podSpec(t, document).Containers[0].Args
		}
		config := kubeconfig(t, kubectl(t, "create", "token", "waterline-uninstall", "-n", "waterline-system"))
		return program("waterline-manager", append(args, "--kubeconfig", config, "--namespace", "waterline-system")...)
	}
	out, err := farewell("uninstall.timeout=10s")
	if err == nil || !strings.Contains(out, "node dead: its agent is not ready") || strings.Contains(out, "node alive") {
		t.Errorf("with a dead node: %v: %s", err, out)
	}
	out, err = farewell("policy.mode=Disabled,uninstall.timeout=2m,uninstall.ignoreNodes={dead,elsewhere}")
	if err != nil || !strings.Contains(out, "ignored: node dead: its agent is not ready") ||
		!strings.Contains(out, "ignored: node elsewhere: there is no such node") || strings.Contains(out, "node alive") {
		t.Errorf("with a dead node that is ignored: %v: %s", err, out)
	}
}
