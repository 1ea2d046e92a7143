package host

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Sampling intervals, in measurements.
const (
	detailTicks    = 5  // memory and pressure of a pod without detail
	closedTicks    = 4  // everything of a pod whose files are not kept open; older values count less (rule slack)
	watermarkTicks = 60 // watermarks
)

// maxFiles is the most files that the meter keeps open, unless a quarter of RLIMIT_NOFILE is less. Each costs about
// 5 KiB of kernel memory. It suffices for 1000 pods on v2, with six files each, and for 1500 on v1, with four.
const maxFiles = 6100

// The clocks.
const (
	bootClock = unix.CLOCK_BOOTTIME  // advances while the machine is suspended
	monoClock = unix.CLOCK_MONOTONIC // stops while the machine is suspended
)

// Meter measures the resource use of the node, of the kubelet's QoS class directories and of the pods. It reads each
// counter once per interval, so the end of one interval is the start of the next. Nothing is missed, and a mean covers
// the whole time.
//
// It keeps the files that it reads open. A measurement allocates nothing if no pod was added or removed. If there are
// more files than it may keep open, it keeps those of the classes first, then those of pods with detail, in both cases
// of pods that use most CPU first. Files of the remaining pods are opened, read and closed once in four measurements.
//
// It is not safe for concurrent use.
type Meter struct {
	mount    Mount
	clock    func(id int32) time.Duration
	pageSize int
	limit    int // of files kept open
	reader   statReader

	tick  int64         // measurements so far
	begin int64         // first measurement after a suspension of the machine or after missed measurements
	boot  time.Duration // start of the last measurement
	ahead time.Duration // difference of the two clocks then: the total time of suspension

	node    nodeFiles
	cpu     idleReading
	stall   stallReading
	stalls  bool // the kernel supports pressure (PSI)
	classes [3]meteredGroup
	perPod  int // files of a pod
	pods    []meteredPod
	born    int64
	load    model.Load // Pods are in the order of pods
	errs    []error
}

// meteredPod is a pod that is measured.
type meteredPod struct {
	meteredGroup
	uid    string
	dir    string
	inode  uint64
	slot   int64 // which of the measurements are its own
	detail model.Detail
	keep   bool // its files are kept open
	inside []meteredContainer
}

// NewMeter measures the machine whose procfs is mounted at proc, such as [DefaultProc], and the pods of one
// kubelet.
func NewMeter(m Mount, l cgroup.Layout, proc string) *Meter {
	meter := &Meter{
		mount: m, clock: sinceBoot, pageSize: unix.Getpagesize(), limit: atMostOpen(maxFiles),
		reader: statReader{buf: make([]byte, 16<<10)}, node: newNodeFiles(proc),
		errs: make([]error, 0, 8),
	}
	for q := range meter.classes {
		meter.classes[q] = newMeteredGroup(m, l.Class(model.QoSClass(q)))
	}
	for _, f := range meter.classes[0].files {
		if f.path != "" {
			meter.perPod++
		}
	}
	return meter
}

// SinceBoot returns the time since the machine started, on the clock of [model.Load].
func SinceBoot() time.Duration { return sinceBoot(bootClock) }

// atMostOpen returns how many files may be kept open: so many, and at most a quarter of RLIMIT_NOFILE.
func atMostOpen(files int) int {
	var most unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &most) != nil {
		return files
	}
	return int(min(most.Cur/4, uint64(files)))
}

func sinceBoot(id int32) time.Duration {
	var now unix.Timespec
	if clockGettime(id, &now) != nil {
		return 0 // no kernel lacks these clocks
	}
	return time.Duration(now.Nano())
}

// Load returns the load of the last measurement, with the current time.
func (m *Meter) Load() *model.Load {
	m.load.Clock = m.clock(bootClock)
	return &m.load
}

// Close closes all files. A later measurement opens them again.
func (m *Meter) Close() {
	m.node.close(&m.reader)
	for q := range m.classes {
		m.classes[q].close(&m.reader)
	}
	for i := range m.pods {
		m.pods[i].closeAll(&m.reader)
	}
}

// Measure measures everything that is due, to be called once a second. The pods are those of [model.Tree]. The details
// say what is measured of single pods beyond CPU use in every measurement, and memory and pressure in every fifth. They
// are ordered by UID.
//
// The error joins what could not be read; that keeps its last values and their time. It is no error that a cgroup is
// gone or that this kernel does not know a thing.
//
// Less than 100 ms after the last measurement nothing is read. When the last one is more than 10 s ago, or the machine
// was suspended since, rates are known again after the next one.
func (m *Meter) Measure(pods map[string]model.PodGroup, details []model.Detail) (*model.Load, error) {
	m.follow(pods, details)
	if !m.begins() {
		return m.Load(), nil
	}
	m.errs = m.errs[:0]
	m.note(m.measureNodeCPU())
	// CPU times are read together, so that their times are close, and from the top down: on v2 each read flushes the
	// per-CPU counters of all groups below, so a read after that of the parent has little left to flush.
	for q := range m.classes {
		m.note(m.measureCPU(&m.classes[q], &m.load.Classes[q].CPU, true))
	}
	for i := range m.pods {
		p, usage := &m.pods[i], &m.load.Pods[i].CPU
		if p.keep || usage.At == 0 || m.turn(p, closedTicks) {
			m.note(m.measureCPU(&p.meteredGroup, usage, p.keep))
		}
	}
	m.measureInside(pods)
	m.note(m.measureNodeMemory())
	m.note(m.measureNodePressure())
	if m.tick%watermarkTicks == 1 {
		m.note(m.measureWatermark())
	}
	for q := range m.classes {
		m.note(m.measureMemory(&m.classes[q], &m.load.Classes[q].Memory, true))
		if m.stalls {
			m.note(m.measurePressure(&m.classes[q], &m.load.Classes[q].Pressure, true))
		}
	}
	for i := range m.pods {
		p, usage := &m.pods[i], &m.load.Pods[i]
		every := int64(detailTicks)
		switch {
		case !p.keep:
			every = closedTicks
		case p.detail.Seconds:
			every = 1
		}
		turn := m.turn(p, every)
		if turn || usage.Memory.At == 0 {
			m.note(m.measureMemory(&p.meteredGroup, &usage.Memory, p.keep))
		}
		if m.stalls && (turn || usage.Pressure.At == 0) {
			m.note(m.measurePressure(&p.meteredGroup, &usage.Pressure, p.keep))
		}
	}
	return m.Load(), errors.Join(m.errs...)
}

// begins starts a measurement, unless the last one is too recent.
func (m *Meter) begins() bool {
	boot, mono := m.clock(bootClock), m.clock(monoClock)
	elapsed, ahead := boot-m.boot, boot-mono
	if m.tick > 0 && 0 <= elapsed && elapsed < minInterval {
		return false
	}
	m.tick++
	// A pause of this process between the readings of the two clocks looks like a suspension too; values then stay
	// unchanged for one measurement.
	if parted := ahead - m.ahead; elapsed < 0 || elapsed > maxInterval || parted > clockJump || parted < -clockJump {
		m.begin = m.tick
		for q := range m.classes {
			m.classes[q].begin = m.tick
		}
		for i := range m.pods {
			m.pods[i].begin = m.tick
			for j := range m.pods[i].inside {
				m.pods[i].inside[j].begin = m.tick
			}
		}
	}
	m.boot, m.ahead = boot, ahead
	return true
}

// turn reports whether a pod is due in this measurement, as it is once in every given number. The pods are
// spread evenly, so every measurement costs the same.
func (m *Meter) turn(p *meteredPod, every int64) bool { return (m.tick+p.slot)%every == 0 }

func (m *Meter) note(err error) {
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

// follow updates the set of measured pods.
func (m *Meter) follow(pods map[string]model.PodGroup, details []model.Detail) {
	same, ration := len(pods) == len(m.pods), false
	for i := range m.pods {
		p := &m.pods[i]
		m.load.Pods[i].New = false
		g, found := pods[p.uid]
		same = same && found && g.Dir == p.dir && g.Inode == p.inode
		was := p.detail
		p.detail = model.FindDetail(details, p.uid)
		ration = ration || was.Seconds != p.detail.Seconds
	}
	if !same {
		m.replace(pods, details)
	}
	if !same || ration {
		m.ration()
	}
}

// replace takes over what is known of the pods that are still there.
func (m *Meter) replace(pods map[string]model.PodGroup, details []model.Detail) {
	old, usage := m.pods, m.load.Pods
	m.pods, m.load.Pods = make([]meteredPod, 0, len(pods)), make([]model.PodUsage, 0, len(pods))
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		g := pods[uid]
		u := model.PodUsage{UID: uid, New: m.tick > 0}
		i, known := model.IndexByUID(old, uid, func(p *meteredPod) string { return p.uid })
		if known {
			u = usage[i]
		}
		var p meteredPod
		if known && old[i].dir == g.Dir && old[i].inode == g.Inode {
			p = old[i]
			old[i].files, old[i].inside = [cgroup.NumStats]statFile{}, nil // they stay open
		} else {
			p = meteredPod{meteredGroup: newMeteredGroup(m.mount, g.Dir), uid: uid, dir: g.Dir, inode: g.Inode, slot: m.born}
			p.detail = model.FindDetail(details, uid)
			m.born++
		}
		m.pods, m.load.Pods = append(m.pods, p), append(m.load.Pods, u)
	}
	for i := range old {
		old[i].closeAll(&m.reader)
	}
}

// ration decides whose files are kept open. It is called when a pod or the wanted detail has changed: the order by use
// is of that moment.
func (m *Meter) ration() {
	left := m.limit - 6 - len(m.classes)*m.perPod // six are of the node
	order := make([]int, len(m.pods))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &m.pods[i].detail, &m.pods[j].detail
		switch {
		case a.Seconds && !b.Seconds:
			return -1
		case b.Seconds && !a.Seconds:
			return 1
		}
		return cmp.Compare(m.load.Pods[j].CPU.Milli, m.load.Pods[i].CPU.Milli)
	})
	for _, i := range order {
		p := &m.pods[i]
		p.keep = left >= m.perPod
		if p.keep {
			left -= m.perPod
		} else {
			p.close(&m.reader)
		}
	}
}
