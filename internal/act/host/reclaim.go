package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Reclaimer reclaims memory from groups. A write to memory.reclaim returns when it is done, which may take seconds. So
// it runs beside everything else, for one group at a time. Only [Reclaimer.Run] blocks.
type Reclaimer struct {
	root    *os.Root // of the memory controller's hierarchy
	timeout time.Duration
	asked   chan model.Reclaim
	done    chan model.Reclaimed
}

// NewReclaimer returns a reclaimer for the hierarchy mounted at a path. limit bounds the time of one reclaim.
func NewReclaimer(mounted string, timeout time.Duration) (*Reclaimer, error) {
	root, err := os.OpenRoot(mounted)
	if err != nil {
		return nil, fmt.Errorf("opening the cgroup hierarchy of memory: %w", err)
	}
	return &Reclaimer{
		root: root, timeout: timeout, asked: make(chan model.Reclaim, 1), done: make(chan model.Reclaimed, 1),
	}, nil
}

// Ask starts a reclaim. The result of the one before must have been received from [Reclaimer.Done].
func (r *Reclaimer) Ask(what model.Reclaim) { r.asked <- what }

// Done delivers the result of each reclaim.
func (r *Reclaimer) Done() <-chan model.Reclaimed { return r.done }

// Run carries out reclaims until the context ends.
func (r *Reclaimer) Run(ctx context.Context) {
	defer r.root.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case what := <-r.asked:
			r.done <- r.reclaim(ctx, what)
		}
	}
}

// reclaim reclaims one amount. The drop of the group's usage counts as freed, although the group uses memory meanwhile.
func (r *Reclaimer) reclaim(ctx context.Context, what model.Reclaim) model.Reclaimed {
	result := model.Reclaimed{UID: what.UID, Requested: what.Bytes}
	begin := time.Now()
	before, err := r.used(what.Dir)
	if err == nil {
		err = r.write(ctx, what, before)
		if after, usedErr := r.used(what.Dir); usedErr == nil {
			result.Freed = max(before-after, 0)
		}
	}
	result.Took = time.Since(begin)
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		result.Failed = unix.ErrnoName(errno)
	case err != nil:
		result.Failed = err.Error()
	}
	return result
}

// breakOff interrupts a system call on a thread, unless it ends in time, by a signal that Go ignores. The kernel checks
// for signals between two passes, and returns EINTR. A signal before the call is lost, so several are sent.
func (r *Reclaimer) breakOff(ctx context.Context, thread int, finished <-chan struct{}) {
	const signalInterval = 50 * time.Millisecond
	timer := time.NewTimer(r.timeout)
	defer timer.Stop()
	stop := ctx.Done()
	for {
		select {
		case <-finished:
			return
		case <-timer.C:
		case <-stop:
			stop = nil
		}
		_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
		timer.Reset(signalInterval)
	}
}

// write writes to the kernel and waits. It stays on one thread, because a system call can only be interrupted on its
// own thread. Go's scheduler sends the same signal for its own purposes, so a write that was interrupted too early goes
// on with the rest: what was freed since the group used the given bytes is done.
func (r *Reclaimer) write(ctx context.Context, what model.Reclaim, before int64) error {
	name := path.Join(what.Dir, cgroup.ReclaimFile)
	file, err := r.root.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", name, err)
	}
	defer file.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	finished, stopped := make(chan struct{}), make(chan struct{})
	thread, begin := unix.Gettid(), time.Now()
	go func() {
		defer close(stopped)
		r.breakOff(ctx, thread, finished)
	}()
	for rest := what.Bytes; rest > 0; {
		_, err = unix.Write(int(file.Fd()), strconv.AppendInt(nil, rest, 10))
		if !errors.Is(err, unix.EINTR) || ctx.Err() != nil || time.Since(begin) >= r.timeout {
			break
		}
		var now int64
		if now, err = r.used(what.Dir); err != nil {
			break
		}
		rest = min(rest, what.Bytes-(before-now))
	}
	close(finished)
	<-stopped
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func (r *Reclaimer) used(dir string) (int64, error) { return memoryUsage(r.root, cgroup.V2, dir) }
