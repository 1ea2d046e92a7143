package host

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// procFiles reads files of processes. It allocates nothing once its buffer holds the longest path.
type procFiles struct {
	proc string // mount point of the host's procfs
	name []byte // buffer of a path that ends in a null byte
	buf  [4 << 10]byte
}

// path returns the path of a file of a process, or of procfs itself for 0. It ends in a null byte, and is valid until
// the next call.
func (f *procFiles) path(pid int, file string) *byte {
	f.name = append(f.name[:0], f.proc...)
	if pid != 0 {
		f.name = strconv.AppendInt(append(f.name, '/'), int64(pid), 10)
	}
	f.name = append(append(f.name, file...), 0)
	return &f.name[0]
}

// read returns the content of a file of a process, as far as it fits the buffer; nothing if the process has ended. It
// is valid until the next call.
func (f *procFiles) read(pid int, file string) []byte {
	fd, err := openName(unix.AT_FDCWD, f.path(pid, file), unix.O_RDONLY)
	if err != nil {
		return nil
	}
	defer closeFile(fd)
	n, err := pread(fd, f.buf[:])
	if err != nil {
		return nil
	}
	return f.buf[:n]
}

// schedstat reads the open schedstat file of a task. It returns false if the task has ended, or if this kernel counts
// nothing, as without CONFIG_SCHED_INFO.
func (f *procFiles) schedstat(fd int) (Schedstat, bool) {
	n, err := pread(fd, f.buf[:])
	if err != nil {
		return Schedstat{}, false
	}
	s, err := ParseSchedstat(f.buf[:n])
	return s, err == nil && s != Schedstat{}
}
