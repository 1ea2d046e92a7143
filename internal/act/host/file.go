package host

import (
	"errors"
	"fmt"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// file is one cgroup file that the plan names.
type file struct {
	setting model.Setting
	want    cgroup.Raw
	f       *os.File // nil: not open
	period  *os.File // of a quota on v1, beside f; nil: f holds the whole value
	fd      int      // of f
	inode   uint64
	writes  bool       // f is open for writing
	found   cgroup.Raw // when it was last read
	exists  bool       // it existed when it was last read
	stale   bool       // to be read in this round

	effective *os.File   // of a list of CPUs: those on which the group may run; nil: not open
	allowed   cgroup.Raw // what it read
	reported  cgroup.Raw // result of confined at the last call of Host.Confined
}

// read updates the known content of a file, and opens it if necessary. A removed group is no error.
func (h *Host) read(f *file) error {
	for range 2 {
		if f.f == nil {
			if err := h.open(f); err != nil {
				f.exists = false
				if isGone(err) {
					return nil
				}
				return err
			}
		}
		// pread, because File.ReadAt reads twice: the second time to find the end.
		n, err := unix.Pread(f.fd, h.buf[:], 0)
		if err == nil && f.period != nil {
			var more int
			more, err = unix.Pread(int(f.period.Fd()), h.buf[n:], 0)
			n += more
		}
		if isGone(err) { // a new group may have the same name
			f.close()
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s in %s: %w", f.setting.Knob, f.setting.Dir, err)
		}
		raw, err := cgroup.Parse(h.version, f.setting.Knob, h.buf[:n], f.found)
		if err != nil {
			return fmt.Errorf("%s: %w", f.setting.Dir, err)
		}
		f.found, f.exists = raw, true
		f.want = h.raw(f)
		return h.readEffective(f)
	}
	f.exists = false
	return nil
}

// readEffective reads on which CPUs of its list a group may run: ancestors may allow fewer. A group that was removed
// meanwhile shows when its list is read next.
func (h *Host) readEffective(f *file) error {
	if f.effective == nil {
		return nil
	}
	n, err := unix.Pread(int(f.effective.Fd()), h.buf[:], 0)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s in %s: %w", cgroup.EffectiveFile(h.version), f.setting.Dir, err)
	}
	f.allowed, err = cgroup.Parse(h.version, f.setting.Knob, h.buf[:n], f.allowed)
	if err != nil {
		return fmt.Errorf("%s: %w", f.setting.Dir, err)
	}
	return nil
}

func (h *Host) open(f *file) error {
	root, err := h.hierarchy(f.setting.Knob)
	if err != nil {
		return err
	}
	opened, writes, err := openFile(root, path.Join(f.setting.Dir, cgroup.FileName(h.version, f.setting.Knob)))
	if err != nil {
		return err
	}
	var period *os.File
	if name := cgroup.PeriodFile(h.version, f.setting.Knob); name != "" {
		if period, writes, err = openFile(root, path.Join(f.setting.Dir, name)); err != nil {
			_ = opened.Close()
			return err
		}
	}
	f.f, f.fd, f.period, f.writes = opened, int(opened.Fd()), period, writes
	dir, err := root.Stat(f.setting.Dir)
	if err != nil {
		f.close()
		return fmt.Errorf("looking at %s: %w", f.setting.Dir, err)
	}
	f.inode = inodeOf(dir)
	if f.setting.Knob == model.Cpuset {
		// Absent before 3.17 on v1; then the list itself counts.
		f.effective, _ = root.Open(path.Join(f.setting.Dir, cgroup.EffectiveFile(h.version)))
	}
	return nil
}

// openFile opens a file, and reports whether it can be written. A read-only file can still be explained.
func openFile(root *os.Root, name string) (opened *os.File, writes bool, err error) {
	opened, err = root.OpenFile(name, os.O_RDWR, 0)
	writes = err == nil
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
		opened, err = root.Open(name)
	}
	if err != nil {
		return nil, false, fmt.Errorf("opening %s: %w", name, err)
	}
	return opened, writes, nil
}

// reopen opens a file for writing that was opened while the mount was read-only. A file of the same name in another
// group than the recorded one is not written.
func (h *Host) reopen(f *file) error {
	inode := f.inode
	f.close()
	if err := h.open(f); err != nil {
		return err
	}
	switch {
	case f.inode != inode:
		return fmt.Errorf("opening %s in %s again: %w", f.setting.Knob, f.setting.Dir, unix.ENODEV)
	case !f.writes:
		return fmt.Errorf("opening %s in %s for writing: %w", f.setting.Knob, f.setting.Dir, unix.EROFS)
	}
	return nil
}

func (h *Host) writeFile(f *file, raw cgroup.Raw) error {
	if !f.writes {
		if err := h.reopen(f); err != nil {
			return err
		}
	}
	var err error
	if f.period != nil {
		err = h.writeQuota(f, raw)
	} else {
		err = h.write(f, f.fd, cgroup.Append(h.buf[:0], h.version, f.setting.Knob, raw))
	}
	if err == nil {
		f.found = raw
	}
	return err
}

func (h *Host) write(f *file, fd int, text []byte) error {
	// pwrite, because v2 files can be polled: File.WriteAt would wait for ever after EAGAIN.
	if _, err := unix.Pwrite(fd, text, 0); err != nil {
		return fmt.Errorf("writing %q to %s in %s: %w", text, f.setting.Knob, f.setting.Dir, err)
	}
	return nil
}

func (f *file) close() {
	for _, opened := range []**os.File{&f.f, &f.period, &f.effective} {
		if *opened != nil {
			_ = (*opened).Close()
			*opened = nil
		}
	}
}

// isGone reports whether an error means that the group was removed: its path does not exist (ENOENT), or an open file
// of it has lost its group (ENODEV).
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}

func inodeOf(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
