package host

import "bytes"

// thread is what the kernel says of a process or a kernel thread.
type thread struct {
	name             []byte
	kernel, realtime bool
}

// parseThread parses the content of /proc/PID/stat.
func parseThread(content []byte) (t thread, ok bool) {
	begin, end := bytes.IndexByte(content, '('), bytes.LastIndexByte(content, ')')
	if begin < 0 || end < begin {
		return t, false
	}
	t.name = content[begin+1 : end]
	const flags, realtime, isKernel = 6, 37, 0x200000 // fields 9 and 40 of proc(5), and PF_KTHREAD
	field := 0
	for text := range bytes.FieldsSeq(content[end+1:]) {
		if field == flags || field == realtime {
			n, _, ok := nextNumber(text)
			if !ok {
				return t, false
			}
			if field == flags {
				t.kernel = n&isKernel != 0
			} else {
				t.realtime = n > 0
			}
		}
		field++
	}
	return t, field > realtime
}

// ownThread reports whether others wait for a kernel thread that waits for a CPU. These are threads that work for one
// CPU, or for the whole machine: network packets and timers (ksoftirqd), completed input and output and other work of
// one CPU (kworker/CPU:, those of high priority too), the end of grace periods, for which each change of a cgroup waits
// (rcu), memory for whoever needs it (kswapd), and the journals of file systems, for which each fsync waits.
//
// The others are left out. A worker that is bound to no CPU (kworker/u) runs on any free one, real-time threads never
// wait for pods, and no task waits for threads that clean up.
func ownThread(name []byte) bool {
	for _, prefix := range []string{"ksoftirqd/", "rcu_preempt", "rcu_sched", "kswapd", "jbd2/", "xfs-cil/", "xfsaild/"} {
		if bytes.HasPrefix(name, []byte(prefix)) {
			return true
		}
	}
	rest, worker := bytes.CutPrefix(name, []byte("kworker/"))
	return worker && len(rest) > 0 && '0' <= rest[0] && rest[0] <= '9'
}

// groupOfName returns the group of services that has a program of this name. The kernel keeps 15 bytes of a name.
func groupOfName(name []byte) int {
	switch string(name) {
	case "kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent":
		return kubeletGroup
	case "containerd", "crio", "conmon", "dockerd", "cri-dockerd":
		return runtimeGroup
	}
	if bytes.HasPrefix(name, []byte("containerd-shim")) {
		return runtimeGroup
	}
	return noGroup
}

// hasCPU reports whether a list of controllers has the one for CPU.
func hasCPU(controllers []byte) bool {
	for name := range bytes.SplitSeq(controllers, []byte{','}) {
		if string(name) == "cpu" {
			return true
		}
	}
	return false
}
