package host

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// numbers lists the subdirectories of a directory whose names are numbers, as /proc and the task directories of
// processes have them, piece by piece. It allocates nothing.
type numbers struct {
	fd     int
	isOpen bool
	at     int64  // position behind the entry that next returned last
	rest   []byte // entries that the kernel returned and next did not
	buf    [4 << 10]byte
}

// open opens a directory, given its path that ends in a null byte, at a position that [numbers.at] had before; 0: at
// the beginning. The position in the tasks of a process is their number, so where tasks ended meanwhile, others are
// left out. A position behind the end lists nothing.
func (d *numbers) open(path *byte, at int64) error {
	d.close()
	fd, err := openName(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	d.fd, d.isOpen, d.at, d.rest = fd, true, at, nil
	if at != 0 {
		if _, err = unix.Seek(fd, at, unix.SEEK_SET); err != nil {
			d.close()
		}
	}
	return err
}

func (d *numbers) close() {
	if d.isOpen {
		closeFile(d.fd)
	}
	d.isOpen, d.rest = false, nil
}

// walk calls note for the next numbers, at most so many of them, and until note has returned true a number of times. It
// reports whether the listing has ended, and closes it then; an error ends it too.
func (d *numbers) walk(entries, looks int, note func(number int, inode uint32) (looked bool)) (ended bool, err error) {
	for range entries {
		if looks <= 0 {
			return false, nil
		}
		n, inode, ok, err := d.next()
		if !ok {
			d.close()
			return true, err
		}
		if note(n, uint32(inode)) {
			looks--
		}
	}
	return false, nil
}

// next returns the next number; false: there is none, because of the end or of the error.
func (d *numbers) next() (number int, inode uint64, ok bool, err error) {
	for {
		for len(d.rest) > 0 {
			const offset = 8 // of d_off, the position of the entry behind
			d.at = int64(binary.NativeEndian.Uint64(d.rest[offset:]))
			var e dirent
			e, d.rest = nextDirent(d.rest)
			n, after, is := nextNumber(e.name)
			if is && len(after) == 0 && e.kind == unix.DT_DIR && n <= math.MaxInt32 {
				return int(n), e.inode, true, nil
			}
		}
		n, err := getdents(d.fd, d.buf[:])
		if err != nil || n <= 0 {
			return 0, 0, false, err
		}
		d.rest = d.buf[:n]
	}
}
