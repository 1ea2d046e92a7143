package e2e_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/bed/pages"
)

// page runs the commands of the documentation, in one shell that begins in a copy of this repository's chart.
type page struct {
	t        *testing.T
	as       string // whose blocks are run; "": this test's
	released bool   // the chart has the version of the repository, not that of the bed's images
	script   strings.Builder
	env      []string
}

// add appends the blocks of a file that are marked as run by this test. After each block come commands of the test's
// own.
func (p *page) add(file string, own ...string) {
	p.t.Helper()
	blocks, err := pages.RunBy("../../"+file, cmp.Or(p.as, p.t.Name()))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, b := range blocks {
		p.script.WriteString(b.Commands())
		p.check("")
		for _, command := range own {
			p.check(command)
		}
	}
}

// check appends a command of the test's own, and a line that divides the output.
func (p *page) check(command string) { p.script.WriteString(command + "\necho '" + divider + "'\n") }

const divider = "---- next block"

// run runs all commands as they are written, and returns the output of each block. It stops at the first that fails.
func (p *page) run() []string {
	p.t.Helper()
	dir := p.t.TempDir()
	chart := filepath.Join(dir, "deploy/chart")
	if err := os.CopyFS(chart, os.DirFS("../../deploy/chart")); err != nil {
		p.t.Fatal(err)
	}
	if !p.released {
		develop(p.t, filepath.Join(chart, "Chart.yaml"))
	}
	c := exec.CommandContext(p.t.Context(), "bash", "-euo", "pipefail", "-c", p.script.String())
	c.Dir = dir
	c.Env = append(os.Environ(), "KUBECONFIG="+bed.Kubeconfig(),
		"PATH="+filepath.Join(built, "bed/bin")+":"+filepath.Join(built, "bin")+":"+os.Getenv("PATH"))
	c.Env = append(c.Env, p.env...)
	c.WaitDelay = 10 * time.Second
	out, err := c.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%v after:\n%s", err, out)
	}
	return strings.Split(string(out), divider+"\n")
}

// removeRelease removes the chart's release and its namespace, if they are there.
func removeRelease(t *testing.T) {
	t.Helper()
	helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--ignore-not-found", "--wait")
	kubectl(t, "delete", "namespace", "waterline-system", "--ignore-not-found")
}

// develop makes a chart one of the version dev, which is the tag of the bed's images.
func develop(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(string(content), "\nappVersion:")
	if err := os.WriteFile(file, []byte(name+"\nappVersion: dev\nkubeVersion: \">=1.32.0-0\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}
