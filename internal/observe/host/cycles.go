package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
)

// ErrNoCycles means that this node does not count CPU cycles for the agent, and will not later.
var ErrNoCycles = errors.New("CPU cycles are not counted on this node")

// noCycles are the errors of perf_event_open(2) by which a node has no such signal: no counters (virtual machines
// mostly have none: ENOENT), no permission, a seccomp profile, no perf events in the kernel, or too few files for a
// counter on each CPU.
var noCycles = []unix.Errno{
	unix.ENOENT, unix.EACCES, unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS, unix.EMFILE, unix.ENFILE,
}

// perf are the system calls of counters. Tests have others, which return what was recorded.
type perf interface {
	// dir opens the directory of a cgroup.
	dir(path string) (fd int, err error)
	// open opens a counter of a cgroup on a CPU; leader is the fd of the first counter of its group, or -1.
	open(event uint64, cgroup, cpu, leader int) (fd int, err error)
	read(fd int, buf []byte) (int, error)
	close(fd int)
}

// Cycles counts the CPU cycles and instructions of pods with the CPU's own counters. A counted pod costs two files for
// each CPU, and work at each context switch from or to the pod. It is not safe for concurrent use.
type Cycles struct {
	clock func(id int32) time.Duration
	calls perf
	root  string // mount point of the hierarchy of perf events; "": there is none
	none  bool   // this node counts nothing
	cpus  model.CPUSet
	pods  []countedPod // ordered by UID
}

// countedPod is a pod whose cycles are counted.
type countedPod struct {
	sum      model.PodCycles
	counters []counter // one for each CPU; none: they could not be opened
}

// counter counts the cycles and instructions of a pod on one CPU.
type counter struct {
	leader, member int // files
	last           CycleCounts
}

// NewCycles returns a counter of pods.
func NewCycles(m Mount) *Cycles { return &Cycles{clock: sinceBoot, calls: kernelPerf{}, root: m.Perf} }

// Close closes all files.
func (c *Cycles) Close() {
	for i := range c.pods {
		c.closePod(&c.pods[i])
	}
	c.pods = nil
}

// Sample counts the pods with these UIDs, which are ordered, on these CPUs. Groups are those of all pods. A pod without
// a cgroup keeps its sums and their time.
//
// The error is [ErrNoCycles] at the first call on a node that counts nothing. Later calls there do nothing.
func (c *Cycles) Sample(uids []string, groups map[string]model.PodGroup, cpus model.CPUSet) error {
	if c.none {
		return nil
	}
	if cpus != c.cpus { // a counter of a CPU that goes offline stops for ever
		for i := range c.pods {
			c.closePod(&c.pods[i])
		}
		c.cpus = cpus
	}
	c.follow(uids)
	now := c.clock(bootClock)
	var errs []error
	for i := range c.pods {
		p := &c.pods[i]
		err := c.sample(p, groups, now)
		if errors.Is(err, ErrNoCycles) {
			c.Close()
			c.none = true
			return err
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("counting the cycles of pod %s: %w", p.sum.UID, err))
		}
	}
	return errors.Join(errs...)
}

// Append appends what was counted of each pod, ordered by UID.
func (c *Cycles) Append(to []model.PodCycles) []model.PodCycles {
	for i := range c.pods {
		to = append(to, c.pods[i].sum)
	}
	return to
}

// follow sets the counted pods.
func (c *Cycles) follow(uids []string) {
	if slices.EqualFunc(c.pods, uids, func(p countedPod, uid string) bool { return p.sum.UID == uid }) {
		return
	}
	old := c.pods
	c.pods = make([]countedPod, 0, len(uids))
	for _, uid := range uids {
		p := countedPod{sum: model.PodCycles{UID: uid}}
		if i, found := slices.BinarySearchFunc(old, uid, func(p countedPod, uid string) int {
			return strings.Compare(p.sum.UID, uid)
		}); found {
			p, old[i].counters = old[i], nil
		}
		c.pods = append(c.pods, p)
	}
	for i := range old {
		c.closePod(&old[i])
	}
}

// sample reads the counters of a pod, or opens them.
func (c *Cycles) sample(p *countedPod, groups map[string]model.PodGroup, now time.Duration) error {
	group, exists := groups[p.sum.UID]
	if !exists {
		return nil
	}
	if len(p.counters) == 0 {
		if err := c.openPod(p, filepath.Join(c.root, group.Dir)); err != nil {
			return err
		}
	}
	var cycles, instructions int64
	for i := range p.counters {
		k := &p.counters[i]
		counts, err := c.readCounter(k.leader)
		if err != nil {
			c.closePod(p)
			return err
		}
		ran, executed := counts.Since(&k.last)
		cycles, instructions, k.last = cycles+ran, instructions+executed, counts
	}
	p.sum.At, p.sum.Cycles, p.sum.Instructions = now, p.sum.Cycles+cycles, p.sum.Instructions+instructions
	return nil
}

// openPod opens the counters of a pod on all CPUs. They begin at zero.
func (c *Cycles) openPod(p *countedPod, path string) error {
	if c.root == "" {
		return fmt.Errorf("%w: no cgroup hierarchy of perf events is mounted", ErrNoCycles)
	}
	dir, err := c.calls.dir(path)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer c.calls.close(dir)
	p.counters = make([]counter, 0, c.cpus.Len())
	for cpu := range c.cpus.All() {
		k := counter{leader: -1, member: -1}
		if k.leader, err = c.calls.open(unix.PERF_COUNT_HW_CPU_CYCLES, dir, cpu, -1); err == nil {
			if k.member, err = c.calls.open(unix.PERF_COUNT_HW_INSTRUCTIONS, dir, cpu, k.leader); err != nil {
				c.calls.close(k.leader)
			}
		}
		if err != nil {
			c.closePod(p)
			return refusal(fmt.Errorf("perf_event_open of %s on CPU %d: %w", path, cpu, err))
		}
		p.counters = append(p.counters, k)
	}
	return nil
}

// refusal wraps an error of perf_event_open that will not go away in [ErrNoCycles], with a hint.
func refusal(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) || !slices.Contains(noCycles, errno) {
		return err
	}
	hint := ""
	switch errno {
	case unix.ENOENT, unix.EOPNOTSUPP:
		hint = "; this machine has no counters"
	case unix.EACCES, unix.EPERM:
		hint = "; the agent needs CAP_PERFMON, or kernel.perf_event_paranoid=0 and a seccomp profile that allows it"
	case unix.EMFILE, unix.ENFILE:
		hint = "; each pod needs two files for each CPU, so raise the limit of open files"
	}
	return fmt.Errorf("%w: %w%s", ErrNoCycles, err, hint)
}

func (c *Cycles) closePod(p *countedPod) {
	for _, k := range p.counters {
		c.calls.close(k.member)
		c.calls.close(k.leader)
	}
	p.counters = nil
}

func (c *Cycles) readCounter(leader int) (CycleCounts, error) {
	var buf [countsSize + 8]byte
	n, err := c.calls.read(leader, buf[:])
	if err != nil {
		return CycleCounts{}, fmt.Errorf("reading a counter: %w", err)
	}
	return ParseCycleCounts(buf[:n])
}

// countsSize is the size of what the kernel returns for a group of two counters.
const countsSize = 5 * 8

// CycleCounts is what a group of two counters holds. Times are in nanoseconds.
type CycleCounts struct {
	Enabled      uint64 // how long the pod ran on this CPU since the counters were opened
	Running      uint64 // how long the counters counted in this time
	Cycles       uint64
	Instructions uint64
}

// ParseCycleCounts parses what read(2) returns for a group of two counters with the format PERF_FORMAT_GROUP,
// PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING.
func ParseCycleCounts(b []byte) (CycleCounts, error) {
	if len(b) != countsSize {
		return CycleCounts{}, fmt.Errorf("a group of two counters has %d bytes, not %d", len(b), countsSize)
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	if n := word(0); n != 2 {
		return CycleCounts{}, fmt.Errorf("a group of two counters has %d", n)
	}
	return CycleCounts{Enabled: word(1), Running: word(2), Cycles: word(3), Instructions: word(4)}, nil
}

// Since returns the cycles and instructions since another reading, scaled to the whole time if the counters counted for
// a part of it. Both are 0 if the counters did not count, or went backwards.
func (c *CycleCounts) Since(last *CycleCounts) (cycles, instructions int64) {
	enabled, running := c.Enabled-last.Enabled, c.Running-last.Running
	if c.Enabled < last.Enabled || c.Running <= last.Running || c.Cycles < last.Cycles ||
		c.Instructions < last.Instructions {
		return 0, 0
	}
	scale := max(float64(enabled)/float64(running), 1)
	times := func(n uint64) int64 {
		const most = 1 << 47 // sums over CPUs and seconds stay in bounds
		return int64(min(float64(n)*scale, most))
	}
	return times(c.Cycles - last.Cycles), times(c.Instructions - last.Instructions)
}

// kernelPerf are the system calls. They are ordinary ones, for Go's scheduler: the kernel answers a read when the
// counter's CPU has.
type kernelPerf struct{}

func (kernelPerf) dir(path string) (int, error) {
	return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func (kernelPerf) open(event uint64, cgroup, cpu, leader int) (int, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: event, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	return unix.PerfEventOpen(&attr, cgroup, cpu, leader, unix.PERF_FLAG_PID_CGROUP|unix.PERF_FLAG_FD_CLOEXEC)
}

func (kernelPerf) read(fd int, buf []byte) (int, error) { return unix.Read(fd, buf) }

func (kernelPerf) close(fd int) { _ = unix.Close(fd) }
