package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sweep removes what namespaces leave behind: the cgroups below [CgroupRoot] in every hierarchy, and those of the empty
// directories under fixed names that were not there before. It waits a while for processes that are just ending.
func sweep(p paths) error {
	// The veth pair goes with its namespace, but that is taken apart some time after its last process.
	if _, err := net.InterfaceByName(p.veth); err == nil {
		_ = exec.Command("ip", "link", "delete", p.veth).Run() // gone meanwhile
	}
	if !p.nodes {
		return nil
	}
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(15 * time.Second)
	for _, mount := range mounts {
		for {
			err := removeGroups(filepath.Join(mount, CgroupRoot))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("removing the cluster's cgroups: %w", err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	if err := os.RemoveAll(p.runWaterline()); err != nil {
		return fmt.Errorf("removing the agent's files: %w", err)
	}
	made, err := os.ReadFile(p.in("made"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading which directories were made: %w", err)
	}
	dirs := strings.Fields(string(made))
	for i := len(dirs) - 1; i >= 0; i-- {
		_ = os.Remove(dirs[i]) // not empty: somebody else uses it now
	}
	return nil
}

// makeDirs makes the directories that are to be covered inside, and records which were not there.
func makeDirs(p paths) error {
	var made []string
	for _, dir := range privateDirs {
		for missing := dir; ; missing = filepath.Dir(missing) {
			if _, err := os.Stat(missing); err == nil {
				break
			}
			made = append([]string{missing}, made...)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a place to mount: %w", err)
		}
	}
	return writeFile(p.in("made"), strings.Join(made, "\n"), 0o644)
}

// cgroupMounts returns where the cgroup hierarchies of this machine are mounted.
func cgroupMounts() ([]string, error) {
	const root = "/sys/fs/cgroup"
	if isCgroup(root) {
		return []string{root}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("listing the cgroup hierarchies: %w", err)
	}
	var mounts []string
	for _, e := range entries {
		if path := filepath.Join(root, e.Name()); e.IsDir() && isCgroup(path) {
			mounts = append(mounts, path)
		}
	}
	return mounts, nil
}

func isCgroup(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC)
}

// makeGroups makes the kubelet's cgroup root, which must be there before it starts.
func makeGroups() error {
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		dir := filepath.Join(mount, CgroupRoot)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making the cgroup root: %w", err)
		}
		// A v1 cpuset is born empty and takes no process then.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(mount, file))
			if err != nil {
				continue // another controller's
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
				return fmt.Errorf("making the cgroup root: %w", err)
			}
		}
	}
	return nil
}

// removeGroups removes a cgroup and all below it.
func removeGroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
