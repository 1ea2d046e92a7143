package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestDistributions finds the pods on the cgroup trees of distributions, as their documentation and their kubelets'
// settings describe them: the flag --cgroup-root, and the driver. Waterline was not run on these. Each tree has one
// Burstable pod with one container.
func TestDistributions(t *testing.T) {
	const uid = "6016fc45-0a1b-4c2d-8e3f-123456789abc"
	id := strings.Repeat("1c4c0416f2a89d2f", 4)
	scope := "cri-containerd-" + id + ".scope"
	for name, c := range map[string]struct {
		root   string // of the pods
		driver cgroup.Driver
		scope  string   // of the container, below its pod
		beside []string // other directories of the tree
	}{
		"kubeadm, containerd": {"kubepods.slice", cgroup.Systemd, scope,
			[]string{"system.slice/kubelet.service", "system.slice/containerd.service", "user.slice"}},
		"kubeadm, containerd, cgroupfs": {"kubepods", cgroup.Cgroupfs, id, []string{"system.slice/kubelet.service"}},
		"kind, from inside a node": {"kubelet.slice/kubelet-kubepods.slice", cgroup.Systemd, scope,
			[]string{"kubelet.slice/kubelet.service", "system.slice/containerd.service", "init.scope"}},
		"kind, cgroup v1": {"kubelet/kubepods", cgroup.Cgroupfs, id, []string{"kubelet", "system.slice"}},
		"kind, from the host": {"system.slice/docker-" + id + ".scope/kubelet.slice/kubelet-kubepods.slice", cgroup.Systemd,
			scope, []string{"system.slice/docker.service"}},
		"k3s":                           {"kubepods.slice", cgroup.Systemd, scope, []string{"system.slice/k3s.service"}},
		"k3s, cgroupfs, in a container": {"kubepods", cgroup.Cgroupfs, id, []string{"k3s"}},
		"CRI-O, runc": {"kubepods.slice", cgroup.Systemd, "crio-" + id + ".scope",
			[]string{"system.slice/crio.service", "system.slice/crio-conmon-" + id + ".scope"}},
		"CRI-O, crun": {"kubepods.slice", cgroup.Systemd, "crio-" + id + ".scope/container",
			[]string{"system.slice/crio.service"}},
		"CRI-O, cgroupfs": {"kubepods", cgroup.Cgroupfs, "crio-" + id, []string{"crio"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := Mount{Version: cgroup.V2, Path: t.TempDir()}
			want := cgroup.Layout{Driver: c.driver, Root: c.root}
			pod := want.Pod(model.Burstable, uid)
			for _, dir := range append(c.beside, pod+"/"+c.scope) {
				if err := os.MkdirAll(filepath.Join(m.Path, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			found, err := FindKubepods(m, "")
			if err != nil || found != want {
				t.Fatalf("found %+v: %v; want %+v", found, err, want)
			}
			container, _, _ := strings.Cut(c.scope, "/")
			if got, ok := cgroup.ContainerID(container); !ok || got != id {
				t.Errorf("the container at %s is read as %q", container, got)
			}
		})
	}
}
