package guard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/test/poll"
)

// TestHidden checks whose container processes belong to that name none, or another: they stay in the one that started
// them, also when their parent has ended.
func TestHidden(t *testing.T) {
	const first, second = "container_1_0001_01_000002", "container_1_0002_01_000002"
	d := proc(t.TempDir())
	s := scanner{proc: string(d), manager: process{pid: 10}, others: true}
	d.add(t, process{10, 0, 100, 1000}, "java "+managerClass, "A=B")
	d.add(t, process{11, 10, 200, 1001}, "java Task", "CONTAINER_ID="+first)
	d.add(t, process{12, 11, 300, 1001}, "sh", "A=B")                  // without an environment of YARN
	d.add(t, process{13, 12, 400, 1001}, "sh", "CONTAINER_ID="+second) // with that of another container
	d.add(t, process{14, 12, 400, 1002}, "sh", "A=B")                  // another user's
	d.add(t, process{15, 11, 150, 1001}, "sh", "A=B")                  // its parent's number was another process's
	d.add(t, process{16, 11, 300, 1001}, "sh", "CONTAINER_ID="+first)  // has ended
	d.add(t, process{17, 11, 300, 1001}, "sh", "A=B")                  // its first thread has ended, and another runs
	d.add(t, process{18, 10, 300, 1001}, "java Task", "CONTAINER_ID="+second)
	d.add(t, process{19, 1, 300, 1001}, "sh", "A=B") // whose it is, nobody knows
	for pid, threads := range map[int]int{16: 1, 17: 2} {
		text := fmt.Sprintf("%d (sh) Z 11%s %d 0 300 1 2", pid, strings.Repeat(" 0", 15), threads)
		if err := os.WriteFile(filepath.Join(string(d), fmt.Sprint(pid), "stat"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	are := func(when string, want ...int) {
		t.Helper()
		if err := s.scan(time.Now(), true); err != nil {
			t.Fatal(err)
		}
		for id, pids := range map[string][]int{first: want, second: {18}} {
			var got []int
			if g := s.of[id]; g != nil {
				for _, p := range g.members {
					got = append(got, p.pid)
				}
			}
			if !slices.Equal(got, pids) {
				t.Errorf("%s, %s has processes %v, want %v", when, id, got, pids)
			}
		}
	}
	are("at first", 11, 12, 13, 17)
	d.remove(t, 11, 12, 17)
	d.add(t, process{13, 1, 400, 1001}, "sh", "CONTAINER_ID="+second)
	d.add(t, process{20, 13, 500, 1001}, "sh", "A=B")
	are("when its parents have ended", 13, 20)
	d.add(t, process{13, 1, 900, 1001}, "sh", "A=B")
	are("when a number was reused", 20)
}

// runs starts a script as a container's process, and a scanner that has found it.
func runs(t *testing.T, id, script string) *scanner {
	t.Helper()
	c := exec.Command("/bin/sh", "-c", script)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "CONTAINER_ID=" + id}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	t.Cleanup(func() { _, _ = c.Process.Kill(), <-done })
	// Another test may have left this process's first thread, whose user /proc shows, as another user.
	s := &scanner{proc: "/proc", manager: process{pid: os.Getpid(), uid: uint32(os.Getuid())}}
	t.Cleanup(func() { // what a test that failed left behind
		if s.scan(time.Now(), false) == nil {
			_, _ = s.signal(id, shed.Kill)
		}
	})
	return s
}

// until scans until a container has a number of processes at least; with 0, none.
func (s *scanner) until(t *testing.T, id string, count int) {
	t.Helper()
	got := 0
	if !poll.Until(time.Minute, 5*time.Millisecond, func() bool {
		if err := s.scan(time.Now(), false); err != nil {
			t.Fatal(err)
		}
		if got = 0; s.of[id] != nil {
			got = len(s.of[id].members)
		}
		return count == 0 && got == 0 || count > 0 && got >= count
	}) {
		t.Fatalf("the container has %d processes, want %d", got, count)
	}
}

// TestWithoutEnvironment ends a container with a process that has a session of its own and no environment.
func TestWithoutEnvironment(t *testing.T) {
	const id = "container_9999999999998_4243_01_000002"
	s := runs(t, id, "setsid env -i sleep 60 & wait")
	s.until(t, id, 2) // the second may lose its environment only now
	n, err := s.signal(id, shed.Terminate)
	if n != 2 || err != nil {
		t.Errorf("%d processes got SIGTERM, %v", n, err)
	}
	s.until(t, id, 0)
}

// TestExec ends a container whose process has begun anew, without an environment, after the last scan.
func TestExec(t *testing.T) {
	const id = "container_9999999999998_4243_01_000004"
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	s := runs(t, id, "read line < "+gate+"; exec env -i sleep 60")
	s.until(t, id, 1)
	if err := os.WriteFile(gate, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pid := s.of[id].members[0].pid
	if !poll.Until(time.Minute, 5*time.Millisecond, func() bool {
		name, _, err := s.container(pid)
		return err == nil && name == ""
	}) {
		t.Fatal("the process keeps its environment")
	}
	if n, err := s.signal(id, shed.Terminate); n != 1 || err != nil {
		t.Errorf("%d processes got SIGTERM, %v", n, err)
	}
	s.until(t, id, 0)
}

// TestForks kills a container that starts a process each moment, some of them after the last scan. None is left.
func TestForks(t *testing.T) {
	const id = "container_9999999999998_4243_01_000003"
	s := runs(t, id, "trap '' TERM; n=0; while [ $n -lt 500 ]; do n=$((n + 1)); setsid sleep 60 & sleep 0.02; done; wait")
	s.until(t, id, 5)
	last := len(s.of[id].members)
	later := &scanner{proc: s.proc, manager: s.manager}
	later.until(t, id, last+5)
	n, err := s.signal(id, shed.Kill)
	if n <= last || err != nil {
		t.Errorf("%d processes got SIGKILL, %v; the last scan had found %d", n, err, last)
	}
	s.until(t, id, 0)
	for range 20 { // one that was left would start others
		if err := s.scan(time.Now(), false); err != nil || s.of[id] != nil {
			t.Fatalf("%+v, %v", s.of[id], err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestStopped has a guard find a container that an earlier guard stopped, and did not live to kill. It goes on. What is
// stopped later is not the guard's.
func TestStopped(t *testing.T) {
	const id = "container_1_0001_01_000002"
	s := runs(t, id, "exec sleep 1000")
	s.until(t, id, 1)
	p := s.of[id].first
	state := func(want string) {
		t.Helper()
		got := ""
		if !poll.Until(time.Minute, time.Millisecond, func() bool {
			status, err := os.ReadFile(s.path(p.pid, "status"))
			got = field(status, "State:")
			return err == nil && got == want
		}) {
			t.Fatalf("state %q, want %q", got, want)
		}
	}
	if sent, err := s.send(p, syscall.SIGSTOP); !sent || err != nil {
		t.Fatal(sent, err)
	}
	state("T")
	next := scanner{proc: "/proc", manager: s.manager}
	for _, by := range []*scanner{s, &next} {
		if err := by.scan(time.Now(), false); err != nil {
			t.Fatal(err)
		}
		if by == s {
			state("T")
		}
	}
	state("S")
}
