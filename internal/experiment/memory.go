package experiment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// Experiment memory needs cgroup v2 and two files on a disk, and has options of its own.
const (
	MemoryName  = "memory"
	MemoryAbout = "A server that lives on its page cache beside batch that reads and grows: what is taken from it, and what it still serves, with and without protect.memory."
	// MemorySeconds is how long each mode is measured by default.
	MemorySeconds = 30
	// MemoryServed and MemoryStreamed are how much the server and batch read of their files, in bytes.
	MemoryServed   = 96 << 20
	MemoryStreamed = 96 << 20
)

// What the node has, and who asks for how much of it, in bytes. What batch was sold is there while the server does nothing; it wants
// still more.
const (
	memoryNode    = 240 << 20
	memoryRoomy   = 400 << 20 // where nobody is short of any
	memoryRequest = 108 << 20
	memorySold    = 174 << 20
	memoryTaken   = 80 << 20 // by batch, at once
	memoryWanted  = 192 << 20
)

// memoryPolicy is a policy under which nothing but memory is looked after, or not even that.
const memoryPolicy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: memory}
spec:
  mode: Enforce
  cpu: {suppression: None}
  memory: {waterline: 80%%}
  protect: {burst: false, memory: %v}
`

// MemoryConfig says how experiment memory runs. Of the zero value everything is the default.
type MemoryConfig struct {
	Config
	Dir   string   // on a disk, for two files; "": that for temporary files
	Disks []string // two disks or files to read instead, first the server's; nothing is written to them
}

// Memory asks a server for random pieces of a file as fast as it answers: alone, beside batch on a node that has memory for both, and on
// one that has not under an agent that protects no memory, and under one that does. The node is a cgroup that may have so much. What it
// measures is in [MemoryFound.Result].
func Memory(ctx context.Context, cfg MemoryConfig) (_ Result, err error) {
	if mount, err := host.FindMount(cfg.root()); err == nil && mount.Version == cgroup.V1 {
		return Result{}, fmt.Errorf("%w: here is cgroup v1, which protects no memory; it needs a machine with cgroup v2 alone (kernel parameter systemd.unified_cgroup_hierarchy=1) or a virtual one, for which docs/design/memory.md has the command", ErrUnusable)
	}
	files, clean, err := cfg.files()
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, clean()) }()
	found := MemoryFound{When: time.Now().UTC().Truncate(time.Second), Machine: DescribeMachine(cgroup.V2), Seconds: cfg.seconds(MemorySeconds)}
	for i, m := range memoryModes() {
		if found.runs[i], err = cfg.run(ctx, m, files); err != nil {
			return Result{}, fmt.Errorf("mode %s: %w", m.name, err)
		}
	}
	return found.Result(), nil
}

// modeRoomy is what batch costs the server in CPU alone.
const modeRoomy = "roomy"

// memoryMode is who runs, where, and under what.
type memoryMode struct {
	name     string
	node     int64 // bytes that it has
	batch    bool
	protects bool
}

func memoryModes() [4]memoryMode {
	return [4]memoryMode{
		{name: modeAlone, node: memoryNode}, {name: modeRoomy, node: memoryRoomy, batch: true},
		{name: modePlain, node: memoryNode, batch: true}, {name: modeWaterline, node: memoryNode, batch: true, protects: true},
	}
}

// files returns what the server and batch read, and what takes it away again.
func (c *MemoryConfig) files() (files [2]string, clean func() error, err error) {
	var made []*os.File
	clean = func() error {
		var errs []error
		for _, f := range made {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	if len(c.Disks) == len(files) {
		return [2]string(c.Disks), clean, nil
	}
	dir := cmp.Or(c.Dir, os.TempDir())
	if host.InMemory(dir) {
		return files, clean, fmt.Errorf("%w: %s is in memory, so no page of a file in it can be taken; name a directory on a disk with --dir, or disks with --disk", ErrUnusable, dir)
	}
	for i, size := range []int64{MemoryServed, MemoryStreamed} {
		f, err := fill(dir, size)
		if err != nil {
			return files, clean, errors.Join(err, clean())
		}
		made = append(made, f)
		files[i] = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	}
	return files, clean, nil
}

// fill makes a file that is on its disk when this returns, and has no name any more, so that it goes with us however we end.
func fill(dir string, size int64) (_ *os.File, err error) {
	f, err := os.CreateTemp(dir, "waterline-memory-")
	if err != nil {
		return nil, fmt.Errorf("making a file to read: %w", err)
	}
	err = os.Remove(f.Name())
	for text := bytes.Repeat([]byte("waterline experiment memory     "), chunk/32); err == nil && size > 0; size -= chunk {
		_, err = f.Write(text[:min(size, chunk)])
	}
	if err = errors.Join(err, f.Sync()); err != nil {
		return nil, errors.Join(fmt.Errorf("making a file to read: %w", err), f.Close())
	}
	return f, nil
}

// forget has the kernel keep nothing of a file in memory, so that whoever reads it next is who has it.
func forget(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("opening a file to read: %w", err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("having the kernel forget %s: %w", file, err)
	}
	return nil
}

// run measures one mode, in a sandbox of its own.
func (c *MemoryConfig) run(ctx context.Context, m memoryMode, files [2]string) (run memoryRun, err error) {
	for _, file := range files {
		if err := forget(file); err != nil {
			return run, err
		}
	}
	l, err := newLab(MemoryName, c.Config, memoryController)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	s := &squeeze{lab: l, mode: m, files: files}
	s.online, s.batch = memoryPods(m.protects)
	if err := s.begin(ctx); err != nil {
		return run, err
	}
	return s.measure(ctx, c.seconds(MemorySeconds))
}

// memoryPods are the server and batch. The server is Burstable, batch BestEffort, and by that the kubelet says whom the kernel kills
// first if it must; with protect.memory, what the agent says when a container is made.
func memoryPods(protects bool) (online, batch *pod) {
	online = &pod{name: "online", qos: model.Burstable, requestMilli: 500, memory: memoryRequest, oomScore: 1000 - 1000*memoryRequest/memoryNode}
	batch = &pod{name: "batch", qos: model.BestEffort, batchMilli: 500, memory: memorySold, oomScore: 1000}
	if protects {
		online.oomScore /= 2
	}
	return online, batch
}

// squeeze is one mode of experiment memory as it runs.
type squeeze struct {
	*lab
	mode          memoryMode
	files         [2]string
	online, batch *pod
	server, hog   revived
}

// begin starts the agent and the server, and waits until the server has its file in memory and the agent has done what there is to do.
func (s *squeeze) begin(ctx context.Context) error {
	root := s.kubelet.layout.Root
	if err := s.box.setMemory(root, s.mode.node); err != nil {
		return err
	}
	proc, err := s.proc()
	if err != nil {
		return err
	}
	if err := s.create(ctx, s.online, s.batch); err != nil {
		return err
	}
	s.tell(Progress{Doing: "mode " + s.mode.name + ", starting"})
	agent := agentPod()
	agent.oomScore = -997 // as a node-critical pod
	if err := s.startGoverned(ctx, agent, fmt.Sprintf(memoryPolicy, s.mode.protects), "--proc-root", proc); err != nil {
		return err
	}
	s.pods = append(s.pods, agent, s.online, s.batch)
	s.server = revived{start: s.loader(s.online, "answer", s.files[0], MemoryServed, "answered=", "waited=")}
	if err := s.server.begin(); err != nil {
		return err
	}
	if err := s.poll(ctx, "for the server to have its file in memory", func() (bool, error) { return s.server.count(0) > 0, s.server.now.ended() }); err != nil {
		return err
	}
	return s.agreed(ctx)
}

// agreed waits until batch has what it was sold, and the server's memory is protected if it shall be, also in the groups above.
func (s *squeeze) agreed(ctx context.Context) error {
	want := map[string]int64{filepath.Join(s.kubelet.dir(s.batch), "memory.max"): memorySold}
	if s.mode.protects {
		want[filepath.Join(s.kubelet.dir(s.online), "memory.low")] = memoryRequest
		want[filepath.Join(s.kubelet.layout.Root, "memory.low")] = MemoryServed
	}
	err := s.poll(ctx, "for the agent to write what there is to write", func() (bool, error) {
		for file, least := range want {
			if is, err := s.box.bytes(filepath.Dir(file), filepath.Base(file)); err != nil || is < least || is == model.Unlimited {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%w; the agent's log: %s", err, s.log())
	}
	return nil
}

// proc makes what the agent takes for procfs, and returns where: the machine is as large as its sandbox, and nobody uses any of it who is
// not in a pod.
func (s *squeeze) proc() (string, error) {
	dir := filepath.Join(s.dir, "proc")
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return "", fmt.Errorf("reading what the machine has: %w", err)
	}
	meminfo := fmt.Sprintf("MemTotal: %[1]d kB\nMemFree: %[1]d kB\nActive(file): 0 kB\nInactive(file): 0 kB\nAnonPages: 0 kB\n", s.mode.node>>10)
	err = os.Mkdir(dir, 0o700)
	for name, text := range map[string]string{"meminfo": meminfo, "stat": string(stat), "zoneinfo": "        low      0\n"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, name := range []string{"self", "sys", "pressure"} {
		err = errors.Join(err, os.Symlink("/proc/"+name, filepath.Join(dir, name)))
	}
	if err != nil {
		return "", fmt.Errorf("making a small machine for the agent: %w", err)
	}
	return dir, nil
}

// loader returns what starts the load of a pod, of which nobody is surprised when it is killed.
func (s *squeeze) loader(p *pod, helper, file string, size int64, keys ...string) func() (*process, []*counter, error) {
	return func() (*process, []*counter, error) {
		var done []*counter
		var all []io.Writer
		for _, key := range keys {
			c := &counter{key: key}
			done, all = append(done, c), append(all, c)
		}
		started, err := s.startIn(loadOf(p), s.kubelet.containerDir(p), io.MultiWriter(all...), helper, "--oom-score", fmt.Sprint(p.oomScore),
			"--file", file, "--bytes", fmt.Sprint(size))
		s.procs = slices.DeleteFunc(s.procs, func(p *process) bool { return p == started })
		return started, done, err
	}
}

// measure starts batch, if there is any, and sees for some seconds what becomes of both.
func (s *squeeze) measure(ctx context.Context, seconds int) (run memoryRun, err error) {
	run.mode = s.mode.name
	defer func() { err = errors.Join(err, s.server.end(), s.hog.end()) }()
	before, err := s.look()
	if err != nil {
		return run, err
	}
	if s.mode.batch {
		s.hog = revived{start: s.loader(s.batch, "hog", s.files[1], MemoryStreamed, "done=")}
		if err := s.hog.begin(); err != nil {
			return run, err
		}
	}
	var failed error
	run.window, err = s.lab.measure(ctx, "mode "+s.mode.name, seconds, func(window) string {
		if failed == nil {
			var now pinch
			now, failed = s.look()
			run.seconds = append(run.seconds, now.since(before))
			failed = errors.Join(failed, s.server.revive(), s.hog.revive())
		}
		return fmt.Sprintf("%.0f requests answered", s.server.count(0))
	})
	if err = errors.Join(err, failed); err != nil {
		return run, fmt.Errorf("%w; the agent's log: %s", err, s.log())
	}
	after, err := s.look()
	if err != nil {
		return run, err
	}
	run.pinch = after.since(before)
	return run, nil
}

// look tells how much was done so far, and what it took.
func (s *squeeze) look() (p pinch, err error) {
	p.answered, p.waited, p.worked = s.server.count(0), s.server.count(1), s.hog.count(0)
	if p.online, err = s.box.strain(s.kubelet.dir(s.online)); err != nil {
		return p, err
	}
	if p.batch, err = s.box.strain(s.kubelet.dir(s.batch)); err != nil {
		return p, err
	}
	if p.used, err = s.box.bytes(s.kubelet.dir(s.batch), "memory.current"); err != nil {
		return p, err
	}
	p.reclaimed, err = reclaimed(filepath.Join(s.dir, "run"))
	return p, err
}

// revived is a process that is started again within a second of being killed, as the kubelet would do some time later.
type revived struct {
	start func() (*process, []*counter, error)
	now   *process
	done  [][]*counter // of each life
}

func (r *revived) begin() error {
	now, done, err := r.start()
	if err != nil {
		return err
	}
	r.now, r.done = now, append(r.done, done)
	return nil
}

// count is how much was done in all lives, by one of its counters.
func (r *revived) count(which int) (sum float64) {
	for _, life := range r.done {
		sum += life[which].count()
	}
	return sum
}

func (r *revived) killed() bool {
	select {
	case <-r.now.done:
		status, _ := r.now.cmd.ProcessState.Sys().(syscall.WaitStatus)
		return status.Signaled()
	default:
		return false
	}
}

// revive starts the process anew if it was killed. One that ended by itself is an error.
func (r *revived) revive() error {
	if r.now == nil {
		return nil
	}
	if r.killed() {
		return r.begin()
	}
	return r.now.ended()
}

func (r *revived) end() error {
	if r.now == nil {
		return nil
	}
	return r.now.kill()
}
