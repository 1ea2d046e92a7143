package experiment

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/internal/observe/host"
)

// TestFind finds cgroups as kubelets name them, with either driver, and no others.
func TestFind(t *testing.T) {
	const uid, container = "0b5e7a1c-1111-4222-8333-444455556666", "4fe1d0aa"
	for driver, dirs := range map[string][2]string{
		"cgroupfs": {"bed/kubepods/burstable/pod" + uid, "/" + container},
		"systemd": {
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0b5e7a1c_1111_4222_8333_444455556666.slice", "/cri-containerd-" + container + ".scope",
		},
	} {
		root := t.TempDir()
		for _, dir := range []string{dirs[0] + dirs[1], "system.slice/other"} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		l := &lab{box: &sandbox{mount: host.Mount{Path: root}}}
		p := &pod{name: "a"}
		if err := l.locate(p, Made{UID: uid, Container: container}); err != nil {
			t.Fatal(err)
		}
		if l.kubelet.dir(p) != dirs[0] || l.kubelet.containerDir(p) != dirs[0]+dirs[1] {
			t.Errorf("%s: pod in %s, container in %s", driver, l.kubelet.dir(p), l.kubelet.containerDir(p))
		}
		if err := l.locate(p, Made{UID: "another", Container: container}); err == nil {
			t.Errorf("%s: a pod was found that is not there", driver)
		}
	}
}
