package host

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// soonest is the least time between two glances. The idle time of the machine has a resolution of 10 ms.
const soonest = 50 * time.Millisecond

// Glancer reads three counters between two measurements of a [Meter]: the CPU use of the machine, of all pods
// and of the pods of class BestEffort. Of batch pods outside of that class it reads one counter each. It has its own
// files and counters, so it can run in another goroutine than the meter. It is not safe for concurrent use itself.
type Glancer struct {
	mount  Mount
	clock  func(id int32) time.Duration
	reader statReader
	stat   statFile
	files  [2]statFile // of all pods, of class BestEffort

	node      idleReading // the last ones
	pods, low cpuReading
	beside    []glancedPod
}

// glancedPod is a batch pod outside of class BestEffort.
type glancedPod struct {
	dir  string
	file statFile
	last cpuReading
}

// glancerFiles is the number of files that a glancer keeps open.
const glancerFiles = 3

// NewGlancer returns a glancer for the machine and pods that [NewMeter] measures with the same arguments.
func NewGlancer(m Mount, l cgroup.Layout, proc string) *Glancer {
	g := &Glancer{
		mount: m, clock: sinceBoot,
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
	g.follow(nil)
}

// follow sets the batch pods outside of class BestEffort.
func (g *Glancer) follow(dirs []string) {
	if slices.EqualFunc(g.beside, dirs, func(p glancedPod, dir string) bool { return p.dir == dir }) {
		return
	}
	old := g.beside
	g.beside = make([]glancedPod, 0, len(dirs))
	for _, dir := range dirs {
		p := glancedPod{dir: dir}
		if i := slices.IndexFunc(old, func(p glancedPod) bool { return p.dir == dir }); i >= 0 {
			p, old[i] = old[i], glancedPod{}
		} else {
			group := newMeteredGroup(g.mount, dir)
			p.file.path = group.files[cgroup.CPUUsage].path
		}
		g.beside = append(g.beside, p)
	}
	for i := range old {
		g.reader.close(&old[i].file)
	}
}

// Glance returns the CPU use since the previous glance. Beside are the cgroups of batch pods outside of class
// BestEffort. It allocates nothing while these are the same.
//
// [model.Glance.At] is 0 if the use is not known: after an error, or if the previous glance is too recent or too old.
func (g *Glancer) Glance(beside []string) (seen model.Glance, err error) {
	g.follow(beside)
	node, pods, low, err := g.readCounters()
	if err != nil {
		g.node, g.pods, g.low = idleReading{}, cpuReading{}, cpuReading{}
		return seen, err
	}
	since := node.at - g.node.at
	if g.node.at != 0 && since < soonest {
		return seen, nil
	}
	batch, known, err := g.readBeside(node.cpus)
	if err != nil {
		g.node = idleReading{}
		return seen, err
	}
	if g.node.at != 0 && since < 10*soonest {
		n, ok1 := node.usage(&g.node)
		p, ok2 := pods.usage(&g.pods, node.cpus)
		l, ok3 := low.usage(&g.low, node.cpus)
		if ok1 && ok2 && ok3 && known {
			seen = model.Glance{At: low.at, Node: n.Milli, Pods: p.Milli, Batch: l.Milli + batch}
		}
	}
	g.node, g.pods, g.low = node, pods, low
	return seen, nil
}

// readBeside returns the CPU use of the batch pods outside of class BestEffort since the previous glance; false if one
// of them was not glanced at then. A pod without a directory uses nothing.
func (g *Glancer) readBeside(cpus int) (milli int64, known bool, err error) {
	known = true
	for i := range g.beside {
		p := &g.beside[i]
		now, err := g.readCPU(&p.file)
		if err != nil {
			return 0, false, err
		}
		used, ok := now.usage(&p.last, cpus)
		known = known && ok && p.last.at != 0
		milli += used.Milli
		p.last = now
	}
	return milli, known, nil
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
	if pods, err = g.readCPU(&g.files[0]); err == nil {
		low, err = g.readCPU(&g.files[1])
	}
	return node, pods, low, err
}

// readCPU reads the CPU counter of a group. A group without a directory uses nothing.
func (g *Glancer) readCPU(f *statFile) (now cpuReading, err error) {
	now.at = g.clock(bootClock)
	content, _, err := g.reader.read(f, true)
	switch {
	case errors.Is(err, errAbsent):
		return now, nil
	case err != nil:
		return now, f.wrap(err)
	case g.mount.Version == cgroup.V2:
		now.CPUStat, err = cgroup.ParseCPUStat(cgroup.V2, content)
	default:
		now.Nanos, err = cgroup.ParseCount(content)
	}
	if err != nil {
		return now, f.wrap(err)
	}
	return now, nil
}
