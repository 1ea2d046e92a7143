package host

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls here are made without telling Go's scheduler, which would take them for ones that may wait: it wakes its monitor,
// which then looks around every 20 µs, and finds the caller another thread when the call took more than that. On a full, busy node the
// monitor took 15 % of what the agent costs, and 10 % with all of these. They are for what the kernel makes up at once: files of
// procfs and cgroups, their directories, and clocks.

// openat opens a file, to be closed on exec.
func openat(dir int, path string, flags int) (fd int, err error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(name)), uintptr(flags|unix.O_CLOEXEC), 0, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func closeFile(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

func pread(fd int, buf []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)), 0, 0, 0)
	return result(n, errno)
}

func getdents(fd int, buf []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_GETDENTS64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
	return result(n, errno)
}

func clockGettime(id int32, now *unix.Timespec) error {
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(now)), 0)
	_, err := result(0, errno)
	return err
}

func result(n uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
