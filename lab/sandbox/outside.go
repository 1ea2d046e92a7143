package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// stepOutside moves this process into a cgroup beside kubepods with the greatest weight. The process that measures and
// starts load must be on time, or the figures are its own; it uses next to nothing. It stays where it is if it could
// not get back.
func (c *cgroups) stepOutside() error {
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("finding our own cgroup: %w", err)
	}
	var back []string
	for _, mount := range c.mounts() {
		dir, ok := ownCgroup(string(content), c.controllerOf(mount))
		file := filepath.Join(mount, dir, "cgroup.procs")
		if ok = ok && unix.Access(file, unix.W_OK) == nil; !ok {
			return nil
		}
		back = append(back, file)
	}
	outside := c.name + "/outside"
	if err := c.mkdir(outside); err != nil {
		return err
	}
	if err := c.SetShares(outside, model.MaxShares); err != nil {
		return err
	}
	c.back = back
	for _, file := range c.procsFiles(outside) {
		if err := writeFile(file, "0"); err != nil {
			return fmt.Errorf("moving beside the pods: %w", err)
		}
	}
	return nil
}

// stepBack moves this process to where it came from.
func (c *cgroups) stepBack() error {
	var errs []error
	for _, file := range c.back {
		if err := writeFile(file, "0"); err != nil {
			errs = append(errs, fmt.Errorf("moving back to the former cgroup: %w", err))
		}
	}
	c.back = nil
	return errors.Join(errs...)
}

// OutsideGroup makes a cgroup outside of kubepods for processes that must be on time however busy the pods are, and
// returns it. Where the kernel divides real-time CPU time among cgroups, as some do on v1, a cgroup has none unless it
// is given.
func (c *cgroups) OutsideGroup(name string) (string, error) {
	dir := c.name + "/" + name
	if err := c.mkdir(dir); err != nil {
		return "", err
	}
	for _, group := range []string{c.name, dir} {
		file := c.File(group, "cpu.rt_runtime_us")
		if _, err := os.Stat(file); err == nil {
			// Other cgroups may have all of it. Then weight and nice must do, and the result says so.
			_ = writeFile(file, "400000")
		}
	}
	return dir, c.SetShares(dir, model.MaxShares)
}

// controllerOf returns the name of a hierarchy in /proc/self/cgroup.
func (c *cgroups) controllerOf(mount string) string {
	switch {
	case c.mount.Version == cgroup.V2:
		return ""
	case mount == c.mount.Path:
		return "cpu"
	case mount == c.mount.Cpusets:
		return "cpuset"
	}
	return "cpuacct"
}

// ownCgroup finds the cgroup of a process in its /proc/PID/cgroup, whose lines are like 4:cpu,cpuacct:/user.slice on v1
// and 0::/user.slice on v2. A cgroup outside of the process's namespace begins with /.. there, and cannot be used.
func ownCgroup(content, controller string) (dir string, ok bool) {
	for line := range strings.Lines(content) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			return parts[2], !strings.HasPrefix(parts[2], "/..")
		}
	}
	return "", false
}
