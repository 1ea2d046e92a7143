package experiment

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What keeps a node and its cluster running, outside of the pods that are measured.
const (
	nodeUpkeep    = "kubelet"       // and the container runtime
	clusterUpkeep = "control_plane" // what of it is on this machine
)

// upkeepOf returns what of these a process is, by its name, of which the kernel keeps 15 characters; "": neither.
func upkeepOf(comm string) string {
	switch comm {
	case "kubelet", "containerd", "containerd-shim", "crio", "conmon":
		return nodeUpkeep
	case "etcd", "kube-apiserver", "kube-controller", "kube-scheduler", "waterline-manag":
		return clusterUpkeep
	}
	return ""
}

// readUpkeep returns how much CPU time the processes of both have had that are there now. What one of them used that ended
// meanwhile is in neither.
func readUpkeep(proc string) (map[string]time.Duration, error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat"))
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	used := map[string]time.Duration{nodeUpkeep: 0, clusterUpkeep: 0}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		comm, cpu, err := parseProcess(string(content))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if of := upkeepOf(comm); of != "" {
			used[of] += cpu
		}
	}
	return used, nil
}

// parseProcess finds in /proc/PID/stat the name of a process, which may have anything in it, and its CPU time, in user and
// kernel mode, which the kernel tells in hundredths of a second.
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
