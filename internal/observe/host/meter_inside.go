package host

import (
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Limits in measurements. After its quota throttled it, a container is measured in every measurement for the
// time of throttledTicks. After its pod last used enough CPU for throttling, a container is measured for the
// time of nearTicks.
const (
	throttledTicks = watermarkTicks
	nearTicks      = 5 * watermarkTicks
)

// meteredContainer is a measured container.
type meteredContainer struct {
	meteredGroup
	name  string
	usage model.CPUUsage
	near  int64 // last measurement in which its pod used enough CPU for the quota to throttle the container
	hit   int64 // last measurement that saw the container throttled; 0: never
}

// measureInside measures the containers that their quotas may stop: those whose pod uses enough, every fifth time, and
// those that were stopped a while ago, every time, whose files are kept open as long as there are not too many.
func (m *Meter) measureInside(pods map[string]model.PodGroup) {
	m.load.Inside = m.load.Inside[:0]
	for i := range m.pods {
		p := &m.pods[i]
		from := p.detail.Inside
		near := from > 0 && m.load.Pods[i].CPU.Milli >= from
		if near || len(p.inside) > 0 {
			m.updateContainers(p, pods[p.uid].Containers, from > 0, near)
		}
		for j := range p.inside {
			c := &p.inside[j]
			if near {
				c.near = m.tick
			}
			hot := c.hit > 0 && m.tick-c.hit <= throttledTicks
			if hot || m.turn(p, detailTicks) {
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

// updateContainers updates the set of measured containers of a pod. Containers of a pod that stays below its
// threshold are dropped after nearTicks.
func (m *Meter) updateContainers(p *meteredPod, names []string, wanted, near bool) {
	p.inside = slices.DeleteFunc(p.inside, func(c meteredContainer) bool {
		_, there := slices.BinarySearch(names, c.name)
		if there && wanted && m.tick-max(c.near, c.hit) <= nearTicks {
			return false
		}
		c.close(&m.reader)
		return true
	})
	if !near || len(p.inside) == len(names) {
		return
	}
	for _, name := range names {
		i, known := slices.BinarySearchFunc(p.inside, name, func(c meteredContainer, name string) int {
			return strings.Compare(c.name, name)
		})
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
