package redisbench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Parts of the CPU time outside of pods that keep a node and its cluster running.
const (
	Kubelet      = "kubelet"       // with the container runtime
	ControlPlane = "control_plane" // as far as it is on this machine
)

// partOf returns the part that a process belongs to by its name, of which the kernel keeps 15 characters; "": neither.
func partOf(comm string) string {
	switch comm {
	case "kubelet", "containerd", "containerd-shim", "crio", "conmon":
		return Kubelet
	case "etcd", "kube-apiserver", "kube-controller", "kube-scheduler", "waterline-manag":
		return ControlPlane
	}
	return ""
}

// readNodeCPU returns the CPU time of the processes of both parts that run now. The time of a process that has ended is
// in neither.
func readNodeCPU(proc string) (map[string]time.Duration, error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat"))
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	used := map[string]time.Duration{Kubelet: 0, ControlPlane: 0}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		comm, cpu, err := parseProcess(string(content))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if part := partOf(comm); part != "" {
			used[part] += cpu
		}
	}
	return used, nil
}

// parseProcess finds in /proc/PID/stat the name of a process, which may hold any character, and its CPU time in user
// and kernel mode, which the kernel counts in hundredths of a second.
func parseProcess(stat string) (comm string, cpu time.Duration, err error) {
	begin, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if begin < 0 || end < begin {
		return "", 0, fmt.Errorf("%q has no name in it", stat)
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 13 {
		return "", 0, fmt.Errorf("%q has no CPU time in it", stat)
	}
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return "", 0, fmt.Errorf("%q has no CPU time in it: %w", stat, err)
		}
		cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	return stat[begin+1 : end], cpu, nil
}
