package host

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// procReader reads small files of processes in procfs. It keeps its buffers, so a read allocates nothing.
type procReader struct {
	proc string // mount point of the host's procfs
	name []byte // buffer of a path that ends in a null byte
	buf  [4 << 10]byte
}

// path returns the path of a file of a process, or of procfs itself for 0. It ends in a null byte, and is valid until
// the next call.
func (r *procReader) path(pid int, file string) *byte {
	r.name = append(r.name[:0], r.proc...)
	if pid != 0 {
		r.name = strconv.AppendInt(append(r.name, '/'), int64(pid), 10)
	}
	r.name = append(append(r.name, file...), 0)
	return &r.name[0]
}

// read returns the content of a file of a process, as far as it fits the buffer; nothing if the process has ended. It
// is valid until the next call.
func (r *procReader) read(pid int, file string) []byte {
	fd, err := openName(unix.AT_FDCWD, r.path(pid, file), unix.O_RDONLY)
	if err != nil {
		return nil
	}
	defer closeFile(fd)
	n, err := pread(fd, r.buf[:])
	if err != nil {
		return nil
	}
	return r.buf[:n]
}

// readTask reads the open schedstat file of a task. It returns false if the task has ended, or if this kernel counts
// nothing, as without CONFIG_SCHED_INFO.
func (r *procReader) readTask(fd int) (Schedstat, bool) {
	n, err := pread(fd, r.buf[:])
	if err != nil || n == 0 {
		return Schedstat{}, false
	}
	s, err := ParseSchedstat(r.buf[:n])
	return s, err == nil && s != Schedstat{}
}
