package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// TestProbe checks that what the kernel lacks is found when there are groups with a quota, once and for good: a condition
// that rests on it must not come and go.
func TestProbe(t *testing.T) {
	for _, c := range []struct {
		name            string
		version         cgroup.Version
		quota           string // the name of its file
		files           []string
		unreadable      string // a directory in place of a file, which cannot be read
		burst, pressure bool
	}{
		{name: "all of it", version: cgroup.V2, quota: "cpu.max", files: []string{"cpu.max.burst", "cpu.pressure"}, burst: true, pressure: true},
		{name: "no bursts", version: cgroup.V2, quota: "cpu.max", files: []string{"cpu.pressure"}, pressure: true},
		{name: "no pressure", version: cgroup.V2, quota: "cpu.max", files: []string{"cpu.max.burst"}, burst: true},
		{name: "pressure that cannot be read", version: cgroup.V2, quota: "cpu.max", files: []string{"cpu.max.burst"}, unreadable: "cpu.pressure", burst: true},
		{name: "v1", version: cgroup.V1, quota: "cpu.cfs_quota_us", files: []string{"cpu.cfs_burst_us", "cpu.pressure"}, burst: true},
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
		if tree.probe() || tree.Model().NoBurst || tree.Model().NoPressure {
			t.Errorf("%s: something is missing before there are groups with a quota", c.name)
		}
		write(c.quota)
		for _, name := range c.files {
			write(name)
		}
		if news := tree.probe(); news != (!c.burst || !c.pressure) || tree.Model().NoBurst == c.burst || tree.Model().NoPressure == c.pressure {
			t.Errorf("%s: news %v, %+v", c.name, news, tree.Model())
		}
		for _, name := range c.files {
			_ = os.Remove(filepath.Join(dir, name))
		}
		if tree.probe() || tree.Model().NoBurst == c.burst || tree.Model().NoPressure == c.pressure {
			t.Errorf("%s: it was looked at again", c.name)
		}
	}
}
