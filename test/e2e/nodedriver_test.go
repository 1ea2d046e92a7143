package e2e_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// testDriver starts a pod by a runtime handler with another cgroup driver than the kubelet's. Its containers run
// outside of the pod's group. The node's report, the account and the doctor name it, and nothing can be sold, until the
// pod is gone.
func (n *node) testDriver() {
	n.policy(selling("Enforce", "Static"))
	doctor := func() string {
		out, _ := program("waterline", "doctor", "cluster", "--kubeconfig", bed.Kubeconfig())
		return out
	}
	outside := func() (found bool, report string) {
		s := object[v1alpha1.NodeReport](n.t, "nodereport", n.name).Status
		return slices.Contains(s.Unsupported, string(model.PodsOutside)), fmt.Sprintf("%+v", s)
	}
	apply(n.t, `{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: runc-cgroupfs}, handler: runc-cgroupfs}`)
	apply(n.t, strings.Replace(n.manifest("stray", "", "requests: {cpu: 100m}", false), "spec:\n",
		"spec:\n  runtimeClassName: runc-cgroupfs\n", 1))
	kubectl(n.t, "wait", "--for=condition=Ready", "pod/stray", ready)
	eventually(n.t, "the node reports that containers run outside of their pods", outside)
	eventually(n.t, "the account says that nothing is known", func() (bool, string) {
		s := object[v1alpha1.NodeReport](n.t, "nodereport", n.name).Status
		return s.CPU != nil && strings.HasPrefix(s.CPU.Reason, string(model.SlackUnknown)) &&
			s.CPU.Offer.Batch.Sign() == 0 && s.CPU.Allowance.Sign() == 0, fmt.Sprintf("%+v", s.CPU)
	})
	if out := doctor(); !strings.Contains(out, "BAD   node "+n.name+": containers of pods run in system.slice, "+
		"outside of "+n.layout.Root) {
		n.t.Errorf("the doctor says\n%s", out)
	}
	kubectl(n.t, "delete", "pod", "stray", "--grace-period=1")
	eventually(n.t, "the node reports that it is right again", func() (bool, string) {
		found, report := outside()
		return !found, report
	})
}
