package vm_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/observe/host"
)

// factInotify watches the folder of a cgroup: what others write to its files is reported by name, even if nothing
// changes, but not what a write to one file does to another.
func factInotify(t *testing.T) {
	dir := group(t, "watched")
	if err := write(dir+"/cgroup.subtree_control", "+cpu"); err != nil {
		t.Fatal(err)
	}
	w := watchDir(t, dir)
	p := start(t, "/sys/fs/cgroup", "exec sleep 1000")
	pid := strconv.Itoa(p.Pid)
	for _, s := range []struct {
		name string
		do   func() error
		want string
	}{
		{"a read", func() error { _ = read(t, dir, "cpu.weight"); return nil }, ""},
		{"a write", func() error { return write(dir+"/cpu.weight", "200") }, "cpu.weight:MC"},
		{"the same value", func() error { return write(dir+"/cpu.weight", "200") }, "cpu.weight:MC"},
		{"a refused write", func() error { return refused(write(dir+"/cpu.weight", "99999")) }, "cpu.weight:C"},
		// as a shell's > does: opening for truncation counts as a change
		{
			"a refused write after O_TRUNC",
			func() error { return refused(os.WriteFile(dir+"/cpu.weight", []byte("99999"), 0)) }, "cpu.weight:MC",
		},
		{"no write at all", func() error { return openAndClose(dir + "/cpu.weight") }, "cpu.weight:C"},
		// these change what cpu.weight reads
		{"cpu.weight.nice", func() error { return write(dir+"/cpu.weight.nice", "5") }, "cpu.weight.nice:MC"},
		{"cpu.idle", func() error { return write(dir+"/cpu.idle", "1") }, "cpu.idle:MC"},
		{"cpu.idle back", func() error { return write(dir+"/cpu.idle", "0") }, "cpu.idle:MC"},
		{"a child", func() error { return os.Mkdir(dir+"/sub", 0o755) }, "sub:+"},
		{"a write in the child", func() error { return write(dir+"/sub/cpu.weight", "7") }, ""},
		// the kernel reports its own changes only of files that somebody has looked at
		{"a process in the child", func() error { return write(dir+"/sub/cgroup.procs", pid) }, ""},
		{"no process in the child", func() error { return write("/sys/fs/cgroup/cgroup.procs", pid) }, ""},
		{"a look at cgroup.events", func() error { _ = read(t, dir, "cgroup.events"); return nil }, ""},
		{"a process in the child again", func() error { return write(dir+"/sub/cgroup.procs", pid) }, "cgroup.events:M"},
		{
			"no process in the child again", func() error { return write("/sys/fs/cgroup/cgroup.procs", pid) },
			"cgroup.events:M",
		},
		{"no child", func() error { return os.Remove(dir + "/sub") }, "sub:-"},
	} {
		if err := s.do(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if got := strings.Join(w.events(t), " "); got != s.want {
			t.Errorf("%s: reported %q, want %q", s.name, got, s.want)
		}
	}
}

// refused turns the error that is wanted into none.
func refused(err error) error {
	switch {
	case err == nil:
		return errors.New("it was accepted")
	case errors.Is(err, syscall.ERANGE):
		return nil
	}
	return err
}

func openAndClose(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// watch is an inotify watch on a folder.
type watch struct{ f *os.File }

func watchDir(t *testing.T, dir string) watch {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { f.Close() })
	if _, err := syscall.InotifyAddWatch(fd, dir,
		syscall.IN_MODIFY|syscall.IN_CREATE|syscall.IN_DELETE|syscall.IN_CLOSE_WRITE); err != nil {
		t.Fatal(err)
	}
	return watch{f}
}

// events returns the names that were reported lately, in order, each with letters for what happened: M for a change, C
// for the closing of what was open for writing, + and - for what came and went.
func (w watch) events(t *testing.T) []string {
	t.Helper()
	var names []string
	marks := map[string]string{}
	buf := make([]byte, 64<<10)
	for {
		if err := w.f.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := w.f.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for e, rest, ok := host.NextInotifyEvent(buf[:n]); ok; e, rest, ok = host.NextInotifyEvent(rest) {
			name := string(e.Name)
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			if m := mark(e.Mask); !strings.Contains(marks[name], m) {
				marks[name] += m
			}
		}
	}
	for i, name := range names {
		names[i] = name + ":" + marks[name]
	}
	return names
}

func mark(mask uint32) string {
	switch {
	case mask&syscall.IN_MODIFY != 0:
		return "M"
	case mask&syscall.IN_CLOSE_WRITE != 0:
		return "C"
	case mask&syscall.IN_CREATE != 0:
		return "+"
	case mask&syscall.IN_DELETE != 0:
		return "-"
	}
	return "?"
}
