package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
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
