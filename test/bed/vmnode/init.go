package vmnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// IsInit reports whether this is process 1 of such a guest, before its root file system is there.
func IsInit() bool { return os.Getpid() == 1 && os.Args[0] == initPath }

// Init mounts the root file system and becomes systemd. It returns only if that fails; then the kernel panics, which
// ends qemu.
func Init() error {
	for _, m := range []struct{ kind, at string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	if err := insertModules("/" + modulesDir); err != nil {
		return err
	}
	if err := mountRoot(); err != nil {
		return err
	}
	if err := copyOver("/"+overlayDir, "/root"); err != nil {
		return fmt.Errorf("copying what this boot has of its own: %w", err)
	}
	if err := os.RemoveAll("/" + overlayDir); err != nil { // it is in memory
		return err
	}
	return switchRoot()
}

func insertModules(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("inserting the module %s: %w", e.Name(), err)
		}
	}
	return nil
}

// mountRoot mounts the disk, which appears some time after its driver.
func mountRoot() error {
	var err error
	for range 500 {
		if err = unix.Mount("/dev/vda", "/root", "ext4", unix.MS_NOATIME, ""); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("mounting the disk: %w", err)
}

// copyOver copies a tree of directories, files and links over another.
func copyOver(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, path[len(from):])
		switch info.Mode().Type() {
		case fs.ModeDir:
			return os.MkdirAll(target, info.Mode().Perm())
		case fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, info.Mode().Perm())
	})
}

// switchRoot makes the disk the root and executes systemd.
func switchRoot() error {
	if err := unix.Unmount("/proc", 0); err != nil {
		return fmt.Errorf("unmounting /proc: %w", err)
	}
	if err := unix.Mount("/dev", "/root/dev", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving /dev: %w", err)
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	const systemd = "/lib/systemd/systemd"
	return fmt.Errorf("executing %s: %w", systemd, unix.Exec(systemd, []string{systemd}, []string{"TERM=linux"}))
}
