package experiment

import (
	"bytes"
	"context"
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
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// prefix begins the name of every cgroup and temporary directory of ours; the pid of the run follows.
const prefix = "waterline-exp-"

// Controllers that cgroups of ours have if that is wanted.
const (
	cpusetController = "cpuset"
	memoryController = "memory" // on v2 only
)

// ErrUnusable is in the chain of every error that says that this host cannot run experiments at all. Its text says what
// to do about it.
var ErrUnusable = errors.New("this host cannot run experiments")

// Check says whether experiments can run on this host: nil, or an error that says why not and what to do.
func Check(cgroupRoot string) error {
	box, err := openSandbox(Config{CgroupRoot: cgroupRoot}.root())
	if err != nil {
		return err
	}
	return box.remove()
}

// sandbox is a cgroup of our own in the CPU hierarchy, and on v1 its twins in the hierarchy that counts CPU time and, where
// CPU sets are wanted, in that of the cpuset controller. All directories given to its methods are relative to the mount, as
// those of a [cgroup.Layout] are.
type sandbox struct {
	mount   host.Mount
	acct    string   // mount point of the hierarchy that counts CPU time; that of mount where they are one
	cpusets bool     // they can be had in it
	name    string   // of our cgroup
	back    []string // cgroup.procs files that lead back to where this process came from
	enabled []string // controllers that we switched on below the root of cgroup v2

	controllers []string // that our cgroups have on v2
}

// openSandbox removes what runs that were killed left behind, and makes our cgroup, with more controllers than that of CPU time if
// that is wanted.
func openSandbox(cgroupRoot string, controllers ...string) (_ *sandbox, err error) {
	mount, err := host.FindMount(cgroupRoot)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; mount the cgroup file system, or say where it is with --cgroup-root", ErrUnusable, err)
	}
	if err := mayUse(os.Geteuid()); err != nil {
		return nil, err
	}
	cpusets := slices.Contains(controllers, cpusetController)
	if cpusets && mount.Cpusets == "" {
		return nil, fmt.Errorf("%w: there is no cpuset controller at %s; mount its hierarchy, or on cgroup v2 see whether the kernel has it", ErrUnusable, cgroupRoot)
	}
	b := &sandbox{mount: mount, acct: mount.Path, cpusets: cpusets, controllers: append([]string{"cpu"}, controllers...), name: prefix + strconv.Itoa(os.Getpid())}
	if mount.Version == cgroup.V1 {
		if b.acct, err = findAcct(cgroupRoot, mount.Path); err != nil {
			return nil, err
		}
	}
	for _, dir := range append(b.mounts(), mount.Cpusets) { // that of another experiment may have been killed
		if dir != "" {
			sweep(dir, removeTree)
		}
	}
	for _, dir := range tempParents() {
		sweep(dir, os.RemoveAll)
	}
	if err := b.mkdir(b.name); err != nil {
		hint := "run it on the host itself, not in a container"
		if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
			hint = "the cgroup file system is read-only here; run it on the host, or in a privileged container"
		}
		return nil, errors.Join(fmt.Errorf("%w: %w; %s", ErrUnusable, err, hint), b.remove())
	}
	return b, nil
}

// mayUse says whether a user may do what experiments do.
func mayUse(euid int) error {
	if euid != 0 {
		return fmt.Errorf("%w: they make cgroups and move their own processes into them, which user %d may not; run it with sudo", ErrUnusable, euid)
	}
	return nil
}

// findAcct finds the v1 hierarchy that counts CPU time: usually the CPU hierarchy itself, sometimes one of its own.
func findAcct(root, cpu string) (string, error) {
	for _, dir := range []string{cpu, filepath.Join(root, "cpuacct")} {
		if _, err := os.Stat(filepath.Join(dir, "cpuacct.usage")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%w: CPU time of cgroups is not counted, there is no cpuacct hierarchy at %s; mount it", ErrUnusable, root)
}

// mounts returns the mount point of each hierarchy that our cgroups are in, in the order in which they are made there: as
// runc does, with CPU sets first.
func (b *sandbox) mounts() []string {
	var all []string
	if b.cpusets {
		all = append(all, b.mount.Cpusets)
	}
	for _, mount := range []string{b.mount.Path, b.acct} {
		if !slices.Contains(all, mount) {
			all = append(all, mount)
		}
	}
	return all
}

// sweep removes what runs left behind that no longer live. The kernel refuses to remove a cgroup with a process in it, so
// nothing can be lost that somebody uses.
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
// belongs in memory, as on a node: on a disk that others keep busy, 100 ms were seen for a write, and the agent does not
// change a weight before what stood there is on record.
func tempParents() []string {
	parents := []string{os.TempDir()}
	for _, dir := range []string{"/dev/shm", "/run"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC && unix.Access(dir, unix.W_OK) == nil {
			parents = append([]string{dir}, parents...)
		}
	}
	return parents
}

// mkdir makes a cgroup. On v2 its parent passes the controllers on from then on, so no process may be in the parent.
func (b *sandbox) mkdir(dir string) error {
	if b.mount.Version == cgroup.V2 {
		if err := b.passOn(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	for _, mount := range b.mounts() {
		if err := os.Mkdir(filepath.Join(mount, dir), 0o755); err != nil {
			return fmt.Errorf("making a cgroup: %w", err)
		}
		if b.mount.Version == cgroup.V1 && mount == b.mount.Cpusets {
			if err := inherit(filepath.Join(mount, dir)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inherit gives a v1 cgroup the CPUs and memory nodes of its parent, as runc does: without any, no process can enter it.
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
func (b *sandbox) passOn(dir string) error {
	file := filepath.Join(b.mount.Path, dir, "cgroup.subtree_control")
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading which controllers are passed on: %w", err)
	}
	for _, name := range b.controllers {
		if slices.Contains(strings.Fields(string(content)), name) {
			continue
		}
		if err := writeFile(file, "+"+name); err != nil {
			return fmt.Errorf("passing on the controller %s: %w", name, err)
		}
		if dir == "." {
			b.enabled = append(b.enabled, name)
		}
	}
	return nil
}

// remove takes away every cgroup of ours, once the last process in it is gone, and passes on no more controllers than
// before.
func (b *sandbox) remove() error {
	errs := []error{b.stepBack()}
	for _, mount := range b.mounts() {
		errs = append(errs, removeTree(filepath.Join(mount, b.name)))
	}
	for _, name := range b.enabled {
		if err := writeFile(filepath.Join(b.mount.Path, "cgroup.subtree_control"), "-"+name); err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, fmt.Errorf("passing on the controller %s no more: %w", name, err)) // EBUSY: somebody else uses it now
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup and all below it. A process that was killed stays in its cgroup until it has left the
// kernel, so this is tried for a while.
func removeTree(top string) error {
	const leaving = 3 * time.Second
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // it went away while we looked
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

// procs returns the files that a process has to write its pid to in order to be in a cgroup.
func (b *sandbox) procs(dir string) []string {
	var files []string
	for _, mount := range b.mounts() {
		files = append(files, filepath.Join(mount, dir, "cgroup.procs"))
	}
	return files
}

// population counts the processes in a cgroup.
func (b *sandbox) population(dir string) (int, error) {
	content, err := os.ReadFile(b.procs(dir)[0])
	if err != nil {
		return 0, fmt.Errorf("counting processes: %w", err)
	}
	return bytes.Count(content, []byte("\n")), nil
}

// file returns the path of the file with a knob of the CPU controller.
func (b *sandbox) file(dir string, k model.Knob) string {
	return filepath.Join(b.mount.Path, dir, cgroup.FileName(b.mount.Version, k))
}

// sharesFile returns the path of the file with the weight of a cgroup.
func (b *sandbox) sharesFile(dir string) string { return b.file(dir, model.Shares) }

// weight reads what a cgroup weighs, as the kernel counts it.
func (b *sandbox) weight(dir string) (cgroup.Raw, error) {
	content, err := os.ReadFile(b.sharesFile(dir))
	if err != nil {
		return cgroup.Raw{}, fmt.Errorf("reading a weight: %w", err)
	}
	raw, err := cgroup.Parse(b.mount.Version, model.Shares, content, cgroup.Raw{})
	if err != nil {
		return cgroup.Raw{}, fmt.Errorf("reading a weight in %s: %w", dir, err)
	}
	return raw, nil
}

// idle reports whether a cgroup runs only when nobody beside it wants to. Without cpu.idle (before Linux 5.15) none does.
func (b *sandbox) idle(dir string) bool {
	content, err := os.ReadFile(b.file(dir, model.Idle))
	if err != nil {
		return false
	}
	raw, err := cgroup.Parse(b.mount.Version, model.Idle, content, cgroup.Raw{})
	return err == nil && raw.Number != 0
}

// setWeight writes what a cgroup weighs, as the kernel counts it.
func (b *sandbox) setWeight(dir string, raw cgroup.Raw) error {
	text := cgroup.Append(nil, b.mount.Version, model.Shares, raw)
	if err := writeFile(b.sharesFile(dir), string(text)); err != nil {
		return fmt.Errorf("writing a weight: %w", err)
	}
	return nil
}

// usageFile returns the path of the file that tells how much CPU time a cgroup has used.
func (b *sandbox) usageFile(dir string) string {
	name := "cpuacct.usage"
	if b.mount.Version == cgroup.V2 {
		name = "cpu.stat"
	}
	return filepath.Join(b.acct, dir, name)
}

// usage reads how much CPU time the processes in a cgroup have used so far.
func (b *sandbox) usage(dir string) (time.Duration, error) {
	content, err := os.ReadFile(b.usageFile(dir))
	if err != nil {
		return 0, fmt.Errorf("reading used CPU time: %w", err)
	}
	return parseUsage(content)
}

// parseUsage reads cpuacct.usage, or cpu.stat of cgroup v2, of which it needs the first line.
func parseUsage(content []byte) (time.Duration, error) {
	number, unit := content, time.Nanosecond
	if line, found := bytes.CutPrefix(content, []byte("usage_usec ")); found {
		number, unit = line, time.Microsecond
	}
	number, _, _ = bytes.Cut(number, []byte("\n"))
	n, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading used CPU time: %w", err)
	}
	return time.Duration(n) * unit, nil
}

// throttle reads how often its quota has stopped a cgroup so far.
func (b *sandbox) throttle(dir string) (cgroup.CPUStat, error) {
	content, err := os.ReadFile(filepath.Join(b.mount.Path, dir, "cpu.stat"))
	if err != nil {
		return cgroup.CPUStat{}, fmt.Errorf("reading how often a quota has stopped its group: %w", err)
	}
	return cgroup.ParseCPUStat(b.mount.Version, content)
}

// setQuota writes the CFS quota of a cgroup, in microseconds.
func (b *sandbox) setQuota(dir string, micros int64) error {
	file := filepath.Join(b.mount.Path, dir, cgroup.FileName(b.mount.Version, model.Quota))
	if err := writeFile(file, string(cgroup.Append(nil, b.mount.Version, model.Quota, cgroup.Raw{Number: micros}))); err != nil {
		return fmt.Errorf("writing a quota: %w", err)
	}
	return nil
}

// writeFile writes to a file that exists. Unlike os.WriteFile it neither creates nor truncates.
func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Sleep waits, unless the context ends first; then its error is the context's cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
