package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// kubelet stands in for the kubelet: it makes the cgroups that the kubelet makes and writes the weights that the
// kubelet writes, at the moments when the kubelet does.
type kubelet struct {
	cgroups          *cgroups
	layout           cgroup.Layout
	manifests        string // directory in which the agent finds the pods
	allocatableMilli int64  // of the node
	burstableMilli   int64  // CPU requests of all Burstable pods
}

// start makes kubepods and the QoS classes.
func (k *kubelet) start() error {
	k.layout = cgroup.Layout{Driver: cgroup.Cgroupfs, Root: k.cgroups.name + "/kubepods"}
	// kubepods weighs against the rest of the machine as on a node. The cgroup around it weighs at least eight times
	// what two CPUs would: the weights inside are to be measured, not what else goes on. Measured beside compilers that
	// took half of two CPUs: at 2048 a ratio of 2.06 and repairs of 150 ms, at 16384 2.02 and 9 ms.
	around := max(16*model.SharesPerCPU, model.MilliCPUToShares(k.allocatableMilli))
	if err := k.cgroups.SetShares(k.cgroups.name, around); err != nil {
		return err
	}
	for _, q := range []model.QoSClass{model.Guaranteed, model.Burstable, model.BestEffort} {
		if err := k.cgroups.mkdir(k.layout.Class(q)); err != nil {
			return err
		}
	}
	return errors.Join(
		k.cgroups.SetShares(k.layout.Root, model.MilliCPUToShares(k.allocatableMilli)),
		k.cgroups.SetShares(k.layout.Class(model.BestEffort), model.MinShares),
		k.writeBurstable(),
	)
}

// writeBurstable gives the Burstable class the sum of its pods' requests. The kubelet does so at each pod's start and
// end, and so overwrites the value of any other writer.
func (k *kubelet) writeBurstable() error {
	return k.cgroups.SetShares(k.layout.Class(model.Burstable), model.MilliCPUToShares(k.burstableMilli))
}

// Announce shows a pod to the agent. In a cluster the API server does so some time before the kubelet runs the pod.
func (s *Sandbox) Announce(p *Pod) error { return s.kubelet.announce(p) }

func (k *kubelet) announce(p *Pod) error {
	text, err := p.Manifest()
	if err != nil {
		return err
	}
	// Renamed into place, so that the agent never sees half of it.
	file := filepath.Join(k.manifests, p.Name+".yaml")
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return fmt.Errorf("writing the manifest of pod %s: %w", p.Name, err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("writing the manifest of pod %s: %w", p.Name, err)
	}
	return nil
}

// MakeGroups makes the cgroups of a pod and its container as the kubelet leaves them.
func (s *Sandbox) MakeGroups(p *Pod) error {
	k, dir, container := &s.kubelet, s.PodGroup(p), s.ContainerGroup(p)
	shares := model.MilliCPUToShares(p.RequestMilli)
	if err := s.mkdir(dir); err != nil {
		return err
	}
	if err := s.SetShares(dir, shares); err != nil {
		return err
	}
	if err := s.mkdir(container); err != nil {
		return err
	}
	// The runtime writes the container's weight, on v2 by another formula. Alone in its pod it competes with no cgroup.
	raw := cgroup.Raw{Number: shares}
	if s.mount.Version == cgroup.V2 {
		raw = cgroup.Raw{Number: cgroup.ContainerWeight(shares)}
	}
	if err := s.SetWeight(container, raw); err != nil {
		return err
	}
	if p.LimitMilli > 0 {
		quota := cgroup.Raw{Number: model.MilliCPUToQuota(p.LimitMilli, model.DefaultQuotaPeriod)}
		if err := errors.Join(s.setKnob(dir, model.Quota, quota), s.setKnob(container, model.Quota, quota)); err != nil {
			return fmt.Errorf("writing a quota: %w", err)
		}
	}
	if p.QoS != model.Burstable {
		return nil
	}
	k.burstableMilli += p.RequestMilli
	return k.writeBurstable()
}

// Create announces pods and makes their cgroups.
func (s *Sandbox) Create(pods ...*Pod) error {
	for _, p := range pods {
		if err := s.Announce(p); err != nil {
			return err
		}
		if err := s.MakeGroups(p); err != nil {
			return err
		}
	}
	return nil
}

// Adopt finds the cgroups of a pod that a real kubelet made, by the pod's UID and the id of its container.
func (s *Sandbox) Adopt(p *Pod, uid, container string) (err error) {
	if p.group, err = s.find(uid); err != nil {
		return fmt.Errorf("finding the cgroup of pod %s: %w", p.Name, err)
	}
	if p.container, err = s.find(container); err != nil {
		return fmt.Errorf("finding the cgroup of the container of pod %s: %w", p.Name, err)
	}
	return nil
}

// PodGroup returns the cgroup of a pod.
func (s *Sandbox) PodGroup(p *Pod) string {
	if p.group != "" {
		return p.group
	}
	return s.kubelet.layout.Pod(p.QoS, p.UID())
}

// ContainerGroup returns the cgroup of a pod's container.
func (s *Sandbox) ContainerGroup(p *Pod) string {
	if p.container != "" {
		return p.container
	}
	return s.PodGroup(p) + "/" + p.hash()
}
