package experiment

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

// outside returns the cgroup beside kubepods in which this process, and all that is not load, is while it measures.
func (b *sandbox) outside() string { return b.name + "/outside" }

// stepAside moves this process beside kubepods, where it comes before everything else when it wants to run: who measures,
// and who starts load, has to be on time, or the figures are its own. It uses next to nothing. Where it cannot tell how to
// get back later, it stays where it is.
func (b *sandbox) stepAside() error {
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("finding our own cgroup: %w", err)
	}
	var back []string
	for _, mount := range b.mounts() {
		dir, ok := ownCgroup(string(content), b.controller(mount))
		file := filepath.Join(mount, dir, "cgroup.procs")
		if ok = ok && unix.Access(file, unix.W_OK) == nil; !ok {
			return nil
		}
		back = append(back, file)
	}
	if err := b.mkdir(b.outside()); err != nil {
		return err
	}
	if err := b.setWeight(b.outside(), cgroup.ToRaw(b.mount.Version, model.Shares, model.Number(model.MaxShares))); err != nil {
		return err
	}
	b.back = back
	for _, file := range b.procs(b.outside()) {
		if err := writeFile(file, "0"); err != nil {
			return fmt.Errorf("moving beside the pods: %w", err)
		}
	}
	return nil
}

// stepBack moves this process to where it came from.
func (b *sandbox) stepBack() error {
	var errs []error
	for _, file := range b.back {
		if err := writeFile(file, "0"); err != nil {
			errs = append(errs, fmt.Errorf("moving back to where we came from: %w", err))
		}
	}
	b.back = nil
	return errors.Join(errs...)
}

// controller returns what the hierarchy mounted there is known by in /proc/self/cgroup.
func (b *sandbox) controller(mount string) string {
	switch {
	case b.mount.Version == cgroup.V2:
		return ""
	case mount == b.mount.Path:
		return "cpu"
	case mount == b.mount.Cpusets:
		return "cpuset"
	}
	return "cpuacct"
}

// ownCgroup finds the cgroup of a process in its /proc/PID/cgroup, whose lines are like 4:cpu,cpuacct:/user.slice on v1 and
// 0::/user.slice on v2. One outside of what this process can see begins with /.. there, and is no help.
func ownCgroup(content, controller string) (dir string, ok bool) {
	for line := range strings.Lines(content) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			return parts[2], !strings.HasPrefix(parts[2], "/..")
		}
	}
	return "", false
}
