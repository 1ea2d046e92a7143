package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Write is one write to a file of a watched directory, with the process that made it.
type Write struct {
	Path    string
	PID     int
	Program string // name of the process in /proc; "" if the process had already ended
}

// WatchWriters calls f for each write to a file in one of the directories, until the context ends. Unlike
// inotify, fanotify reports the process. It needs CAP_SYS_ADMIN, and meaningful PIDs need the PID namespace of
// the host.
func WatchWriters(ctx context.Context, dirs []string, f func(Write)) error {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return fmt.Errorf("opening fanotify: %w", err)
	}
	file := os.NewFile(uintptr(fd), "fanotify")
	defer file.Close()
	for _, dir := range dirs {
		err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_ONLYDIR,
			unix.FAN_MODIFY|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, dir)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("watching %s: %w", dir, err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 16<<10)
	for {
		n, err := file.Read(buf)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading fanotify events: %w", err)
		}
		for events := buf[:n]; len(events) > 0; {
			var w Write
			w, events = nextWrite(events)
			if w.Path != "" {
				f(w)
			}
		}
	}
}

// nextWrite splits the first event off a buffer filled by fanotify (struct fanotify_event_metadata).
func nextWrite(b []byte) (Write, []byte) {
	size := int(binary.NativeEndian.Uint32(b))
	fd := int(int32(binary.NativeEndian.Uint32(b[16:])))
	w := Write{PID: int(int32(binary.NativeEndian.Uint32(b[20:])))}
	if fd >= 0 {
		w.Path, _ = os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		_ = unix.Close(fd)
		w.Program = program(w.PID)
	}
	return w, b[size:]
}

// program returns the name of a process: the base name of its first argument, or its comm, which the kernel
// cuts to 15 characters, if it has no arguments.
func program(pid int) string {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && len(line) > 0 {
		first, _, _ := bytes.Cut(line, []byte{0})
		return filepath.Base(string(first))
	}
	name, _ := os.ReadFile(filepath.Join(dir, "comm"))
	return strings.TrimSpace(string(name))
}

// Programs returns the names of all running processes in this PID namespace, without duplicates.
func Programs() map[string]bool {
	all := map[string]bool{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if name := program(pid); name != "" {
				all[name] = true
			}
		}
	}
	return all
}
