package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// ErrNoWatches is in the chain of an error that means that the kernel has no inotify instance or watch left.
// Directories without a watch must be polled.
var ErrNoWatches = errors.New(
	"no inotify watches left: raise fs.inotify.max_user_instances and fs.inotify.max_user_watches")

// restInterval is the pause of the watcher after each batch of events. It bounds the cost of a writer in a
// tight loop, and is well below the time within which a write by another writer must be answered.
const restInterval = 2 * time.Millisecond

// Watcher reports writes to knobs, and directories made or removed, in the cgroups that it watches. One watch
// on a directory covers the files in it (verified on 6.18 with v1 and 6.1 with v2).
//
// The kernel also reports writes without a change, and Waterline's own writes. It does not report writes that
// it refused, nor values that change without a write. So an event names a file to read again, and says nothing
// about its content.
type Watcher struct {
	version cgroup.Version
	file    *os.File // over fd, for reads that end when it is closed
	fd      int      // of file; file.Fd() would make reads blocking
	wake    chan struct{}

	mu      sync.Mutex
	dirs    map[int32]Group // by watch descriptor
	watches map[Group]int32
	pending Changes
}

// Group is a cgroup in one hierarchy.
type Group struct {
	Mount string // mount point of the hierarchy
	Dir   string // directory below the mount point, as in plans
}

// Path returns the path of the group's directory.
func (g Group) Path() string { return filepath.Join(g.Mount, g.Dir) }

// Changes are the events since the last [Watcher.Take].
type Changes struct {
	Files    map[model.File]struct{} // files that were written
	Tree     bool                    // directories were made or removed, or cpu.idle was written
	Overflow bool                    // the kernel dropped events: anything may have changed
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

// Add watches the directory of a group. Called again after the directory was removed and made again, it watches
// the new one. The error has [ErrNoWatches] in its chain if the kernel has no watch left.
func (w *Watcher) Add(g Group) error {
	const mask = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF |
		unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
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
		delete(w.dirs, old) // the watch of the removed directory
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

// Remove removes the watch of a group.
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
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // EINVAL: the kernel removed it with the directory
	}
}

// Wake returns a channel that receives a value when [Watcher.Take] has something to return.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take moves the events since the last call into changes, and reuses its map.
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

// Run reads events until the context ends. It returns nil then, and an error if reading fails.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.file.Close()
	stop := context.AfterFunc(ctx, func() { _ = w.file.Close() })
	defer stop()
	timer := time.NewTimer(0)
	<-timer.C
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
		timer.Reset(restInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// collect records the events in a buffer and reports whether one of them is relevant.
func (w *Watcher) collect(buf []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	relevant := false
	for e, rest, ok := NextInotifyEvent(buf); ok; e, rest, ok = NextInotifyEvent(rest) {
		relevant = w.record(e) || relevant
	}
	return relevant
}

// record records one event and reports whether it is relevant.
func (w *Watcher) record(e InotifyEvent) bool {
	if e.Mask&unix.IN_Q_OVERFLOW != 0 {
		w.pending.Overflow = true
		return true
	}
	at, known := w.dirs[e.Watch]
	switch {
	case !known:
		return false
	case e.Mask&(unix.IN_DELETE_SELF|unix.IN_IGNORED) != 0:
		delete(w.dirs, e.Watch)
		if w.watches[at] == e.Watch {
			delete(w.watches, at)
		}
		w.pending.Tree = true
		return true
	case e.Mask&unix.IN_ISDIR != 0:
		w.pending.Tree = true
		return true
	}
	knob, ours := cgroup.KnobOf(w.version, string(e.Name))
	if ours {
		w.pending.Tree = w.pending.Tree || knob == model.Idle
		w.pending.Files[model.File{Dir: at.Dir, Knob: knob}] = struct{}{}
	}
	return ours
}
