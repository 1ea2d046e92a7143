package machine

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// Once is input that only one round may observe: reading it counts as reporting.
type Once struct {
	confined  []model.Confined
	reclaimed *model.Reclaimed
}

// ObserveOnce returns the input that only the next round observes.
func (m *Machine) ObserveOnce() Once {
	o := Once{m.files.Confined(), m.reclaimed}
	m.reclaimed = nil
	return o
}

// Observe fills in the state of the machine.
func (m *Machine) Observe(n *model.Node, once Once) {
	n.Tree, n.Owned, n.Topology = m.tree.Model(), m.files.Owned(), m.survey()
	n.Isolated = m.isolated
	n.Foreign = len(m.files.Foreign())
	n.Reclaiming = m.claiming
	n.Confined, n.Reclaimed = once.confined, once.reclaimed
	n.Load = m.Load() // with the age that it has now
	m.waits = m.looks.take(m.waits[:0])
	m.figures = m.services.Append(m.figures[:0])
	n.Waits, n.Figures = m.waits, m.figures
}

// Need starts to observe what a plan needs, and reports whether the plan must be decided anew for that: it needs
// something that was not observed so far.
func (m *Machine) Need(now time.Time, needs *model.Observe) bool {
	before := m.observed
	m.observed = *needs
	anew := !sameFiles(before.Pods, needs.Pods) && m.Scan()
	if needs.Topology && !before.Topology {
		anew = m.survey() != nil || anew
	}
	if needs.Load && !before.Load {
		m.nextLoad = time.Time{}
		anew = m.Measure(now) || anew
	}
	if !needs.Load {
		m.load = nil // old measurements are not shown
	}
	return anew
}

// Measure measures the load if that is due, and reports whether it did. If the loop was late by more than a second, the
// measurements that it missed are not made up for.
func (m *Machine) Measure(now time.Time) bool {
	const every = time.Second
	if !m.observed.Load || now.Before(m.nextLoad) {
		return false
	}
	if m.nextLoad = m.nextLoad.Add(every); !m.nextLoad.After(now) {
		m.nextLoad = now.Add(every)
	}
	load, err := m.meter.Measure(m.tree.Model().Pods, m.observed.Pods)
	m.log.Report("measuring", err)
	m.load = load
	return load != nil
}

// Load returns the last measurement; nil: nothing is measured.
func (m *Machine) Load() *model.Load {
	if m.load == nil {
		return nil
	}
	return m.meter.Load()
}

// NextLoad returns when the load is measured next; zero: no plan needs it.
func (m *Machine) NextLoad() time.Time {
	if !m.observed.Load {
		return time.Time{}
	}
	return m.nextLoad
}

// Topology returns the machine's topology, also while no decision needs it.
func (m *Machine) Topology() (*model.Topology, error) {
	if m.topology != nil {
		return m.topology, nil
	}
	return host.ReadTopology(m.cfg.Sys)
}

// survey returns the topology while a plan needs it, and reads it again when CPUs went on- or offline. One reading is
// enough: cgroups may use a CPU only after the kernel has described its caches (seen on 6.1).
func (m *Machine) survey() *model.Topology {
	if !m.observed.Topology {
		return nil
	}
	if now := m.tree.Model().CPUs; m.topology == nil || now != m.seenCPUs {
		topology, err := host.ReadTopology(m.cfg.Sys)
		m.log.Report("topology", err)
		if err == nil {
			m.topology, m.seenCPUs = topology, now
		}
	}
	return m.topology
}

// follows reports whether the files of a pod are watched.
func (m *Machine) follows(uid string) bool { return model.FindDetail(m.observed.Pods, uid).Files }

// sameFiles reports whether the files of the same pods are watched, and the lists of CPUs of the same pods are read.
func sameFiles(a, b []model.Detail) bool {
	next := 0
	for i := range a {
		if !a[i].Files {
			continue
		}
		for next < len(b) && !b[next].Files {
			next++
		}
		if next == len(b) || b[next].UID != a[i].UID || b[next].CPUs != a[i].CPUs {
			return false
		}
		next++
	}
	return !slices.ContainsFunc(b[next:], func(d model.Detail) bool { return d.Files })
}
