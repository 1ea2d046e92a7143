package host

import (
	"errors"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// soonest is the least time between two glances: the idle time of the machine is known to 10 ms.
const soonest = 50 * time.Millisecond

// glance is what was read for the last glance.
type glance struct {
	node      idleReading
	pods, low cpuReading
	files     [2]statFile // that are read: of all pods, of class BestEffort
}

// Glance looks at three counters only: what the machine, all pods and those of class BestEffort use of the CPUs since the
// glance before. Its result stands in [Meter.Load] until the next. It has counters of its own, so it leaves measurements as
// they are. It allocates nothing.
//
// An error, or a glance that came late, leaves none: [model.Glance.At] is then 0.
func (m *Meter) Glance() (*model.Load, error) {
	g := &m.glance
	m.load.Glance = model.Glance{}
	node, pods, low, err := m.glimpse()
	if err != nil {
		g.node, g.pods, g.low = idleReading{}, cpuReading{}, cpuReading{}
		return m.Load(), err
	}
	since := node.at - g.node.at
	if g.node.at != 0 && since < soonest {
		return m.Load(), nil
	}
	if g.node.at != 0 && since < 10*soonest {
		n, ok1 := node.usage(&g.node)
		p, ok2 := pods.usage(&g.pods, node.cpus)
		l, ok3 := low.usage(&g.low, node.cpus)
		if ok1 && ok2 && ok3 {
			m.load.Glance = model.Glance{At: low.at, Node: n.Milli, Pods: p.Milli, BestEffort: l.Milli}
		}
	}
	g.node, g.pods, g.low = node, pods, low
	return m.Load(), nil
}

// glimpse reads the three counters. A class without a directory uses nothing.
func (m *Meter) glimpse() (node idleReading, pods, low cpuReading, err error) {
	node.at = m.clock(bootClock)
	content, _, err := m.reader.read(&m.node.stat, true)
	if err != nil {
		return node, pods, low, m.node.stat.wrap(err)
	}
	stat, err := ParseStat(content)
	if err != nil {
		return node, pods, low, m.node.stat.wrap(err)
	}
	node.idle, node.cpus = stat.Idle, stat.CPUs
	for i, to := range []*cpuReading{&pods, &low} {
		f := &m.glance.files[i]
		to.at = m.clock(bootClock)
		content, _, err := m.reader.read(f, true)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return node, pods, low, f.wrap(err)
		}
		if m.mount.Version == cgroup.V2 {
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
