package nri

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/waterline-io/waterline/internal/model"
)

// Where sysfs lists what a set may name. The kernel refuses a set with a CPU that is offline or a NUMA node without
// memory, and then the container could not be created.
const (
	usableCPUs = "devices/system/cpu/online"
	usableMems = "devices/system/node/has_memory"
)

func (s *session) onConfigure(*api.ConfigureRequest) *api.ConfigureResponse {
	s.configure.Do(func() { close(s.configured) })
	return &api.ConfigureResponse{Events: int32(events())}
}

// onSynchronize learns which containers there are. It answers with no updates, although the runtime's specs may name other
// CPUs than ours: each update would cost the runtime a run of runc update, tens of milliseconds, where the agent's loop
// writes the kernel's file in microseconds. That the spec is old then does no harm, because the runtime uses it only when
// it updates the container, and onUpdate sets it right at that moment.
func (s *session) onSynchronize(q *api.SynchronizeRequest) *api.SynchronizeResponse {
	if s.pods == nil {
		s.pods = map[string]*api.PodSandbox{}
	}
	for _, pod := range q.GetPods() {
		s.pods[pod.GetId()] = pod
	}
	s.containers = append(s.containers, q.GetContainers()...)
	if q.GetMore() {
		return &api.SynchronizeResponse{More: true}
	}
	pods, containers := s.pods, s.containers
	s.pods, s.containers = nil, nil
	now := time.Now()
	if s.since.Swap(&now) == nil {
		s.client.connections.Add(1)
	}
	s.client.connected.Store(true)
	s.client.report(AboutConnection, nil)
	for _, c := range containers {
		if c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			s.seen(container(pods[c.GetPodSandboxId()], c))
		}
	}
	return &api.SynchronizeResponse{}
}

func (s *session) onCreate(q *api.CreateContainerRequest) *api.CreateContainerResponse {
	c := container(q.GetPod(), q.GetContainer())
	answer := &api.CreateContainerResponse{}
	// Even if this should panic, the loop is to learn of the container.
	defer s.seen(c)
	cpu, score := s.place(c)
	if cpu == nil && score == 0 {
		return answer
	}
	linux := &api.LinuxContainerAdjustment{}
	if cpu != nil {
		linux.Resources = &api.LinuxResources{Cpu: cpu}
	}
	if score != 0 {
		linux.OomScoreAdj = api.Int(score)
	}
	answer.Adjust = &api.ContainerAdjustment{Linux: linux}
	return answer
}

// onUpdate says where the container runs now. The runtime writes all of its spec to the kernel at every update, and there
// the CPUs are still those that it had when it was created or last updated.
func (s *session) onUpdate(q *api.UpdateContainerRequest) *api.UpdateContainerResponse {
	c := container(q.GetPod(), q.GetContainer())
	c.Update = true
	if asked := q.GetLinuxResources().GetCpu(); asked != nil {
		c.CPUs, c.Mems = cmp.Or(asked.GetCpus(), c.CPUs), cmp.Or(asked.GetMems(), c.Mems)
	}
	cpu, _ := s.place(c)
	if cpu == nil || c.ID == "" {
		return &api.UpdateContainerResponse{}
	}
	return &api.UpdateContainerResponse{Update: []*api.ContainerUpdate{{
		ContainerId: c.ID,
		Linux:       &api.LinuxContainerUpdate{Resources: &api.LinuxResources{Cpu: cpu}},
		// Where another plugin sets the CPUs too, the update is to go on without ours.
		IgnoreFailure: true,
	}}}
}

func (s *session) seen(c Container) {
	if s.client.cfg.Seen != nil {
		s.client.cfg.Seen(c)
	}
}

// place asks where a container is to run and what oom_score_adj it has; nil and 0: nothing to say.
func (s *session) place(c Container) (cpu *api.LinuxCPU, score int) {
	if s.client.cfg.Place == nil {
		return nil, 0
	}
	p, ok := s.client.cfg.Place(c)
	if !ok {
		s.client.report(AboutAnswers, nil)
		return nil, 0
	}
	cpus, err1 := s.usable(p.CPUs, usableCPUs)
	mems, err2 := s.usable(p.Mems, usableMems)
	if err := errors.Join(err1, err2); err != nil {
		s.client.report(AboutAnswers, fmt.Errorf("placing container %s of pod %s/%s: %w", c.Name, c.Namespace, c.Pod, err))
		return nil, p.OOMScore
	}
	s.client.report(AboutAnswers, nil)
	if cpus == "" && mems == "" {
		return nil, p.OOMScore
	}
	return &api.LinuxCPU{Cpus: cpus, Mems: mems}, p.OOMScore
}

// usable returns a list as the kernel writes it, if the kernel would take it.
func (s *session) usable(list, file string) (string, error) {
	if list == "" {
		return "", nil
	}
	set, err := model.ParseCPUs(list)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.client.cfg.Sys, file)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return set.String(), nil // a kernel without NUMA
	}
	if err != nil {
		return "", fmt.Errorf("reading what may be used: %w", err)
	}
	online, err := model.ParseCPUs(string(content))
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if !set.Within(online) {
		return "", fmt.Errorf("%q is not within %s, which is %q", list, path, online)
	}
	return set.String(), nil
}

// container returns what is known of a container. Whatever the runtime leaves out is empty.
func container(pod *api.PodSandbox, c *api.Container) Container {
	linux := c.GetLinux()
	cpu := linux.GetResources().GetCpu()
	return Container{
		PodUID: pod.GetUid(), Namespace: pod.GetNamespace(), Pod: pod.GetName(),
		Name: c.GetName(), ID: c.GetId(), Dir: dir(linux.GetCgroupsPath()),
		CPUs: cpu.GetCpus(), Mems: cpu.GetMems(), OOMScore: int(linux.GetOomScoreAdj().GetValue()),
	}
}

// dir returns the directory for the path in a runtime's spec. With the systemd driver that is "slice:prefix:name", where a
// slice stands below all those that its name begins with.
func dir(path string) string {
	slice, scope, isSystemd := strings.Cut(path, ":")
	if !isSystemd {
		return strings.Trim(path, "/")
	}
	prefix, name, _ := strings.Cut(scope, ":")
	var b strings.Builder
	stem := strings.TrimSuffix(slice, ".slice")
	for i := range stem {
		if stem[i] == '-' {
			b.WriteString(stem[:i] + ".slice/")
		}
	}
	return b.String() + slice + "/" + prefix + "-" + name + ".scope"
}
