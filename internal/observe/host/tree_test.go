package host

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// TestProbe checks that what the kernel lacks is found when there are groups with a quota, once and for good: a
// condition that rests on it must not come and go.
func TestProbe(t *testing.T) {
	all := []string{"cpu.max.burst", "cpu.idle", "cpu.bvt_warp_ns", "cpu.pressure", "memory.min", "memory.reclaim"}
	proc := t.TempDir() // with no switch for identities
	if err := os.MkdirAll(filepath.Join(proc, filepath.Dir(releaseFile)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, releaseFile), []byte("6.1.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(proc, "self"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "self/mountinfo"), []byte(recursive), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		version    cgroup.Version
		quota      string // the name of its file
		files      []string
		unreadable string // a directory in place of a file
		lacks      string
	}{
		{name: "all of it", version: cgroup.V2, quota: "cpu.max", files: all},
		{name: "an old kernel", version: cgroup.V2, quota: "cpu.max", files: all[3:], lacks: "burst idle identity "},
		{
			name: "no idle groups", version: cgroup.V2, quota: "cpu.max",
			files: []string{all[0], all[2], all[3], all[4], all[5]}, lacks: "idle ",
		},
		{
			name: "no identities", version: cgroup.V2, quota: "cpu.max", files: []string{all[0], all[1], all[3], all[4], all[5]},
			lacks: "identity ",
		},
		{name: "no memory controller", version: cgroup.V2, quota: "cpu.max", files: all[:4], lacks: "protection reclaim "},
		{name: "before 5.19", version: cgroup.V2, quota: "cpu.max", files: all[:5], lacks: "reclaim "},
		{
			name: "no pressure", version: cgroup.V2, quota: "cpu.max", files: []string{all[0], all[1], all[2], all[4], all[5]},
			lacks: "pressure ",
		},
		{
			name: "pressure that cannot be read", version: cgroup.V2, quota: "cpu.max",
			files: []string{all[0], all[1], all[2], all[4], all[5]}, unreadable: all[3], lacks: "pressure ",
		},
		{
			name: "v1", version: cgroup.V1, quota: "cpu.cfs_quota_us", files: append([]string{"cpu.cfs_burst_us"}, all[1:4]...),
			lacks: "pressure reclaim ",
		},
	} {
		root := t.TempDir()
		layout, _ := cgroup.ParseLayout("kubepods")
		dir := filepath.Join(root, layout.Root)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write := func(name string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("0\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if c.unreadable != "" {
			if err := os.Mkdir(filepath.Join(dir, c.unreadable), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		tree := NewTree(Mount{Version: c.version, Path: root}, layout, nil)
		tree.proc = proc
		lacks := func() (all string) {
			m := tree.Model()
			for _, one := range []struct {
				name    string
				missing bool
			}{{"burst ", m.NoBurst}, {"idle ", m.NoIdle}, {"identity ", m.NoIdentity != ""}, {"pressure ", m.NoPressure},
				{"protection ", m.NoProtection != ""}, {"reclaim ", m.NoReclaim}} {
				if one.missing {
					all += one.name
				}
			}
			return all
		}
		if tree.probe() || lacks() != "" {
			t.Errorf("%s: something is missing before there are groups with a quota", c.name)
		}
		write(c.quota)
		for _, name := range c.files {
			write(name)
		}
		if news := tree.probe(); news != (c.lacks != "") || lacks() != c.lacks {
			t.Errorf("%s: news %v, missing: %q", c.name, news, lacks())
		}
		for _, name := range c.files {
			_ = os.Remove(filepath.Join(dir, name))
		}
		if tree.probe() || lacks() != c.lacks {
			t.Errorf("%s: it was looked at again", c.name)
		}
	}
}

// TestReadLists checks that the lists of CPUs of containers are read for the pods that need it, and no longer known
// when the containers changed.
func TestReadLists(t *testing.T) {
	root := t.TempDir()
	layout, _ := cgroup.ParseLayout("kubepods")
	container := func(pod, id, list string) {
		t.Helper()
		dir := filepath.Join(root, "kubepods", "pod"+pod, id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cpuset.cpus"), []byte(list+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	container("a", "0123456789aa", "2-3")
	container("a", "0123456789ab", "")
	container("b", "0123456789bb", "4")
	tree := NewTree(Mount{Version: cgroup.V2, Path: root, Cpusets: root}, layout, nil)
	defer tree.Close()
	look := func(what string, wantChanged bool, want ...model.CPUSet) {
		t.Helper()
		if _, err := tree.Scan(func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		before := tree.Model()
		if a := before.Pods["a"]; a.CPUs != nil && len(a.CPUs) != len(a.Containers) {
			t.Errorf("%s: before they are read, %d lists of %d containers", what, len(a.CPUs), len(a.Containers))
		}
		changed, err := tree.ReadLists(func(uid string) bool { return uid == "a" })
		if err != nil || changed != wantChanged {
			t.Errorf("%s: changed %v, %v", what, changed, err)
		}
		m := tree.Model()
		if got := m.Pods["a"].CPUs; !slices.Equal(got, want) || m.Pods["b"].CPUs != nil {
			t.Errorf("%s: %v, and of a pod that does not need it %v", what, got, m.Pods["b"].CPUs)
		}
		if changed && slices.Equal(before.Pods["a"].CPUs, want) {
			t.Errorf("%s: it changed a model that was given away", what)
		}
	}
	look("first", true, model.CPUs(2, 3), model.CPUSet{})
	look("again", false, model.CPUs(2, 3), model.CPUSet{})
	container("a", "0123456789ab", "5")
	look("another list", true, model.CPUs(2, 3), model.CPUs(5))
	if err := os.RemoveAll(filepath.Join(root, "kubepods/poda/0123456789aa")); err != nil {
		t.Fatal(err)
	}
	look("one ended", true, model.CPUs(5))
}
