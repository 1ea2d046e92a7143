package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errStale says that a directory kept open was removed.
var errStale = errors.New("the directory was removed")

// errCovered says that another directory stands at a path.
var errCovered = errors.New("another one stands there")

// dirLister lists the directories in one directory that it keeps open.
type dirLister struct {
	path    string
	fd      int // -1: not open
	watched bool
	sum     uint64            // over the names and inodes of the last listing
	entries map[string]uint64 // directory → inode
}

func (d *dirLister) close() {
	if d.fd >= 0 {
		_ = unix.Close(d.fd)
		d.fd = -1
	}
}

// readOnly reports whether the directory is on a mount that can be read but not written, as a container runtime mounts
// the cgroup file system unless told otherwise.
func (d *dirLister) readOnly() bool {
	var st unix.Statfs_t
	return d.fd >= 0 && unix.Fstatfs(d.fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// moved returns an error if what stands at the path is no longer what is kept open: the file system was unmounted or
// covered. What is open can still be used, and it becomes the same again when it is mounted again.
func (d *dirLister) moved() error {
	var open, named unix.Stat_t
	if d.fd < 0 {
		return nil
	}
	err := unix.Fstat(d.fd, &open)
	if err == nil {
		err = unix.Stat(d.path, &named)
	}
	if err == nil && (named.Dev != open.Dev || named.Ino != open.Ino) {
		err = errCovered
	}
	if err != nil {
		return fmt.Errorf("%s is no longer the directory that was found there, is the cgroup file system still mounted?: %w", d.path, err)
	}
	return nil
}

// list reads the directory and reports whether it lists other directories than last time. One that is not there lists
// nothing. The error is errStale when the directory that was kept open is gone, though there may be a new one.
func (d *dirLister) list(buf []byte) (changed bool, err error) {
	wasOpen := d.fd >= 0
	sum, err := d.read(buf, nil)
	gone := errors.Is(err, unix.ENOENT)
	if gone && wasOpen {
		d.close()
		return false, errStale
	}
	if err != nil && !gone {
		d.close()
		return false, fmt.Errorf("listing %s: %w", d.path, err)
	}
	if gone {
		sum = 0
		d.close()
	}
	if sum == d.sum {
		return false, nil
	}
	entries := map[string]uint64{}
	if !gone {
		if sum, err = d.read(buf, entries); err != nil {
			d.close()
			return false, fmt.Errorf("listing %s: %w", d.path, err)
		}
	}
	d.sum, d.entries = sum, entries
	return true, nil
}

// read goes through the directory once, opening it if need be, and returns a sum over the directories in it. They are
// put into entries unless it is nil.
func (d *dirLister) read(buf []byte, entries map[string]uint64) (uint64, error) {
	if d.fd < 0 {
		fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return 0, err
		}
		d.fd = fd
	}
	if _, err := unix.Seek(d.fd, 0, 0); err != nil {
		return 0, err
	}
	var sum uint64
	for {
		n, err := getdents(d.fd, buf)
		if err != nil {
			return 0, err
		}
		if n <= 0 {
			return sum, nil
		}
		for b := buf[:n]; len(b) > 0; {
			var e dirent
			e, b = nextDirent(b)
			if e.kind != unix.DT_DIR || e.name[0] == '.' {
				continue
			}
			sum += e.sum() // order does not matter
			if entries != nil {
				entries[string(e.name)] = e.inode
			}
		}
	}
}

// dirent is one entry of a directory as getdents64(2) returns it.
type dirent struct {
	inode uint64
	kind  byte
	name  []byte
}

// nextDirent takes the first entry off a buffer that getdents64 filled.
func nextDirent(b []byte) (dirent, []byte) {
	const header = 19 // d_ino, d_off, d_reclen, d_type
	size := int(binary.NativeEndian.Uint16(b[16:]))
	name := b[header:size]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return dirent{inode: binary.NativeEndian.Uint64(b), kind: b[18], name: name}, b[size:]
}

// sum is FNV-1a over the name and the inode, never 0.
func (e dirent) sum() uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, c := range e.name {
		h = (h ^ uint64(c)) * prime
	}
	return (h^e.inode)*prime | 1
}
