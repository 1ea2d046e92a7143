package host

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// soonest is the least time between two glances: the idle time of the machine is known to 10 ms.
const soonest = 50 * time.Millisecond

// Glancer looks at three counters only, between two measurements of a [Meter]: what the machine, all pods and those of class BestEffort
// use of the CPUs. It has files and counters of its own, so that another goroutine may use it than the meter's. It is not safe for
// concurrent use itself.
type Glancer struct {
	version cgroup.Version
	clock   func(id int32) time.Duration
	reader  statReader
	stat    statFile
	files   [2]statFile // of all pods, of class BestEffort

	node      idleReading // the last ones
	pods, low cpuReading
}

// glancerFiles is how many files a glancer keeps open.
const glancerFiles = 3

// NewGlancer looks at what [NewMeter] measures.
func NewGlancer(m Mount, l cgroup.Layout, proc string) *Glancer {
	g := &Glancer{version: m.Version, clock: sinceBoot, reader: statReader{buf: make([]byte, 4<<10)}, stat: statFile{path: filepath.Join(proc, "stat")}}
	for i, q := range []model.QoSClass{model.Guaranteed, model.BestEffort} {
		class := newMeteredGroup(m, l.Class(q))
		g.files[i] = statFile{path: class.files[cgroup.CPUUsage].path}
	}
	return g
}

// Close closes all files. The glancer can still look: it then opens them again.
func (g *Glancer) Close() {
	g.reader.close(&g.stat)
	for i := range g.files {
		g.reader.close(&g.files[i])
	}
}

// Glance returns what was used since the glance before. It allocates nothing.
//
// After an error, or for a glance that came late, [model.Glance.At] is 0.
func (g *Glancer) Glance() (seen model.Glance, err error) {
	node, pods, low, err := g.look()
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

// look reads the three counters. A class without a directory uses nothing.
func (g *Glancer) look() (node idleReading, pods, low cpuReading, err error) {
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
