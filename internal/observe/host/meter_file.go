package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errAbsent means that a file does not exist now.
var errAbsent = errors.New("there is no such file")

// statFile is a kernel file that is read repeatedly. The zero value is a file that this node does not have.
type statFile struct {
	path   string
	fd     int // valid if open
	open   bool
	missed uint8 // consecutive attempts to open the file that found none
	wait   uint8 // reads left before the next attempt to open it
}

// statReader reads kernel files into one buffer. A read of an open file allocates nothing once the buffer fits
// the largest file.
type statReader struct {
	buf  []byte
	held int // number of open files
}

// read reads the file from its beginning. The content is valid until the next read. With keep, the file stays
// open.
//
// The error is errAbsent if the file does not exist: the cgroup was removed, or the kernel was built or booted
// without this file. Controllers can be enabled later, so read looks for the file again after 1, 2, 4 and then
// every 8 reads.
//
// The result recreated is true if the cgroup of the open file was removed, so that the content is of another
// cgroup than before.
func (r *statReader) read(f *statFile, keep bool) (content []byte, recreated bool, err error) {
	if f.open {
		content, err = r.pread(f)
		if err == nil || !isAbsent(err) {
			return content, false, err
		}
		r.close(f)
		recreated = true
	}
	if f.path == "" {
		return nil, recreated, errAbsent
	}
	if f.wait > 0 {
		f.wait--
		return nil, recreated, errAbsent
	}
	fd, err := openat(unix.AT_FDCWD, f.path, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err == nil {
		f.fd, f.open = fd, true
		r.held++
		content, err = r.pread(f)
		if err != nil || !keep {
			r.close(f)
		}
	}
	if err != nil && isAbsent(err) {
		const longest = 3 // 1<<3 reads
		f.wait = 1<<f.missed - 1
		f.missed = min(f.missed+1, longest)
		return nil, recreated, errAbsent
	}
	f.missed = 0
	return content, recreated, err
}

// pread reads an open file and enlarges the buffer until the content fits. Files of cgroups, and the files of
// /proc that the meter reads with it, come whole in one read if the buffer is large enough.
func (r *statReader) pread(f *statFile) ([]byte, error) {
	const most = 16 << 20 // larger than any such file
	for {
		n, err := pread(f.fd, r.buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n < len(r.buf) || n >= most:
			return r.buf[:n], nil
		default:
			r.buf = make([]byte, 2*len(r.buf))
		}
	}
}

func (r *statReader) close(f *statFile) {
	if f.open {
		closeFile(f.fd)
		f.open = false
		r.held--
	}
}

// isAbsent reports whether an error means that the cgroup was removed (ENOENT by path, ENODEV through an open
// file) or that the kernel lacks the file: it was booted without PSI (EOPNOTSUPP), or cgroup.pressure turned
// PSI off (ENODEV, then ENOENT).
func isAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) ||
		errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTDIR)
}

// wrap adds the path of the file to a read error.
func (f *statFile) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reading %s: %w", f.path, err)
}
