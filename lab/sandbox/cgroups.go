package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// prefix begins the name of every cgroup and temporary directory of a sandbox; the pid of the run follows.
const prefix = "waterline-exp-"

// cgroups is the tree of one sandbox: a cgroup in the CPU hierarchy and what is below it. On v1 it has twins in the
// hierarchy that counts CPU time and, if CPU sets are wanted, in that of the cpuset controller. All directories that
// its methods take are relative to the mount, as those of a [cgroup.Layout] are.
type cgroups struct {
	mount   host.Mount
	acct    string   // mount point of the hierarchy that counts CPU time
	cpusets bool     // the tree is also in the cpuset hierarchy
	name    string   // of its top cgroup
	back    []string // cgroup.procs files of the cgroups that this process came from
	enabled []string // controllers that were switched on below the root of cgroup v2

	controllers []string // that its cgroups have on v2
}

// openCgroups removes what killed runs left behind, and makes the top cgroup.
func openCgroups(cgroupRoot string, controllers ...string) (_ cgroups, err error) {
	mount, err := host.FindMount(cgroupRoot)
	if err != nil {
		return cgroups{}, fmt.Errorf("%w: %w; mount the cgroup file system, or say where it is with --cgroup-root",
			ErrUnusable, err)
	}
	if err := checkUser(os.Geteuid()); err != nil {
		return cgroups{}, err
	}
	cpusets := slices.Contains(controllers, Cpuset)
	if cpusets && mount.Cpusets == "" {
		return cgroups{}, fmt.Errorf("%w: there is no cpuset controller at %s; mount its hierarchy, or on cgroup v2 "+
			"see whether the kernel has it", ErrUnusable, cgroupRoot)
	}
	acct, err := findAcct(mount)
	if err != nil {
		return cgroups{}, err
	}
	c := cgroups{
		mount: mount, acct: acct, cpusets: cpusets, controllers: append([]string{"cpu"}, controllers...),
		name: prefix + strconv.Itoa(os.Getpid()),
	}
	for _, dir := range append(c.mounts(), mount.Cpusets) { // a killed run may have had CPU sets
		if dir != "" {
			sweep(dir, removeTree)
		}
	}
	for _, dir := range tempParents() {
		sweep(dir, os.RemoveAll)
	}
	if err := c.mkdir(c.name); err != nil {
		hint := "run it on the host itself, not in a container"
		if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
			hint = "the cgroup file system is read-only here; run it on the host, or in a privileged container"
		}
		return cgroups{}, errors.Join(fmt.Errorf("%w: %w; %s", ErrUnusable, err, hint), c.remove())
	}
	return c, nil
}

// checkUser returns an error if a user may not do what experiments do.
func checkUser(euid int) error {
	if euid != 0 {
		return fmt.Errorf("%w: they make cgroups and move processes into them, which user %d may not; run it with sudo",
			ErrUnusable, euid)
	}
	return nil
}

// findAcct returns the hierarchy that counts CPU time. On v1 that is usually the CPU hierarchy itself, sometimes
// another.
func findAcct(mount host.Mount) (string, error) {
	if mount.Version == cgroup.V2 {
		return mount.Path, nil
	}
	if _, err := os.Stat(filepath.Join(mount.Path, "cpuacct.usage")); err == nil {
		return mount.Path, nil
	}
	if mount.Cpuacct == "" {
		return "", fmt.Errorf("%w: the CPU time of cgroups is not counted, there is no cpuacct hierarchy beside %s; mount it",
			ErrUnusable, mount.Path)
	}
	return mount.Cpuacct, nil
}

// mounts returns the mount point of each hierarchy that the tree is in, in the order in which runc makes cgroups there:
// CPU sets first.
func (c *cgroups) mounts() []string {
	var all []string
	if c.cpusets {
		all = append(all, c.mount.Cpusets)
	}
	for _, mount := range []string{c.mount.Path, c.acct} {
		if !slices.Contains(all, mount) {
			all = append(all, mount)
		}
	}
	return all
}

// sweep removes the directories of runs that have ended. The kernel refuses to remove a cgroup with a process in it, so
// nothing that is in use is lost.
func sweep(parent string, remove func(string) error) {
	found, _ := filepath.Glob(filepath.Join(parent, prefix+"*")) // the pattern is well-formed
	for _, dir := range found {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), prefix))
		if err != nil || pid <= 0 || pid != os.Getpid() && !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		_ = remove(dir) // the next run tries again
	}
}

// tempParents lists where temporary directories may be made, best first. The agent keeps its undo record in one, which
// belongs in memory, as on a node. On a busy disk a write was seen to take 100 ms, and the agent changes no weight
// before the old value is on record.
func tempParents() []string {
	parents := []string{os.TempDir()}
	for _, dir := range []string{"/dev/shm", "/run"} {
		if host.InMemory(dir) && unix.Access(dir, unix.W_OK) == nil {
			parents = append([]string{dir}, parents...)
		}
	}
	return parents
}

// mkdir makes a cgroup. On v2 its parent passes the controllers on from then on, so no process may be in the parent.
func (c *cgroups) mkdir(dir string) error {
	if c.mount.Version == cgroup.V2 {
		if err := c.passOn(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	for _, mount := range c.mounts() {
		if err := os.Mkdir(filepath.Join(mount, dir), 0o755); err != nil {
			return fmt.Errorf("making a cgroup: %w", err)
		}
		if c.mount.Version == cgroup.V1 && mount == c.mount.Cpusets {
			if err := inherit(filepath.Join(mount, dir)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inherit gives a v1 cgroup the CPUs and memory nodes of its parent, as runc does: without any, no process can enter
// it.
func inherit(dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		list, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err == nil {
			err = writeFile(filepath.Join(dir, name), string(list))
		}
		if err != nil {
			return fmt.Errorf("giving a cgroup the CPUs of its parent: %w", err)
		}
	}
	return nil
}

// passOn makes a v2 cgroup give its children the controllers.
func (c *cgroups) passOn(dir string) error {
	file := filepath.Join(c.mount.Path, dir, "cgroup.subtree_control")
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading which controllers are passed on: %w", err)
	}
	for _, name := range c.controllers {
		if slices.Contains(strings.Fields(string(content)), name) {
			continue
		}
		if err := writeFile(file, "+"+name); err != nil {
			return fmt.Errorf("passing on the controller %s: %w", name, err)
		}
		if dir == "." {
			c.enabled = append(c.enabled, name)
		}
	}
	return nil
}

// remove removes the tree, once the last process in it is gone, and restores which controllers the root passes on.
func (c *cgroups) remove() error {
	errs := []error{c.stepBack()}
	for _, mount := range c.mounts() {
		errs = append(errs, removeTree(filepath.Join(mount, c.name)))
	}
	for _, name := range c.enabled {
		err := writeFile(filepath.Join(c.mount.Path, "cgroup.subtree_control"), "-"+name)
		if err != nil && !errors.Is(err, unix.EBUSY) { // EBUSY: another cgroup uses it now
			errs = append(errs, fmt.Errorf("passing on the controller %s no more: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup and all below it. A killed process stays in its cgroup until it has left the kernel, so
// this is tried for a while.
func removeTree(top string) error {
	const leaving = 3 * time.Second
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // it disappeared meanwhile
	})
	giveUp := time.Now().Add(leaving)
	for _, dir := range slices.Backward(dirs) {
		for {
			rmErr := unix.Rmdir(dir)
			if rmErr == nil || errors.Is(rmErr, unix.ENOENT) {
				break
			}
			if !errors.Is(rmErr, unix.EBUSY) || time.Now().After(giveUp) {
				return errors.Join(err, fmt.Errorf("removing the cgroup %s: %w", dir, rmErr))
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return err
}

// find returns the highest cgroup that has an id in its name. With the systemd driver the name has underscores for
// dashes.
func (c *cgroups) find(id string) (string, error) {
	var found string
	err := filepath.WalkDir(c.mount.Path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it disappeared meanwhile
		}
		if !strings.Contains(strings.ReplaceAll(d.Name(), "_", "-"), id) {
			return nil
		}
		found, err = filepath.Rel(c.mount.Path, path)
		if err != nil {
			return err
		}
		return fs.SkipAll
	})
	if err == nil && found == "" {
		err = fmt.Errorf("no cgroup below %s has %s in its name", c.mount.Path, id)
	}
	return found, err
}
