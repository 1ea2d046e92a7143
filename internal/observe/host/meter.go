package host

import (
	"errors"
	"maps"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// How often, in measurements, the tasks of a pod are asked for how long they wait, memory and pressure of a pod are read that is not
// followed closely, everything of a pod whose files are not kept open, and the watermarks.
const (
	everyOther = 2
	seldom     = 5
	rarely     = 10
	minute     = 60
)

// mostFiles is how many files are kept open, unless a quarter of what the process may open is less. Each costs about 5 KiB
// of kernel memory. It is enough for 250 pods on v2, which have six each, and 390 on v1, which have four.
const mostFiles = 1600

// The clocks.
const (
	bootClock = unix.CLOCK_BOOTTIME  // goes on while the machine is suspended
	monoClock = unix.CLOCK_MONOTONIC // stands still then
)

// Meter measures what the node, the directories of the kubelet's classes and the pods use. It reads each counter at the
// end of one span of time and the beginning of the next, so that nothing is missed and a mean is one over all the time
// between.
//
// It keeps the files open that it reads: a measurement in which no pod came or went allocates nothing. If there are
// more than it may keep open, those of the classes and of the pods that are followed closely come first. The files of the
// other pods are opened, read and closed once in ten measurements.
//
// It is not safe for concurrent use.
type Meter struct {
	mount    Mount
	clock    func(id int32) time.Duration
	pageSize int
	limit    int // of files kept open
	reader   statReader

	tick  int64         // measurements so far
	begin int64         // the first since the machine was suspended or measurements were missed
	boot  time.Duration // when the last one began
	ahead time.Duration // by how much the clock since boot was ahead of the one that stands still

	node    nodeFiles
	cpu     idleReading
	stall   stallReading
	stalls  bool // the kernel knows pressure
	classes [3]meteredGroup
	delays  delays
	perPod  int // files
	pods    []meteredPod
	born    int64
	load    model.Load // Pods are in the order of pods
	errs    []error
}

// meteredPod is a pod that is measured.
type meteredPod struct {
	meteredGroup
	uid     string
	dir     string
	inode   uint64
	slot    int64 // which of the measurements are its own
	detail  model.Detail
	keep    bool // its files are kept open
	inside  []meteredContainer
	delayed delayLook
}

// NewMeter measures the machine whose procfs is mounted at a path, as [DefaultProc], and the pods of one kubelet.
func NewMeter(m Mount, l cgroup.Layout, proc string) *Meter {
	meter := &Meter{
		mount: m, clock: sinceBoot, pageSize: unix.Getpagesize(), limit: mostFiles, reader: statReader{buf: make([]byte, 16<<10)},
		node: newNodeFiles(proc), delays: delays{proc: proc, layout: l}, errs: make([]error, 0, 8),
	}
	var most unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &most) == nil {
		meter.limit = int(min(most.Cur/4, mostFiles))
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

func sinceBoot(id int32) time.Duration {
	var now unix.Timespec
	if clockGettime(id, &now) != nil {
		return 0 // no kernel lacks these clocks
	}
	return time.Duration(now.Nano())
}

// Load returns the last load, of which the time is now.
func (m *Meter) Load() *model.Load {
	m.load.Clock = m.clock(bootClock)
	return &m.load
}

// Close closes all files. The meter can still measure: it then opens them again.
func (m *Meter) Close() {
	m.node.close(&m.reader)
	for q := range m.classes {
		m.classes[q].close(&m.reader)
	}
	for i := range m.pods {
		m.pods[i].closeAll(&m.reader)
	}
}

// Measure measures everything that is due, to be called once a second. The pods are those of [model.Tree]. The details say
// what is measured of single pods beyond CPU use in every measurement, and memory and pressure in every fifth. They are
// ordered by UID.
//
// The error joins what could not be read; that keeps its last values and their time. It is no error that a cgroup is gone
// or that this kernel does not know a thing.
//
// Less than 100 ms after the last measurement nothing is read. When the last one is more than 10 s ago, or the machine was
// suspended since, rates are known again after the next one.
func (m *Meter) Measure(pods map[string]model.PodGroup, details []model.Detail) (*model.Load, error) {
	m.follow(pods, details)
	if !m.begins() {
		return m.Load(), nil
	}
	m.errs = m.errs[:0]
	m.note(m.measureNodeCPU())
	// The times used are read in one go, so that they lie close together, and from the top down: on v2 each read gathers
	// what the CPUs have counted for all groups below, and finds little left to gather if one above was just read.
	for q := range m.classes {
		m.note(m.measureCPU(&m.classes[q], &m.load.Classes[q].CPU, true))
	}
	for i := range m.pods {
		p, usage := &m.pods[i], &m.load.Pods[i].CPU
		if p.keep || usage.At == 0 || m.turn(p, rarely) {
			m.note(m.measureCPU(&p.meteredGroup, usage, p.keep))
		}
	}
	m.measureInside(pods)
	m.note(m.measureDelays())
	m.note(m.measureNodeMemory())
	m.note(m.measureNodePressure())
	if m.tick%minute == 1 {
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
		every := int64(seldom)
		switch {
		case !p.keep:
			every = rarely
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

// begins begins a measurement, unless the last one is too close.
func (m *Meter) begins() bool {
	boot, mono := m.clock(bootClock), m.clock(monoClock)
	elapsed, ahead := boot-m.boot, boot-mono
	if m.tick > 0 && 0 <= elapsed && elapsed < shortest {
		return false
	}
	m.tick++
	// If we were kept from running between the looks at the two clocks, this takes it for a suspension, and the values
	// stay as they are for once.
	if parted := ahead - m.ahead; elapsed < 0 || elapsed > longest || parted > jump || parted < -jump {
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

// turn reports whether this measurement is one of a pod's own, of which there is one in every so many. Those of different
// pods are spread evenly, so that every measurement costs the same.
func (m *Meter) turn(p *meteredPod, every int64) bool { return (m.tick+p.slot)%every == 0 }

func (m *Meter) note(err error) {
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

// follow updates the set of measured pods.
func (m *Meter) follow(pods map[string]model.PodGroup, details []model.Detail) {
	same, ration, next := len(pods) == len(m.pods), false, 0
	for i := range m.pods {
		p := &m.pods[i]
		m.load.Pods[i].New = false
		g, found := pods[p.uid]
		same = same && found && g.Dir == p.dir && g.Inode == p.inode
		for next < len(details) && details[next].UID < p.uid {
			next++
		}
		was := p.detail
		if p.detail = (model.Detail{}); next < len(details) && details[next].UID == p.uid {
			p.detail = details[next]
		}
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
		i := sort.Search(len(old), func(i int) bool { return old[i].uid >= uid })
		known := i < len(old) && old[i].uid == uid
		if known {
			u = usage[i]
		}
		var p meteredPod
		if known && old[i].dir == g.Dir && old[i].inode == g.Inode {
			p = old[i]
			old[i].files, old[i].inside = [cgroup.Stats]statFile{}, nil // they stay open
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

// ration decides whose files are kept open.
func (m *Meter) ration() {
	left := m.limit - 6 - glancerFiles - len(m.classes)*m.perPod // six are of the node
	for _, seconds := range []bool{true, false} {
		for i := range m.pods {
			p := &m.pods[i]
			if p.detail.Seconds != seconds {
				continue
			}
			p.keep = left >= m.perPod
			if p.keep {
				left -= m.perPod
			} else {
				p.close(&m.reader)
			}
		}
	}
}
