package vm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/bed/vm"
	"github.com/waterline-io/waterline/test/bed/vm/guest"
	"github.com/waterline-io/waterline/test/poll"
)

// TestMain lets this test binary be a guest's process 1, and in TestKilled a process that is killed.
func TestMain(m *testing.M) {
	if guest.Here() {
		guest.Main()
	}
	os.Exit(m.Run())
}

// config is a guest for a test; its output goes to the buffer.
func config(t *testing.T) (vm.Config, *bytes.Buffer) {
	t.Helper()
	for _, tool := range []string{"qemu-system-x86_64", "busybox"} {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("CI") == "" {
			t.Skipf("level 3 needs qemu-system-x86 and busybox-static: %v", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join("..", "..", "..", "out", "vm")
	kernel, err := vm.FetchKernel(t.Context(), filepath.Join(cache, "kernel"))
	if err != nil {
		t.Fatal(err)
	}
	out := new(bytes.Buffer)
	return vm.Config{
		Kernel: kernel, Init: self, Memory: 384, CPUs: 2, Accel: "tcg", Timeout: 2 * time.Minute,
		Scratch: cache, Stdout: out, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, out
}

func shell(name, text string) vm.Command {
	return vm.Command{Name: name, Argv: []string{"/bin/sh", "-c", text}}
}

func TestCommands(t *testing.T) {
	c, out := config(t)
	c.OutDir = filepath.Join(t.TempDir(), "results")
	c.Env = []string{"GREETING=hello"}
	c.Files = []vm.File{{Host: "wire", Guest: "/t/wire"}}
	c.Commands = []vm.Command{
		shell("first", `ls /t/wire/wire.go; printf "$GREETING\r\nno newline"; echo to stderr >&2`),
		shell("second", `mkdir -p /out/d && head -c 100000 /dev/urandom > /out/d/r && md5sum < /out/d/r > /out/sum; exit 3`),
		shell("messy", `mkdir /sys/fs/cgroup/a /sys/fs/cgroup/a/b; sleep 1000 & echo $! > /sys/fs/cgroup/a/b/cgroup.procs`),
		shell("last", `pidof sleep; ls -d /sys/fs/cgroup/a; kill -TERM $$`),
		{Name: "absent", Argv: []string{"/no/such"}},
	}
	report, err := vm.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("booted in %v, done in %v", report.Boot, report.Total)
	var codes []int
	for _, e := range report.Results {
		codes = append(codes, e.Code)
	}
	if want := []int{0, 3, 0, 128 + 15, 127}; !slices.Equal(codes, want) || report.Code() != 3 {
		t.Errorf("exit codes %v, as a whole %d, want %v and 3", codes, report.Code(), want)
	}
	if l := report.Results[2].Leftovers; len(l) != 1 || l[0] != "a" {
		t.Errorf("cgroups left behind: %v, want a", l)
	}
	want := "/t/wire/wire.go\nhello\r\nno newlineto stderr\nls: /sys/fs/cgroup/a: No such file or directory\n"
	if out.String() != want {
		t.Errorf("output %q, want %q", out, want)
	}
	r, err := os.Open(filepath.Join(c.OutDir, "d", "r"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("md5sum")
	cmd.Stdin = r
	sum, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if sent, err := os.ReadFile(filepath.Join(c.OutDir, "sum")); err != nil || !bytes.Equal(sent, sum) {
		t.Errorf("sum of the file that came back %q, in the guest %q (%v)", sum, sent, err)
	}
}

func TestTimeout(t *testing.T) {
	c, out := config(t)
	c.OutDir, c.Timeout = t.TempDir(), time.Minute // with the boot
	c.Commands = []vm.Command{shell("slow", "echo 1 > /out/f; echo began; exec sleep 1000"), shell("next", "echo never")}
	report, err := vm.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if report.Code() != vm.CodeTimeout || len(report.Results) != 2 || !report.Results[1].Skipped ||
		out.String() != "began\n" {
		t.Errorf("report %+v, output %q", report, out)
	}
	if _, err := os.Stat(filepath.Join(c.OutDir, "f")); err != nil {
		t.Errorf("no file came back: %v", err)
	}
}

func TestPanic(t *testing.T) {
	c, _ := config(t)
	c.Commands = []vm.Command{shell("crash", "echo c > /proc/sysrq-trigger; sleep 1000")}
	_, err := vm.Run(t.Context(), c)
	if !errors.Is(err, vm.ErrGuest) ||
		!strings.Contains(err.Error(), "during the command crash: Kernel panic - not syncing: sysrq") {
		t.Errorf("error %v", err)
	}
}

// TestBootHangs boots a guest whose process 1 never says that it is ready.
func TestBootHangs(t *testing.T) {
	c, _ := config(t)
	var log bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	c.BootLimit = 20 * time.Second
	c.KernelArgs = []string{"rdinit=/bin/sleep", "--", "1000"}
	c.Commands = []vm.Command{shell("never", "true")}
	_, err := vm.Run(t.Context(), c)
	const want = "it hangs: no sign of life for 20s, before it was ready for commands"
	if !errors.Is(err, vm.ErrGuest) || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "the end of the guest's console") ||
		!strings.Contains(err.Error(), "RIP=") || !strings.Contains(err.Error(), "Not continuing") {
		t.Errorf("error %v, want one with what the guest's kernel printed, and where its CPUs were", err)
	}
	if n := strings.Count(log.String(), "booting again"); n != 1 {
		t.Errorf("booted again %d times, want once; log:\n%s", n, log.String())
	}
}

func TestCanceled(t *testing.T) {
	c, _ := config(t)
	c.Commands = []vm.Command{shell("wait", "sleep 100000")} // longer than the test's own limit
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := vm.Run(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// TestKilled kills a process with a guest, as nothing can be done about in that process, and expects qemu to go too.
func TestKilled(t *testing.T) {
	if os.Getenv("WATERLINE_TEST_KILLED") != "" {
		c, _ := config(t)
		c.Commands = []vm.Command{shell("ready", "echo ready; sleep 1000")}
		c.Stdout = os.Stdout
		_, err := vm.Run(t.Context(), c)
		t.Fatal(err)
	}
	config(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "WATERLINE_TEST_KILLED=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	// qemu is a child of the thread that started it.
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var children []string
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, strings.Fields(string(b))...)
	}
	if len(children) != 1 || !runs(children[0]) {
		t.Fatalf("children %v, want one that runs", children)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !poll.Until(5*time.Minute, 10*time.Millisecond, func() bool { return !runs(children[0]) }) {
		t.Errorf("qemu, process %s, still runs", children[0])
	}
}

// runs says whether a process is there and more than a zombie.
func runs(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
