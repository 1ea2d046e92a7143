package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const lockFile = "lock"

// Locked reports whether a process has the run directory. It changes nothing there.
func Locked(runDir string) (bool, error) {
	file, err := os.Open(filepath.Join(runDir, lockFile))
	if err != nil {
		return false, err
	}
	defer file.Close()
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) // an end of the file ends it
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// Lock makes the run directory and takes it for one process, until the file is closed.
func Lock(runDir string) (*os.File, error) {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the run directory: %w", err)
	}
	path := filepath.Join(runDir, lockFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the run directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another agent uses %s; stop it, or choose another directory with --run-dir: %w",
			runDir, err), file.Close())
	}
	return file, nil
}
