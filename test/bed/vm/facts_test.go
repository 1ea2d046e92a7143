package vm_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/bed/vm"
	"github.com/waterline-io/waterline/test/poll"
)

// TestFacts runs itself in a guest and there pins down how a cgroup v2 kernel behaves where Waterline relies on it.
func TestFacts(t *testing.T) {
	if os.Getenv("WATERLINE_VM") == "" {
		c, out := config(t)
		c.Files = []vm.File{{Host: c.Init, Guest: "/t/vm.test"}}
		c.Commands = []vm.Command{{Name: "facts", Argv: []string{"/t/vm.test", "-test.run=^TestFacts$", "-test.v"}}}
		report, err := vm.Run(t.Context(), c)
		t.Logf("the guest's output:\n%s", out)
		if err != nil || report.Code() != 0 {
			t.Errorf("exit code %d, error %v", report.Code(), err)
		}
		return
	}
	t.Run("Files", factFiles)
	t.Run("Writes", factWrites)
	t.Run("Shares", factShares)
	t.Run("Inotify", factInotify)
}

// group makes a cgroup that ends with the test.
func group(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup", name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// write makes one write to a file that it opens without truncating it. It goes around os.File, whose Write waits for
// ever where the kernel answers EAGAIN, as it does for memory.reclaim: the files of cgroup v2 can be polled, so that
// package os takes it for "not yet".
func write(path, value string) error {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	if _, err := syscall.Write(fd, []byte(value)); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func factFiles(t *testing.T) {
	dir := group(t, "files")
	for _, name := range strings.Fields(`cpu.weight cpu.weight.nice cpu.idle cpu.max cpu.max.burst cpu.stat cpuset.cpus
		cpuset.cpus.effective memory.min memory.low memory.high memory.max memory.reclaim memory.current memory.stat
		memory.events memory.swap.max io.weight io.max io.stat pids.max cpu.pressure memory.pressure io.pressure
		cgroup.pressure cgroup.freeze cgroup.kill cgroup.events`) {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		"/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io", dir + "/cpu.pressure",
	} {
		if s := read(t, name); !strings.HasPrefix(s, "some avg10=") || !strings.Contains(s, "\nfull avg10=") {
			t.Errorf("%s: %q", name, s)
		}
	}
}

// factWrites makes writes one after the other, each in the state that those before it left.
func factWrites(t *testing.T) {
	parent := group(t, "writes")
	if err := write(parent+"/cgroup.subtree_control", "+cpu +cpuset +memory"); err != nil {
		t.Fatal(err)
	}
	child := group(t, "writes/child")
	const inval, rnge, again = syscall.EINVAL, syscall.ERANGE, syscall.EAGAIN
	for _, w := range []struct {
		file, value string
		want        syscall.Errno
		reads       string
	}{
		{"cpu.weight", "250", 0, "250"},
		{"cpu.weight", "0", rnge, "250"},
		{"cpu.weight", "10001", rnge, "250"},
		{"cpu.weight", "x", inval, "250"},
		// an idle cgroup has no weight, and has forgotten it afterwards
		{"cpu.idle", "1", 0, "1"},
		{"cpu.weight", "250", inval, "0"},
		{"cpu.weight", "0", rnge, "0"},
		{"cpu.weight", "10001", rnge, "0"},
		{"cpu.idle", "2", inval, "1"},
		{"cpu.idle", "1", 0, "1"},
		{"cpu.idle", "0", 0, "0"},
		{"cpu.weight", "100", 0, "100"},

		{"cpu.max", "999 100000", inval, "max 100000"},
		{"cpu.max", "1000 100000", 0, "1000 100000"},
		{"cpu.max", "1000 999", inval, "1000 100000"},
		{"cpu.max", "1000 1000001", inval, "1000 100000"},
		{"cpu.max", "50000 100000", 0, "50000 100000"},
		{"cpu.max.burst", "50000", 0, "50000"},
		{"cpu.max.burst", "50001", inval, "50000"},
		{"cpu.max", "40000 100000", inval, "50000 100000"}, // less than the burst
		{"cpu.max", "max", 0, "max 100000"},
		{"cpu.max.burst", "60000", 0, "60000"},
		{"cpu.max", "50000 100000", inval, "max 100000"},
		{"cpu.max.burst", "0", 0, "0"},
		// cgroup v1 refuses a child more than its parent has
		{"../cpu.max", "50000 100000", 0, "50000 100000"},
		{"cpu.max", "200000 100000", 0, "200000 100000"},

		{"cpuset.cpus", "0", 0, "0"},
		{"cpuset.cpus", "7", rnge, "0"},
		{"cpuset.cpus", "x", inval, "0"},
		{"cpuset.cpus", "\n", 0, ""},

		{"memory.high", "1000000", 0, "999424"}, // in pages
		{"memory.high", "max", 0, "max"},
		{"memory.reclaim", "4096", again, ""}, // there is nothing to reclaim
	} {
		path := filepath.Join(child, w.file)
		err := write(path, w.value)
		if got := errnoOf(err); got != w.want {
			t.Errorf("%q to %s: error %v, want %v", w.value, w.file, err, w.want)
		}
		if w.file == "memory.reclaim" { // it cannot be read
			continue
		}
		if got := read(t, path); got != w.reads {
			t.Errorf("%q to %s: it reads %q afterwards, want %q", w.value, w.file, got, w.reads)
		}
	}
}

func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	errors.As(err, &e)
	return e
}

// start starts a shell in a cgroup. It ends before the cgroup, if that was made before.
func start(t *testing.T, dir, text string) *os.Process {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", text}, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{nil, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
	})
	return p
}

func usage(t *testing.T, dir string) float64 {
	t.Helper()
	for line := range strings.Lines(read(t, dir, "cpu.stat")) {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no usage in cpu.stat")
	return 0
}

// factShares lets two busy loops compete for one CPU: the heavier one gets more, an idle group next to nothing, and
// both have pressure. How much more is a figure, which the test logs.
func factShares(t *testing.T) {
	a, b := group(t, "a"), group(t, "b")
	for dir, weight := range map[string]string{a: "100", b: "200"} {
		if err := errors.Join(write(dir+"/cpuset.cpus", "1"), write(dir+"/cpu.weight", weight)); err != nil {
			t.Fatal(err)
		}
		start(t, dir, "while :; do :; done")
	}
	compete := func() (float64, float64) {
		a0, b0 := usage(t, a), usage(t, b)
		time.Sleep(2 * time.Second)
		return usage(t, a) - a0, usage(t, b) - b0
	}
	usedA, usedB := compete()
	t.Logf("weights 100 and 200: used %.0f and %.0f us, ratio %.3f", usedA, usedB, usedB/usedA)
	if usedB <= usedA {
		t.Error("the heavier group got less")
	}
	// The kernel computes pressure every two seconds or later.
	if !poll.Until(time.Minute, 100*time.Millisecond, func() bool {
		return !strings.Contains(read(t, a, "cpu.pressure"), "some avg10=0.00")
	}) {
		t.Errorf("no pressure: %q", read(t, a, "cpu.pressure"))
	}
	if err := write(a+"/cpu.idle", "1"); err != nil {
		t.Fatal(err)
	}
	usedA, usedB = compete()
	t.Logf("the first one idle: used %.0f and %.0f us", usedA, usedB)
	if usedA >= usedB {
		t.Errorf("an idle cgroup used %.0f us beside one that used %.0f", usedA, usedB)
	}
}
