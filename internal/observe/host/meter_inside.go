package host

import (
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// For how many measurements a container is measured in each of them after its quota has stopped it, and is measured at all after
// its pod last used enough for that to be possible.
const (
	stopped = minute
	noted   = 5 * minute
)

// meteredContainer is a container that is measured.
type meteredContainer struct {
	meteredGroup
	name  string
	usage model.CPUUsage
	near  int64 // the last measurement in which its pod used enough for its quota to stop it
	hit   int64 // the last measurement in which that was seen; 0: never
}

// measureInside measures the containers that their quotas may stop: those whose pod uses enough, every fifth time, and those that
// were stopped a while ago, every time, whose files are kept open as long as there are not too many.
func (m *Meter) measureInside(pods map[string]model.PodGroup) {
	m.load.Inside = m.load.Inside[:0]
	for i := range m.pods {
		p := &m.pods[i]
		from := p.detail.Inside
		near := from > 0 && m.load.Pods[i].CPU.Milli >= from
		if near || len(p.inside) > 0 {
			m.enter(p, pods[p.uid].Containers, from > 0, near)
		}
		for j := range p.inside {
			c := &p.inside[j]
			if near {
				c.near = m.tick
			}
			hot := c.hit > 0 && m.tick-c.hit <= stopped
			if hot || m.turn(p, seldom) {
				m.note(m.measureCPU(&c.meteredGroup, &c.usage, hot && m.reader.held < m.limit))
			}
			if c.usage.Throttled > 0 && c.cpu.tick == m.tick {
				c.hit = m.tick
			}
			if !hot {
				c.close(&m.reader)
			}
			if c.usage.At != 0 {
				m.load.Inside = append(m.load.Inside, model.InsideUsage{UID: p.uid, Name: c.name, CPUUsage: c.usage})
			}
		}
	}
}

// enter brings the containers of a pod that are measured to those that there are, or to none after a while.
func (m *Meter) enter(p *meteredPod, names []string, wanted, near bool) {
	p.inside = slices.DeleteFunc(p.inside, func(c meteredContainer) bool {
		_, there := slices.BinarySearch(names, c.name)
		if there && wanted && m.tick-max(c.near, c.hit) <= noted {
			return false
		}
		c.close(&m.reader)
		return true
	})
	if !near || len(p.inside) == len(names) {
		return
	}
	for _, name := range names {
		i, known := slices.BinarySearchFunc(p.inside, name, func(c meteredContainer, name string) int { return strings.Compare(c.name, name) })
		if !known {
			c := meteredContainer{name: name, near: m.tick}
			c.locate(m.mount, p.dir+"/"+name, cgroup.CPUUsage, cgroup.CPUThrottle)
			p.inside = slices.Insert(p.inside, i, c)
		}
	}
}

// closeAll closes the files of a pod and of its containers.
func (p *meteredPod) closeAll(r *statReader) {
	p.close(r)
	for i := range p.inside {
		p.inside[i].close(r)
	}
}
