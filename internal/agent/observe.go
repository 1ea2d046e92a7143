package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// scan lists the cgroups, and reports whether they changed.
func (a *Agent) scan() bool {
	changed, err := a.tree.Scan(a.follows)
	a.log.report("cgroups", err)
	a.unsettled = a.unsettled || changed
	for _, dir := range a.tree.Anew() {
		a.unsettled = a.host.CheckDir(dir) || a.unsettled
	}
	blind := a.tree.Blind()
	switch {
	case a.watcher == nil:
		blind = a.noWatcher
	case errors.Is(blind, fs.ErrNotExist):
		blind = nil // it went between being listed and being watched, which is no trouble
	}
	a.log.report("watch", blind)
	return changed
}

// follows reports whether the files of a pod are watched.
func (a *Agent) follows(uid string) bool { return model.FindDetail(a.observed.Pods, uid).Files }

// observe starts to observe what a plan needs, and reports whether the plan must be decided anew for that: it needs
// something that was not observed so far.
func (a *Agent) observe(now time.Time, needs *model.Observe) bool {
	before := a.observed
	a.observed = *needs
	anew := !sameFiles(before.Pods, needs.Pods) && a.scan()
	if needs.Topology && !before.Topology {
		anew = a.survey() != nil || anew
	}
	if needs.Load && !before.Load {
		a.nextLook = time.Time{}
		anew = a.measure(now) || anew
	}
	if !needs.Load {
		a.load = nil // old measurements are not shown
	}
	return anew
}

// sameFiles reports whether the files of the same pods are watched.
func sameFiles(a, b []model.Detail) bool {
	next := 0
	for i := range a {
		if !a[i].Files {
			continue
		}
		for next < len(b) && !b[next].Files {
			next++
		}
		if next == len(b) || b[next].UID != a[i].UID {
			return false
		}
		next++
	}
	return !slices.ContainsFunc(b[next:], func(d model.Detail) bool { return d.Files })
}

// survey reads the topology of the machine when somebody's CPUs depend on it, and again when CPUs went on- or offline. One
// look is enough: groups may use a CPU that comes only after the kernel has described its caches (seen on 6.1).
func (a *Agent) survey() *model.Topology {
	if !a.observed.Topology {
		return nil
	}
	if now := a.tree.Model().CPUs; a.topology == nil || now != a.seenCPUs {
		topology, err := host.ReadTopology(a.cfg.Sys)
		a.log.report("topology", err)
		if err == nil {
			a.topology, a.seenCPUs = topology, now
		}
	}
	return a.topology
}

// node gathers what was observed, but for what only a round may take note of.
func (a *Agent) node(now time.Time) model.Node {
	return model.Node{
		Now:         now,
		Capacity:    a.pods.Capacity,
		Allocatable: model.Amount{CPU: a.pods.Allocatable.CPU},
		Kubelet:     a.kubelet,
		Tree:        a.tree.Model(),
		Pods:        a.pods.Pods,
		PodsKnown:   a.pods.Known,
		Owned:       a.host.Owned(),
		Incidents:   a.incidents,
		Topology:    a.survey(),
		Load:        a.currentLoad(),
		Glance:      a.glance,
		Withdrawn:   a.pods.Withdrawn,
		Reclaiming:  a.asked,
		Ruling:      a.ruling.says(),
		Object:      model.NodeObject{UID: a.pods.UID, Published: a.pods.Published, Reported: a.pods.Reported},
		Writes:      a.writes.state(),
	}
}

// findPods looks for the kubelet's cgroups and reports whether they were found.
func (a *Agent) findPods() bool {
	layout, err := a.layout()
	a.log.report("cgroups", err)
	if err != nil {
		a.notReady(err.Error())
		return false
	}
	a.cfg.Log.Info("found the pods", "cgroup", a.mount.Version.String(), "driver", layout.Driver.String(), "kubepods", layout.Root)
	a.tree = host.NewTree(a.mount, layout, a.watcher)
	a.meter = host.NewMeter(a.mount, layout, a.cfg.Proc)
	a.glancer = host.NewGlancer(a.mount, layout, a.cfg.Proc)
	a.pods = a.cfg.Pods.Snapshot()
	a.unsettled = true
	return true
}

func (a *Agent) layout() (cgroup.Layout, error) {
	if a.cfg.Kubepods == "" {
		return host.FindKubepods(a.mount, a.cfg.SelfUID)
	}
	layout, ok := cgroup.ParseLayout(a.cfg.Kubepods)
	if !ok {
		return cgroup.Layout{}, fmt.Errorf("--kubepods %q: its last part must be kubepods or end in kubepods.slice", a.cfg.Kubepods)
	}
	return layout, nil
}
