package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errAbsent says that there is no such file now.
var errAbsent = errors.New("there is no such file")

// statFile is a file of the kernel's that is read again and again. Its zero value is a file that this node does not have.
type statFile struct {
	path   string
	fd     int // valid if open
	open   bool
	missed uint8 // in how many attempts in a row there was none
	wait   uint8 // for how many reads no attempt is made
}

// statReader reads such files into a buffer of its own. A read that opens nothing allocates nothing, once the buffer has
// grown to the largest file.
type statReader struct {
	buf  []byte
	held int // files that are open
}

// read reads the file from its beginning. The content is valid until the next read. If keep is set, the file stays open
// for the next time.
//
// The error is errAbsent if there is no such file, which is looked for again after 1, 2, 4 and then every 8 reads, because
// controllers can be enabled later: a cgroup was removed, or the kernel was built or booted without such a thing. Made
// anew means that what is read is another cgroup than last time, because the old one was removed while its file was open.
func (r *statReader) read(f *statFile, keep bool) (content []byte, anew bool, err error) {
	if f.open {
		content, err = r.pread(f)
		if err == nil || !goneOrNone(err) {
			return content, false, err
		}
		r.close(f)
		anew = true
	}
	if f.path == "" {
		return nil, anew, errAbsent
	}
	if f.wait > 0 {
		f.wait--
		return nil, anew, errAbsent
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
	if err != nil && goneOrNone(err) {
		const longest = 3 // 1<<3 reads
		f.wait = 1<<f.missed - 1
		f.missed = min(f.missed+1, longest)
		return nil, anew, errAbsent
	}
	f.missed = 0
	return content, anew, err
}

// pread reads an open file, enlarging the buffer until all of it fits. The files of cgroups and those in /proc that are
// read with it come whole in one read if the buffer is large enough.
func (r *statReader) pread(f *statFile) ([]byte, error) {
	const most = 16 << 20 // no file is as large
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

// goneOrNone reports whether an error means that a cgroup was removed (ENOENT by path, ENODEV through an open file) or
// that the kernel does not do this: it was booted without pressure (EOPNOTSUPP), or cgroup.pressure turned it off (ENODEV,
// then ENOENT).
func goneOrNone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTDIR)
}

// wrap adds to an error which file could not be read.
func (f *statFile) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reading %s: %w", f.path, err)
}
