package nri

import (
	"cmp"
	"context"
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

// Files below sysfs with the usable CPUs and NUMA nodes. The kernel rejects a set with an offline CPU or with a
// NUMA node without memory, and the container could then not be created.
const (
	usableCPUs = "devices/system/cpu/online"
	usableMems = "devices/system/node/has_memory"
)

// configSource is the annotation in which the kubelet notes where it has a pod from. It overwrites what a user wrote.
const configSource, fromAPI = "kubernetes.io/config.source", "api"

func (s *session) onConfigure(q *api.ConfigureRequest) *api.ConfigureResponse {
	s.timeout.Store(int64(time.Duration(q.GetRequestTimeout()) * time.Millisecond))
	s.configure.Do(func() { close(s.configured) })
	return &api.ConfigureResponse{Events: int32(events())}
}

// onSynchronize receives the existing containers. It answers without updates, although the runtime's specs may
// have other CPUs than the plan. Each update would cost the runtime one run of runc update, tens of
// milliseconds, while the agent's loop writes the kernel's file in microseconds. The outdated spec does no
// harm: the runtime uses it only when it updates the container, and onUpdate corrects it then.
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
		if s.client.cfg.Runs != nil && c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			s.client.cfg.Runs(container(pods[c.GetPodSandboxId()], c))
		}
	}
	return &api.SynchronizeResponse{}
}

func (s *session) onCreate(q *api.CreateContainerRequest) *api.CreateContainerResponse {
	c := container(q.GetPod(), q.GetContainer())
	answer := &api.CreateContainerResponse{}
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

// onUpdate answers an update with the current CPUs of the container. At every update the runtime writes its
// whole spec to the kernel, and the spec still has the CPUs of the container's creation or last update.
func (s *session) onUpdate(q *api.UpdateContainerRequest) *api.UpdateContainerResponse {
	c := container(q.GetPod(), q.GetContainer())
	c.Update = true
	if requested := q.GetLinuxResources().GetCpu(); requested != nil {
		c.CPUs, c.Mems = cmp.Or(requested.GetCpus(), c.CPUs), cmp.Or(requested.GetMems(), c.Mems)
	}
	cpu, _ := s.place(c)
	if cpu == nil || c.ID == "" {
		return &api.UpdateContainerResponse{}
	}
	return &api.UpdateContainerResponse{Update: []*api.ContainerUpdate{{
		ContainerId: c.ID,
		Linux:       &api.LinuxContainerUpdate{Resources: &api.LinuxResources{Cpu: cpu}},
		// If another plugin sets the CPUs too, the runtime continues the update without this answer.
		IgnoreFailure: true,
	}}}
}

// onStart is called when the container's cgroup exists with all of the runtime's settings, and its only process, which
// is the runtime's own, waits for the runtime before it becomes the container's. The runtime waits for the answer.
//
// Containerd and CRI-O relay requests of all containers one after the other, and close the connection to a plugin that
// has not answered in time. So Start has half of that time.
func (s *session) onStart(ctx context.Context, q *api.StartContainerRequest) *api.StartContainerResponse {
	if s.client.cfg.Start != nil {
		timeout := cmp.Or(time.Duration(s.timeout.Load()), defaultTimeout)
		ctx, cancel := context.WithTimeout(ctx, timeout/2)
		defer cancel()
		s.client.cfg.Start(ctx, container(q.GetPod(), q.GetContainer()))
		if ctx.Err() != nil {
			s.client.late.Add(1)
		}
	}
	return &api.StartContainerResponse{}
}

// onStateChange is how runtimes with NRI before 0.12 relay the start of a container.
func (s *session) onStateChange(ctx context.Context, q *api.StateChangeEvent) *api.Empty {
	if q.GetEvent() == api.Event_START_CONTAINER {
		s.onStart(ctx, &api.StartContainerRequest{Pod: q.GetPod(), Container: q.GetContainer()})
	}
	return &api.Empty{}
}

// place returns the placement of a container: its CPUs and its oom_score_adj. Nil and 0 mean that the runtime
// decides.
func (s *session) place(c model.RuntimeContainer) (cpu *api.LinuxCPU, score int) {
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
		err = fmt.Errorf("placing container %s of pod %s/%s: %w", c.Name, c.Namespace, c.Pod, err)
		s.client.report(AboutAnswers, err)
		return nil, p.OOMScore
	}
	s.client.report(AboutAnswers, nil)
	if cpus == "" && mems == "" {
		return nil, p.OOMScore
	}
	return &api.LinuxCPU{Cpus: cpus, Mems: mems}, p.OOMScore
}

// usable returns a list in the kernel's format. It returns an error if the kernel would reject the list.
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
		return "", fmt.Errorf("reading the usable CPUs or NUMA nodes: %w", err)
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

// container converts the runtime's messages about a container. Missing parts are empty.
func container(pod *api.PodSandbox, c *api.Container) model.RuntimeContainer {
	linux := c.GetLinux()
	cpu := linux.GetResources().GetCpu()
	source := pod.GetAnnotations()[configSource]
	return model.RuntimeContainer{
		PodUID: pod.GetUid(), Namespace: pod.GetNamespace(), Pod: pod.GetName(),
		Name: c.GetName(), ID: c.GetId(), Dir: dir(linux.GetCgroupsPath()),
		CPUs: cpu.GetCpus(), Mems: cpu.GetMems(), OOMScore: int(linux.GetOomScoreAdj().GetValue()),
		Static: source != "" && source != fromAPI,
	}
}

// dir returns the directory for the cgroup path in a runtime's spec. With the systemd driver that path is
// "slice:prefix:name". A slice is nested in one slice for each dash in its name.
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
