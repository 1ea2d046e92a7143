package guard

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
)

// proc is a directory like /proc.
type proc string

// add adds a process, with a command line and an environment whose words are separated by blanks.
func (d proc) add(t *testing.T, p process, command, environment string) {
	t.Helper()
	dir := filepath.Join(string(d), fmt.Sprint(p.pid))
	err := os.MkdirAll(dir, 0o755)
	for name, text := range map[string]string{
		"stat":    fmt.Sprintf("%d (java) S %d%s %d 1 2", p.pid, p.parent, strings.Repeat(" 0", 17), p.start),
		"status":  fmt.Sprintf("Name:\tjava\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nSigCgt:\t0000000000000000\n", p.uid),
		"cmdline": strings.ReplaceAll(command, " ", "\x00") + "\x00",
		"environ": strings.ReplaceAll(environment, " ", "\x00") + "\x00",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// group gives a process a cgroup, on v2.
func (d proc) group(t *testing.T, pid int, memory string) {
	t.Helper()
	dir := filepath.Join(string(d), fmt.Sprint(pid), "root/sys/fs/cgroup")
	err := os.MkdirAll(dir, 0o755)
	for name, text := range map[string]string{
		"cgroup.controllers": "cpu memory", "memory.current": memory, "memory.max": "4194304",
		"memory.stat": "anon 0\ninactive_file 0\nactive_file 0\nslab_reclaimable 0\n",
		"cpu.stat":    "usage_usec 1\nnr_periods 0\nnr_throttled 0\n", "cpu.max": "max 100000",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (d proc) remove(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := os.RemoveAll(filepath.Join(string(d), fmt.Sprint(pid))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNodeManagerRestarts checks what a guard knows after each step of a NodeManager that ends and starts again: its
// process, its cgroup and the processes of its containers. Nothing of the former one counts.
func TestNodeManagerRestarts(t *testing.T) {
	const nm, first, second = "java -Xmx1g " + managerClass, "container_1_0001_01_000002", "container_1_0002_01_000002"
	d := proc(t.TempDir())
	g, err := New(Options{
		Settings: shed.DefaultSettings(), Allowance: filepath.Join(t.TempDir(), "none"), NodeManager: "http://127.0.0.1:1",
		Proc: string(d), Out: io.Discard, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for _, step := range []struct {
		name    string
		do      func()
		after   time.Duration
		manager int
		memory  int64
		ids     string
		errors  string
	}{
		{"it runs", func() {
			d.add(t, process{10, 0, 100, 1000}, nm, "A=B")
			d.group(t, 10, "1048576")
			d.add(t, process{11, 10, 200, 1000}, "java Task", "CONTAINER_ID="+first)
		}, 0, 10, 1 << 20, first, ""},
		// A process of a tenant has a parent in the pod.
		{"it ends; a tenant's process looks like it", func() {
			d.remove(t, 10)
			d.add(t, process{11, 1, 200, 1000}, nm, "CONTAINER_ID="+first)
		}, time.Second, 0, 0, first, ""},
		{"there is none for long", func() {}, 62 * time.Second, 0, 0, first, errNoManager.Error()},
		{"it starts again, as another user", func() {
			d.add(t, process{20, 0, 7000, 1001}, nm, "A=B")
			d.group(t, 20, "2097152")
			d.add(t, process{21, 20, 7100, 1001}, "java Task", "CONTAINER_ID="+second)
		}, 93 * time.Second, 20, 2 << 20, second, ""},
		{"its number goes to another process", func() {
			d.add(t, process{20, 0, 9000, 1000}, "sh", "A=B")
		}, 94 * time.Second, 0, 0, second, ""},
		{"and to another NodeManager, which has no container", func() {
			d.remove(t, 11, 21)
			d.add(t, process{20, 0, 9100, 1000}, nm, "A=B")
			d.group(t, 20, "3145728")
		}, 125 * time.Second, 20, 3 << 20, "", ""},
	} {
		step.do()
		now := start.Add(step.after)
		scanned := g.processes.at
		g.round(t.Context(), now)
		var ids []string
		for id, group := range g.processes.of {
			ids = append(ids, id)
			if len(group.members) != 1 {
				t.Errorf("%s: %s has %d processes", step.name, id, len(group.members))
			}
		}
		if g.processes.manager.pid != step.manager || g.cgroup.memory.Used != step.memory ||
			strings.Join(ids, " ") != step.ids || g.logged["finding the NodeManager"] != step.errors {
			t.Errorf("%s: manager %+v, %d bytes, containers %q, errors %v", step.name, g.processes.manager,
				g.cgroup.memory.Used, ids, g.troubles())
		}
		// What is known of processes is as old as it is: while there is no NodeManager, it decides about nothing.
		if step.manager == 0 && g.processes.at != scanned {
			t.Errorf("%s: processes were read", step.name)
		}
	}
}

// TestSuddenMemory has memory jump from a quarter of its limit to the hard mark between two rounds. The second one
// looks at processes and ends a container: another second may be too late.
func TestSuddenMemory(t *testing.T) {
	const manager, task = 1 << 23, 1<<23 + 1 // Linux gives no process these numbers
	d := proc(t.TempDir())
	g := testGuard(t, "http://127.0.0.1:1")
	g.processes.proc, g.o.Proc = string(d), string(d)
	d.add(t, process{manager, 0, 100, 1000}, "java "+managerClass, "A=B")
	d.add(t, process{task, manager, 200, 1000}, "java Task", "CONTAINER_ID=container_1_0001_01_000002")
	start := time.Now()
	for i, want := range []shed.Signal{shed.None, shed.Terminate} {
		d.group(t, manager, []string{"1048576", "4128768"}[i])
		if g.round(t.Context(), start.Add(time.Duration(i)*20*time.Second)); g.last.Signal != want {
			t.Errorf("round %d: %q, want %q: %+v", i, g.last.Signal, want, g.last)
		}
	}
}

// TestForetold checks that a process which names a container that is still to come does not make it older.
func TestForetold(t *testing.T) {
	d := proc(t.TempDir())
	s := scanner{proc: string(d), manager: process{pid: 10, uid: 1000}}
	const mine, other = "container_1_0001_01_000009", "container_1_0002_01_000002"
	d.add(t, process{10, 0, 100, 1000}, "java "+managerClass, "A=B")
	d.add(t, process{11, 1, 200, 1000}, "sleep", "CONTAINER_ID="+mine) // what an earlier container left behind
	d.add(t, process{12, 10, 5000, 1000}, "java Task", "CONTAINER_ID="+other)
	for range 2 {
		if err := s.scan(time.Now(), false); err != nil {
			t.Fatal(err)
		}
		d.add(t, process{13, 10, 90000, 1000}, "bash", "CONTAINER_ID="+mine) // it begins
		d.add(t, process{14, 13, 90001, 1000}, "java Task", "CONTAINER_ID="+mine)
	}
	if after := s.of[mine].started.Sub(s.of[other].started); after != 850*time.Second || len(s.of[mine].members) != 3 {
		t.Errorf("it began %v after the other: %+v", after, s.of[mine])
	}
	d.remove(t, 13, 14)
	if err := s.scan(time.Now(), false); err != nil || s.of[mine] == nil || s.of[mine].first.pid != 11 {
		t.Errorf("what is left: %+v, %v", s.of[mine], err)
	}
}
