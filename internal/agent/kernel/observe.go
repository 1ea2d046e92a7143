package kernel

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
func (k *Kernel) ObserveOnce() Once {
	o := Once{k.files.Confined(), k.reclaimed}
	k.reclaimed = nil
	return o
}

// Observe fills in the state of the machine.
func (k *Kernel) Observe(n *model.Node, once Once) {
	n.Tree, n.Owned, n.Topology = k.tree.Model(), k.files.Owned(), k.survey()
	n.Isolated = k.isolated
	n.Foreign = len(k.files.Foreign())
	n.Reclaiming = k.claiming
	n.Confined, n.Reclaimed = once.confined, once.reclaimed
	n.Load = k.Load() // with the age that it has now
	k.waits = k.looks.take(k.waits[:0])
	k.figures = k.services.Append(k.figures[:0])
	n.Waits, n.Figures = k.waits, k.figures
}

// Need starts to observe what a plan needs, and reports whether the plan must be decided anew for that: it needs
// something that was not observed so far.
func (k *Kernel) Need(now time.Time, needs *model.Observe) bool {
	before := k.observed
	k.observed = *needs
	anew := !sameFiles(before.Pods, needs.Pods) && k.Scan()
	if needs.Topology && !before.Topology {
		anew = k.survey() != nil || anew
	}
	if needs.Load && !before.Load {
		k.nextLoad = time.Time{}
		anew = k.Measure(now) || anew
	}
	if !needs.Load {
		k.load = nil // old measurements are not shown
	}
	return anew
}

// Measure measures the load if that is due, and reports whether it did. If the loop was late by more than a second, the
// measurements that it missed are not made up for.
func (k *Kernel) Measure(now time.Time) bool {
	const every = time.Second
	if !k.observed.Load || now.Before(k.nextLoad) {
		return false
	}
	if k.nextLoad = k.nextLoad.Add(every); !k.nextLoad.After(now) {
		k.nextLoad = now.Add(every)
	}
	load, err := k.meter.Measure(k.tree.Model().Pods, k.observed.Pods)
	k.log.Report("measuring", err)
	k.load = load
	return load != nil
}

// Load returns the last measurement; nil: nothing is measured.
func (k *Kernel) Load() *model.Load {
	if k.load == nil {
		return nil
	}
	return k.meter.Load()
}

// NextLoad returns when the load is measured next; zero: no plan needs it.
func (k *Kernel) NextLoad() time.Time {
	if !k.observed.Load {
		return time.Time{}
	}
	return k.nextLoad
}

// Topology returns the machine's topology, also while no decision needs it.
func (k *Kernel) Topology() (*model.Topology, error) {
	if k.topology != nil {
		return k.topology, nil
	}
	return host.ReadTopology(k.cfg.Sys)
}

// survey returns the topology while a plan needs it, and reads it again when CPUs went on- or offline. One reading is
// enough: cgroups may use a CPU only after the kernel has described its caches (seen on 6.1).
func (k *Kernel) survey() *model.Topology {
	if !k.observed.Topology {
		return nil
	}
	if now := k.tree.Model().CPUs; k.topology == nil || now != k.seenCPUs {
		topology, err := host.ReadTopology(k.cfg.Sys)
		k.log.Report("topology", err)
		if err == nil {
			k.topology, k.seenCPUs = topology, now
		}
	}
	return k.topology
}

// follows reports whether the files of a pod are watched.
func (k *Kernel) follows(uid string) bool { return model.FindDetail(k.observed.Pods, uid).Files }

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
