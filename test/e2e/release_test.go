package e2e_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/test/poll"
)

// TestAPIRelease checks that a cluster has one release. A second one is refused with a sentence, whatever its name and
// namespace are, and so is a manager of one that was installed by other means. The first release stays as it is.
func TestAPIRelease(t *testing.T) {
	m := newManaged(t)
	m.manager()
	m.shows("waterline_manager_leading 1")
	makeNamespace(t, "second", "pod-security.kubernetes.io/enforce: privileged")
	for _, c := range []struct{ name, namespace string }{{"waterline", "second"}, {"other", "waterline-system"}} {
		install := exec.Command(filepath.Join(built, "bin/helm"), "install", c.name, "../../deploy/chart", "--namespace",
			c.namespace, "--kubeconfig", bed.Kubeconfig())
		out, err := install.CombinedOutput()
		for _, says := range []string{
			"Waterline is installed already, as release waterline in namespace waterline-system",
			"helm upgrade waterline CHART --namespace waterline-system",
			"helm uninstall waterline --namespace waterline-system",
		} {
			if err == nil || !strings.Contains(string(out), says) {
				t.Errorf("release %s in %s: %v, without %q: %s", c.name, c.namespace, err, says, out)
			}
		}
	}
	if list := strings.Fields(helm(t, "list", "--all-namespaces", "--short")); len(list) != 1 {
		t.Errorf("the releases are %q", list)
	}

	out, err := program("waterline-manager", "--kubeconfig", m.config, "--namespace", "second", "--identity", "second",
		"--listen=", "--webhook=")
	if err == nil || !strings.Contains(out, "another manager leads in namespace waterline-system") {
		t.Errorf("a manager in another namespace: %v: %s", err, out)
	}
	m.shows("waterline_manager_leading 1")
}

// TestAPIElsewhere installs the chart in a namespace of another name. The CLI looks for agents and manager there.
func TestAPIElsewhere(t *testing.T) {
	makeNamespace(t, "elsewhere", "pod-security.kubernetes.io/enforce: privileged")
	for _, values := range []string{"policy.mode=Observe", "policy=null"} { // without a policy it finds the agents' rights
		helm(t, "upgrade", "--install", "waterline", "../../deploy/chart", "--namespace", "elsewhere", "--set", values,
			"--set-json", `agent.nodeSelector={"nowhere":"true"}`, "--set-json", `manager.nodeSelector={"nowhere":"true"}`)
		t.Cleanup(func() {
			helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "elsewhere", "--wait", "--ignore-not-found")
		})
		var out string
		found := poll.Until(mostWait, 0, func() bool { // once the manager's pods are there, which no node takes
			var err error
			out, err = program("waterline", "status", "--kubeconfig", bed.Kubeconfig())
			return err == nil && strings.Contains(out, "kubectl logs -n elsewhere waterline-manager-")
		})
		if !found {
			t.Errorf("with %s: %s", values, out)
		}
	}
}
