package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errRemoved means that a directory that is kept open was removed.
var errRemoved = errors.New("the directory was removed")

// errReplaced means that the path of a directory that is kept open now leads to another directory.
var errReplaced = errors.New("the path leads to another directory")

// dirLister keeps one directory open and lists the directories in it.
type dirLister struct {
	path    string
	fd      int // -1: not open
	watched bool
	sum     uint64            // hash of the names and inodes in the last listing; 0: none
	entries map[string]uint64 // directory → inode
}

func (d *dirLister) close() {
	if d.fd >= 0 {
		_ = unix.Close(d.fd)
		d.fd = -1
	}
}

// readOnly reports whether the directory is on a read-only mount. Container runtimes mount the cgroup file
// system read-only by default.
func (d *dirLister) readOnly() bool {
	var st unix.Statfs_t
	return d.fd >= 0 && unix.Fstatfs(d.fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// checkPath returns an error if the path no longer leads to the open directory, because the file system was
// unmounted or another mount covers it. The open directory stays usable, and the check succeeds again once the
// file system is mounted again.
func (d *dirLister) checkPath() error {
	var open, named unix.Stat_t
	if d.fd < 0 {
		return nil
	}
	err := unix.Fstat(d.fd, &open)
	if err == nil {
		err = unix.Stat(d.path, &named)
	}
	if err == nil && (named.Dev != open.Dev || named.Ino != open.Ino) {
		err = errReplaced
	}
	if err != nil {
		return fmt.Errorf("%s is no longer the directory that was opened; check that the cgroup file system is mounted: %w",
			d.path, err)
	}
	return nil
}

// list reads the directory and reports whether the directories in it differ from the last listing. A directory
// that does not exist lists nothing. The error is errRemoved if the open directory was removed; a new one may
// exist at the same path.
func (d *dirLister) list(buf []byte) (changed bool, err error) {
	wasOpen := d.fd >= 0
	sum, err := d.read(buf, nil)
	gone := errors.Is(err, unix.ENOENT)
	if gone && wasOpen {
		d.close()
		return false, errRemoved
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

// read reads the directory once, after opening it if needed, and returns a hash of the directories in it. It
// adds them to entries unless entries is nil.
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
			sum += e.hash() // a sum does not depend on the order of the entries
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

// nextDirent splits the first entry off a buffer filled by getdents64.
func nextDirent(b []byte) (dirent, []byte) {
	const header = 19 // d_ino, d_off, d_reclen, d_type
	size := int(binary.NativeEndian.Uint16(b[16:]))
	name := b[header:size]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return dirent{inode: binary.NativeEndian.Uint64(b), kind: b[18], name: name}, b[size:]
}

// hash returns FNV-1a over the name and the inode. It is never 0.
func (e dirent) hash() uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, c := range e.name {
		h = (h ^ uint64(c)) * prime
	}
	return (h^e.inode)*prime | 1
}
