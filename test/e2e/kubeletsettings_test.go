package e2e_test

import (
	"strings"
	"testing"
)

// TestNodeKubeletSettings checks that agents read the settings of a real kubelet with the right nodes/configz, and on
// Kubernetes 1.32, where the kubelet asks for nodes/proxy, that waterline doctor cluster names the value that helps,
// and that it helps.
func TestNodeKubeletSettings(t *testing.T) {
	old := oldKubelet(t)
	const refused, fix = "operation kubelet", "agent.kubeletProxy=true"
	doctor := func() string {
		// Its exit code also depends on other findings.
		out, _ := program("waterline", "doctor", "cluster", "--kubeconfig", bed.Kubeconfig())
		return out
	}
	install(t, "--set", "agent.kubeletProxy=false")
	eventually(t, "what doctor says of the kubelet's settings", func() (bool, string) {
		out := doctor()
		asked := strings.Contains(out, "no other program fights for a file")
		return asked && strings.Contains(out, refused) == old && strings.Contains(out, fix) == old, out
	})
	if !old {
		return
	}
	n := install(t)
	n.agent()
	eventually(t, "the kubelet's settings are read", func() (bool, string) {
		out := doctor()
		return strings.Contains(out, "no other program fights for a file") && !strings.Contains(out, refused), out
	})
}
