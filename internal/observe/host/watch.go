package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// ErrNoWatches is in the chain of an error that means that the kernel has no inotify instance or watch left for us. What
// is not watched must be polled.
var ErrNoWatches = errors.New("no inotify watches left: raise fs.inotify.max_user_instances and fs.inotify.max_user_watches")

// calm is how long the watcher rests after each batch of events. It bounds what a writer in a tight loop can make us
// spend, and is well below the time within which a foreign write must be answered.
const calm = 2 * time.Millisecond

// Watcher tells who writes knobs and makes or removes directories in the cgroups it is pointed at. One watch on a
// directory covers the files in it (verified on 6.18 with v1 and 6.1 with v2). The kernel reports writes that changed
// nothing as well, and our own; it does not report writes that it refused, nor values that change without a write. So an
// event says where to look, never what is there.
type Watcher struct {
	version cgroup.Version
	file    *os.File // over fd, for reads that end when it is closed
	fd      int      // not file.Fd(), which would make it blocking
	wake    chan struct{}

	mu      sync.Mutex
	dirs    map[int32]Group // by watch descriptor
	watches map[Group]int32
	pending Changes
}

// Group is a cgroup in one hierarchy.
type Group struct {
	Mount string // where the hierarchy is mounted
	Dir   string // its name in plans
}

// Path returns the path of the group's directory.
func (g Group) Path() string { return filepath.Join(g.Mount, g.Dir) }

// Changes is what happened since the last [Watcher.Take].
type Changes struct {
	Files    map[model.File]struct{} // written
	Tree     bool                    // directories were made or removed, or cpu.idle was written
	Overflow bool                    // the kernel dropped events: everything may have changed
}

// NewWatcher opens an inotify instance. The error has [ErrNoWatches] in its chain if the kernel has none left.
func NewWatcher(v cgroup.Version) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return nil, fmt.Errorf("opening inotify: %w: %w", ErrNoWatches, err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening inotify: %w", err)
	}
	return &Watcher{
		version: v,
		file:    os.NewFile(uintptr(fd), "inotify"),
		fd:      fd,
		wake:    make(chan struct{}, 1),
		dirs:    map[int32]Group{},
		watches: map[Group]int32{},
		pending: Changes{Files: map[model.File]struct{}{}},
	}, nil
}

// Add watches the directory of a group. Adding it again after it was removed and made anew watches the new one. The error has
// [ErrNoWatches] in its chain if the kernel has none left.
func (w *Watcher) Add(g Group) error {
	const mask = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	w.mu.Lock()
	defer w.mu.Unlock()
	wd, err := unix.InotifyAddWatch(w.fd, g.Path(), mask)
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("watching %s: %w: %w", g.Path(), ErrNoWatches, err)
	}
	if err != nil {
		return fmt.Errorf("watching %s: %w", g.Path(), err)
	}
	if old, found := w.watches[g]; found && old != int32(wd) {
		delete(w.dirs, old) // of a directory that is gone
		_, _ = unix.InotifyRmWatch(w.fd, uint32(old))
	}
	w.dirs[int32(wd)] = g
	w.watches[g] = int32(wd)
	return nil
}

// Watches reports whether a group is watched.
func (w *Watcher) Watches(g Group) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, found := w.watches[g]
	return found
}

// Remove watches a group no longer.
func (w *Watcher) Remove(g Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wd, found := w.watches[g]
	if !found {
		return
	}
	delete(w.watches, g)
	if w.dirs[wd] == g {
		delete(w.dirs, wd)
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // EINVAL: it went with its directory
	}
}

// Wake delivers a value when there is something to take.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take moves what happened since the last call into changes, whose map is kept and reused.
func (w *Watcher) Take(changes *Changes) {
	if changes.Files == nil {
		changes.Files = map[model.File]struct{}{}
	}
	clear(changes.Files)
	changes.Tree, changes.Overflow = false, false
	w.mu.Lock()
	w.pending, *changes = *changes, w.pending
	w.mu.Unlock()
}

// Run reads events until the context ends.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.file.Close()
	stop := context.AfterFunc(ctx, func() { _ = w.file.Close() })
	defer stop()
	rest := time.NewTimer(0)
	<-rest.C
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading inotify events: %w", err)
		}
		if w.collect(buf[:n]) {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
		rest.Reset(calm)
		select {
		case <-rest.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// collect notes the events in a buffer and reports whether any of them matters.
func (w *Watcher) collect(buf []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	matters := false
	for len(buf) >= unix.SizeofInotifyEvent {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&buf[0]))
		name := buf[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+int(event.Len)]
		buf = buf[unix.SizeofInotifyEvent+int(event.Len):]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		if w.note(event.Wd, event.Mask, name) {
			matters = true
		}
	}
	return matters
}

func (w *Watcher) note(wd int32, mask uint32, name []byte) bool {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.pending.Overflow = true
		return true
	}
	at, known := w.dirs[wd]
	switch {
	case !known:
		return false
	case mask&(unix.IN_DELETE_SELF|unix.IN_IGNORED) != 0:
		delete(w.dirs, wd)
		if w.watches[at] == wd {
			delete(w.watches, at)
		}
		w.pending.Tree = true
		return true
	case mask&unix.IN_ISDIR != 0:
		w.pending.Tree = true
		return true
	}
	knob, ours := cgroup.KnobOf(w.version, string(name))
	if ours {
		w.pending.Tree = w.pending.Tree || knob == model.Idle
		w.pending.Files[model.File{Dir: at.Dir, Knob: knob}] = struct{}{}
	}
	return ours
}
