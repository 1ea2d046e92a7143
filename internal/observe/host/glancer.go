package host

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// soonest is the least time between two glances. The idle time of the machine has a resolution of 10 ms.
const soonest = 50 * time.Millisecond

// Glancer reads three counters between two measurements of a [Meter]: the CPU use of the machine, of all pods
// and of the pods of class BestEffort. It has its own files and counters, so it can run in another goroutine
// than the meter. It is not safe for concurrent use itself.
type Glancer struct {
	version cgroup.Version
	clock   func(id int32) time.Duration
	reader  statReader
	stat    statFile
	files   [2]statFile // of all pods, of class BestEffort

	node      idleReading // the last ones
	pods, low cpuReading
}

// glancerFiles is the number of files that a glancer keeps open.
const glancerFiles = 3

// NewGlancer returns a glancer for the machine and pods that [NewMeter] measures with the same arguments.
func NewGlancer(m Mount, l cgroup.Layout, proc string) *Glancer {
	g := &Glancer{
		version: m.Version, clock: sinceBoot,
		reader: statReader{buf: make([]byte, 4<<10)}, stat: statFile{path: filepath.Join(proc, "stat")},
	}
	for i, q := range []model.QoSClass{model.Guaranteed, model.BestEffort} {
		class := newMeteredGroup(m, l.Class(q))
		g.files[i] = statFile{path: class.files[cgroup.CPUUsage].path}
	}
	return g
}

// Close closes all files. A later glance opens them again.
func (g *Glancer) Close() {
	g.reader.close(&g.stat)
	for i := range g.files {
		g.reader.close(&g.files[i])
	}
}

// Glance returns the CPU use since the previous glance. It allocates nothing.
//
// [model.Glance.At] is 0 if the use is not known: after an error, or if the previous glance is too recent or
// too old.
func (g *Glancer) Glance() (seen model.Glance, err error) {
	node, pods, low, err := g.readCounters()
	if err != nil {
		g.node, g.pods, g.low = idleReading{}, cpuReading{}, cpuReading{}
		return seen, err
	}
	since := node.at - g.node.at
	if g.node.at != 0 && since < soonest {
		return seen, nil
	}
	if g.node.at != 0 && since < 10*soonest {
		n, ok1 := node.usage(&g.node)
		p, ok2 := pods.usage(&g.pods, node.cpus)
		l, ok3 := low.usage(&g.low, node.cpus)
		if ok1 && ok2 && ok3 {
			seen = model.Glance{At: low.at, Node: n.Milli, Pods: p.Milli, BestEffort: l.Milli}
		}
	}
	g.node, g.pods, g.low = node, pods, low
	return seen, nil
}

// readCounters reads the three counters. A class without a directory uses nothing.
func (g *Glancer) readCounters() (node idleReading, pods, low cpuReading, err error) {
	node.at = g.clock(bootClock)
	content, _, err := g.reader.read(&g.stat, true)
	if err != nil {
		return node, pods, low, g.stat.wrap(err)
	}
	stat, err := ParseStat(content)
	if err != nil {
		return node, pods, low, g.stat.wrap(err)
	}
	node.idle, node.cpus = stat.Idle, stat.CPUs
	for i, to := range []*cpuReading{&pods, &low} {
		f := &g.files[i]
		to.at = g.clock(bootClock)
		content, _, err := g.reader.read(f, true)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return node, pods, low, f.wrap(err)
		}
		if g.version == cgroup.V2 {
			to.CPUStat, err = cgroup.ParseCPUStat(cgroup.V2, content)
		} else {
			to.Nanos, err = cgroup.ParseCount(content)
		}
		if err != nil {
			return node, pods, low, f.wrap(err)
		}
	}
	return node, pods, low, nil
}
