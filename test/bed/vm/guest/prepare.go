package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/waterline-io/waterline/test/bed/vm/wire"
)

const cgroupRoot = "/sys/fs/cgroup"

// quotaGroup is a cgroup with a CPU quota, which stays and is empty.
//
// The first quota of a kernel and the removal of the last one patch the scheduler's code while it runs (the static key
// __cfs_bandwidth_used, in update_curr of Linux 6.1). Meanwhile the kernel puts a breakpoint there, and CPUs that qemu
// emulates in several threads were seen to run it for ever. With this group, the code is patched once, before anything
// else runs.
const quotaGroup = "vm-quota"

// mountAll mounts what systemd mounts on a node, with the same options of cgroup2.
func mountAll() error {
	for _, m := range []struct{ kind, at, options string }{
		{"devtmpfs", "/dev", "mode=755"},
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devpts", "/dev/pts", "mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/run", "mode=755"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"cgroup2", cgroupRoot, "nsdelegate,memory_recursiveprot"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return fmt.Errorf("making a mount point: %w", err)
		}
		if err := syscall.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.kind, m.at, err)
		}
	}
	return nil
}

// prepare makes the guest ready for commands.
func prepare() (wire.Hello, error) {
	var h wire.Hello
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return h, fmt.Errorf("reading the kernel's release: %w", err)
	}
	h.Release = strings.TrimSpace(string(release))
	if h.Controllers, err = enableControllers(cgroupRoot); err != nil {
		return h, err
	}
	if slices.Contains(strings.Fields(h.Controllers), "cpu") {
		if err := makeQuota(); err != nil {
			return h, err
		}
	}
	if err := os.MkdirAll(wire.OutDir, 0o755); err != nil {
		return h, fmt.Errorf("making the folder for results: %w", err)
	}
	return h, loopbackUp()
}

// makeQuota makes the [quotaGroup]. Its quota is ten CPUs.
func makeQuota() error {
	dir := filepath.Join(cgroupRoot, quotaGroup)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("making a cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cpu.max"), []byte("1000000 100000"), 0); err != nil {
		return fmt.Errorf("setting a CPU quota: %w", err)
	}
	return nil
}

// enableControllers gives the children of a cgroup every controller that it has itself.
func enableControllers(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return "", fmt.Errorf("reading the controllers: %w", err)
	}
	names := strings.Fields(string(b))
	var errs []error
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0); err != nil {
			errs = append(errs, fmt.Errorf("enabling the controller %s: %w", name, err))
		}
	}
	return strings.Join(names, " "), errors.Join(errs...)
}

// loopbackUp has busybox do it: it is three ioctls with structs that the standard library does not declare.
func loopbackUp() error {
	argv := []string{"/bin/busybox", "ifconfig", "lo", "127.0.0.1", "up"}
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if err != nil {
		return fmt.Errorf("starting %v: %w", argv, err)
	}
	status, err := reapUntil(pid)
	if err == nil && status != 0 {
		err = fmt.Errorf("wait status %#x", uint32(status))
	}
	if err != nil {
		return fmt.Errorf("%v: %w", argv, err)
	}
	return nil
}
