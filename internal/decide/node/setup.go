package node

import (
	"path"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// setup returns what is wrong with how the node was set up, whatever its policy says. Each has the same text for as
// long as it stands: it is also an event on the Node.
func setup(n *model.Node) []model.Reason {
	var all []model.Reason
	if n.Kubelet.NoPodCgroups {
		all = append(all, model.Reason{
			Code: model.NoPodCgroups, Fix: "set cgroupsPerQOS: true in the kubelet's configuration",
		})
	}
	if why := n.Kubelet.Unread; why != "" {
		all = append(all, model.Reason{Code: model.KubeletUnknown, Fix: why})
	}
	if out := n.Tree.Outside; len(out) > 0 {
		all = append(all, model.Reason{
			Code: model.PodsOutside, Key: n.Tree.Guaranteed, Text: path.Dir(out[0].Dir), Fix: driverFix(&n.Tree),
		})
	}
	return all
}

// driverFix says how kubelet and container runtime come to the same cgroup driver. The kubelet's is known by the name
// of its directory of pods.
func driverFix(t *model.Tree) string {
	if strings.HasSuffix(t.Guaranteed, ".slice") {
		return "the kubelet's cgroup driver is systemd, and the container runtime's is cgroupfs: set SystemdCgroup = true " +
			"in the options of runc in containerd's configuration, or cgroupDriver: cgroupfs in the kubelet's; " +
			"then restart both, and delete the pods of the node"
	}
	return "the kubelet's cgroup driver is cgroupfs, and the container runtime's is another: set SystemdCgroup = false " +
		"in the options of runc in containerd's configuration, or cgroupDriver: systemd in the kubelet's; " +
		"then restart both, and delete the pods of the node"
}
