package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// TestIdentityPanics checks releases as their kernels print them.
func TestIdentityPanics(t *testing.T) {
	for release, want := range map[string]bool{
		"4.19.91-24.al7.x86_64":    false,
		"4.19.91-25.al7.x86_64":    false,
		"4.19.91-25.1.al7.x86_64":  true,
		"4.19.91-25.3.al7.x86_64":  true,
		"4.19.91-25.5.al7.aarch64": true,
		"4.19.91-25.6.al7.x86_64":  false,
		"4.19.91-25.10.al7.x86_64": false,
		"4.19.91-26.1.al7.x86_64":  false, // without the file
		"4.19.91-27.7.al7.x86_64":  false,
		"5.10.112-11.1.al8.x86_64": false, // without the file
		"5.10.134-12.al8.x86_64":   false, // without the file; 12.2 can get it from a package
		"5.10.134-16.1.al8.x86_64": false,
		"4.19.0-25-amd64":          false,
		"6.1.0-25-cloud-amd64":     false,
		"":                         false,
	} {
		if got := identityPanics(release); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}

// TestIdentity checks when identities are used: never on a kernel that panics with them, not even before it was looked
// at, and otherwise for as long as the kernel's switch is on, or it has none.
func TestIdentity(t *testing.T) {
	const file, newest = "cpu.bvt_warp_ns", "5.10.134-16.1.al8.x86_64"
	for _, c := range []struct {
		name, release, file string
		states              []string // of the switch, one after the other; "": there is none
		before              string
		lacks               []string // at each
	}{
		{name: "no switch", release: "4.19.91-24.al7.x86_64", file: file, states: []string{"", ""}, lacks: []string{"", ""}},
		{name: "switched", release: newest, file: file, states: []string{"0\n", "0\n", "1\n", "1\n", "0\n", "2\n"},
			lacks: []string{identityEnabled, identityEnabled, "", "", identityEnabled, identityEnabled}},
		{name: "a panic", release: "4.19.91-25.3.al7.x86_64", file: file, states: []string{"", "1\n"},
			before: identitySafe, lacks: []string{identitySafe, identitySafe}},
		{name: "no release", file: file, states: []string{"1\n"}, before: identitySafe, lacks: []string{identitySafe}},
		{
			name: "no file", release: newest, file: "cpu.idle", states: []string{"1\n", "0\n"},
			lacks: []string{identityKernel, identityKernel},
		},
	} {
		root, proc := t.TempDir(), t.TempDir()
		layout, _ := cgroup.ParseLayout("kubepods")
		write := func(path, content string) {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		tree := NewTree(Mount{Version: cgroup.V1, Path: root}, layout, nil)
		tree.proc = proc
		if c.release != "" {
			write(filepath.Join(proc, releaseFile), c.release+"\n")
		}
		tree.probe()
		was := tree.Model().NoIdentity
		if was != c.before {
			t.Errorf("%s: before there are groups %q", c.name, was)
		}
		write(filepath.Join(root, layout.Root, "cpu.cfs_quota_us"), "-1\n")
		write(filepath.Join(root, layout.Root, c.file), "0\n")
		for i, state := range c.states {
			if state != "" {
				write(filepath.Join(proc, identitySwitch), state)
			}
			news, now := tree.probe(), tree.Model().NoIdentity
			if now != c.lacks[i] || i > 0 && news != (now != was) {
				t.Errorf("%s, look %d: news %v, %q", c.name, i, news, now)
			}
			was = now
		}
	}
}
