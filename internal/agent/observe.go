package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/quota"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// scan looks which cgroups there are.
func (a *Agent) scan() {
	before := a.tree.Model()
	changed, err := a.tree.Scan(a.follows)
	a.log.report("cgroups", err)
	a.unsettled = a.unsettled || changed
	for _, dir := range a.tree.Recreated() {
		a.unsettled = a.host.CheckDir(dir) || a.unsettled
	}
	blind := a.tree.Unwatched()
	switch {
	case a.watcher == nil:
		blind = a.noWatcher
	case errors.Is(blind, fs.ErrNotExist):
		blind = nil // it went between being listed and being watched, which is no trouble
	}
	a.log.report("watch", blind)
	now, p := a.tree.Model(), &a.ruling.effect.Policy
	if p.Weight.Identity && now.NoIdentity != before.NoIdentity || p.Protect.Interference && now.NoPressure != before.NoPressure {
		a.refollow()
		a.scan()
	}
}

// follows is what the tree asks; refollow keeps it.
func (a *Agent) follows(uid string) bool { return a.follow[uid] }

func (a *Agent) refollow() {
	a.usesCPUs, a.bindsAll = a.useOfCPUs()
	clear(a.follow)
	clear(a.closer.near)
	clear(a.closer.from)
	clear(a.closer.wait)
	batch := slices.ContainsFunc(a.pods.Pods, func(p *model.Pod) bool { return p.Grant != (model.Grant{}) })
	tree := a.tree.Model()
	blames := node.Interferes(a.pods.Pods, &a.ruling.effect.Policy)
	for _, pod := range a.pods.Pods {
		if blames && !tree.NoPressure || !pod.Class.Online() {
			a.closer.near[pod.UID] = true
		}
		if blames && tree.NoPressure && pod.Class.Online() {
			a.closer.wait[pod.UID] = true
		}
		if from := quota.From(pod, &a.ruling.effect.Policy); from > 0 {
			a.closer.from[pod.UID] = from
		}
		if node.Follows(pod, &a.ruling.effect.Policy, &tree, a.bindsAll, batch) {
			a.follow[pod.UID] = true
		}
	}
}

// useOfCPUs tells whether the topology counts, and whether all pods' lists of CPUs may.
func (a *Agent) useOfCPUs() (uses, bindsAll bool) {
	uses = node.UsesCPUs(a.pods.Pods, &a.ruling.effect.Policy, a.host.Owned(), &a.state)
	return uses, node.BindsAll(a.pods.Pods, &a.ruling.effect.Policy, &a.state)
}

// survey reads the topology of the machine when somebody's CPUs depend on it, and again when CPUs went on- or offline. One
// look is enough: groups may use a CPU that comes only after the kernel has described its caches (seen on 6.1).
func (a *Agent) survey() *model.Topology {
	if !a.usesCPUs {
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
		Withdrawn:   a.pods.Withdrawn,
		Reclaiming:  a.asked,
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
	a.refollow()
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
