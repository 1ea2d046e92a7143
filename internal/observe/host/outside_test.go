package host

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// IDs of containers, in directories as runtimes make them.
const (
	idInside = "aaaaaaaaaaaa0000"
	idRunc   = "bbbbbbbbbbbb0000"
	idDocker = "cccccccccccc0000"
	idEnded  = "dddddddddddd0000"
	idOther  = "eeeeeeeeeeee0000"
	idSwitch = "ffffffffffff0000"
	idSystem = "abababababab0000"
)

// mismatched makes the directories of a node whose kubelet has the systemd driver and whose runtimes do not, with
// programs beside it that are none of its business.
func mismatched(t *testing.T) (Mount, cgroup.Layout) {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-" + idInside + ".scope",
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2.slice",
		"kubepods.slice/kubepods-besteffort.slice",
		"kubepods.slice/kubepods-pod3.slice",
		"kubepods.slice/kubepods-system.slice/kubepods-system-pod8.slice/cri-containerd-" + idSystem + ".scope",
		"system.slice/containerd.service/kubepods-burstable-pod2.slice:cri-containerd:" + idRunc,
		"kubepods-pod3.slice/" + idDocker,
		"kubepods/burstable/pod4/" + idSwitch, // of the driver that the kubelet had before
		// Not of a pod: a container of Docker's own, the monitor of a container, and a kubelet inside a container.
		"system.slice/docker-" + idOther + ".scope",
		"system.slice/crio-conmon-" + idInside + ".scope",
		"docker/kind/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod9.slice/cri-containerd-" + idOther + ".scope",
	} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	layout, _ := cgroup.ParseLayout("kubepods.slice")
	return Mount{Version: cgroup.V2, Path: root}, layout
}

// TestStray checks that containers outside of the directory of pods are found by their names.
func TestStray(t *testing.T) {
	mount, layout := mismatched(t)
	found, err := Stray(mount, layout, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		idRunc:   "system.slice/containerd.service/kubepods-burstable-pod2.slice:cri-containerd:" + idRunc,
		idDocker: "kubepods-pod3.slice/" + idDocker,
	}
	if !maps.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

// TestFindOutside checks that pods with containers outside of their cgroups are found, and no others: not a pod whose
// containers are inside, have ended, or are in the cgroup of another pod that it claims to be.
func TestFindOutside(t *testing.T) {
	mount, layout := mismatched(t)
	tree := NewTree(mount, layout, nil)
	defer tree.Close()
	pod := func(uid string, ids ...string) *model.Pod {
		p := &model.Pod{UID: uid}
		for _, id := range ids {
			p.Containers = append(p.Containers, model.Container{Name: id, ID: id})
		}
		return p
	}
	find := func(pods ...*model.Pod) (all []model.Outside, changed bool) {
		t.Helper()
		if _, err := tree.Scan(func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
		changed, err := tree.FindOutside(pods)
		if err != nil {
			t.Fatal(err)
		}
		return tree.Model().Outside, changed
	}
	leaving := pod("3", idDocker)
	leaving.Leaving = true
	if all, changed := find(pod("1", idInside), pod("5", idEnded), pod("6", idInside), pod("7", "../../etc"), leaving,
		pod("8", idSystem)); changed || len(all) > 0 {
		t.Errorf("containers inside, ended, leaving and forged: %v, changed: %v", all, changed)
	}
	const shim = "system.slice/containerd.service/kubepods-burstable-pod2.slice:cri-containerd:"
	runc := model.Outside{UID: "2", Dir: shim + idRunc}
	docker := model.Outside{UID: "3", Dir: "kubepods-pod3.slice/" + idDocker}
	old := model.Outside{UID: "4", Dir: "kubepods/burstable/pod4/" + idSwitch}
	pods := []*model.Pod{pod("1", idInside), pod("2", idRunc), pod("3", idDocker, idEnded), pod("4", idSwitch)}
	for i, wantChanged := range []bool{true, false} {
		if all, changed := find(pods...); !slices.Equal(all, []model.Outside{runc, docker, old}) || changed != wantChanged {
			t.Errorf("look %d: %v, changed: %v", i+1, all, changed)
		}
	}
	if all, changed := find(pods[0], pods[2]); !slices.Equal(all, []model.Outside{docker}) || !changed {
		t.Errorf("after two of them ended: %v, changed: %v", all, changed)
	}
	if all, changed := find(pods[0]); len(all) > 0 || !changed {
		t.Errorf("after all of them ended: %v, changed: %v", all, changed)
	}
}
