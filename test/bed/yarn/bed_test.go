package yarn_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/bed/yarn"
	"github.com/waterline-io/waterline/test/poll"
)

// victimEnv is set in the process that [TestKilled] kills. Its value is that process's directory.
const victimEnv = "WATERLINE_YARN_VICTIM"

const lib = "../../../out/yarn/lib"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimEnv); dir != "" {
		fmt.Fprintln(os.Stderr, victim(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim runs a cluster in a directory until it is killed.
func victim(dir string) error {
	o := yarn.Options{Lib: lib, Dir: filepath.Join(dir, "run"), Logs: filepath.Join(dir, "log")}
	if inside, _, err := yarn.Enter(o.Dir, nil); !inside || err != nil {
		return err
	}
	bed, err := yarn.Up(o)
	if err != nil {
		return err
	}
	if err := bed.AddNode(1, 1024, 2); err != nil {
		return err
	}
	select {}
}

// TestKilled checks that a cluster whose program is killed leaves no process, no mount, no host name and no file but
// its logs.
func TestKilled(t *testing.T) {
	if _, err := os.Stat(lib); err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("Hadoop is not there, or this is not root")
		}
		t.Skip("Hadoop is not there (test/bed/yarn/build.sh gets it), or this is not root")
	}
	dir := t.TempDir()
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	temporary := func() []string {
		var all []string
		for _, name := range []string{"jetty-*", "libleveldbjni*", "hadoop*"} {
			found, _ := filepath.Glob(filepath.Join(os.TempDir(), name))
			all = append(all, found...)
		}
		return all
	}
	before := temporary()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), victimEnv+"="+dir)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill() }()

	logged := func(name, text string) bool {
		log, _ := os.ReadFile(filepath.Join(dir, "log", name))
		return strings.Contains(string(log), text)
	}
	within(t, 5*time.Minute, "the daemons to be up", func() bool {
		return logged("rm1.log", "Node Transitioned from NEW to RUNNING") && len(mentioning(dir)) > 0
	})
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	within(t, 3*time.Minute, "the daemons to be gone", func() bool { return len(mentioning(dir)) == 0 })
	if left, err := os.ReadDir(filepath.Join(dir, "run")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("a mount is left: %v", err)
	}
	if now, err := os.ReadFile("/etc/hosts"); err != nil || string(now) != string(hosts) {
		t.Errorf("/etc/hosts is now %q: %v", now, err)
	}
	if after := temporary(); !slices.Equal(before, after) {
		t.Errorf("temporary files were %q and are %q", before, after)
	}
}

// mentioning returns the command lines of processes that have the directory in them.
func mentioning(dir string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if line, _ := os.ReadFile(file); strings.Contains(string(line), dir) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	if !poll.Until(limit, 50*time.Millisecond, ok) {
		t.Fatalf("waited %v for %s", limit, what)
	}
}
