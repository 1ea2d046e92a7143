package vm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Topology is how the CPUs of a guest hang together. The zero value leaves that to qemu, which then makes one socket
// and no NUMA.
//
// With any other, the CPU claims to be a Skylake server, whichever the host has: an emulated AMD CPU cannot tell of
// threads (qemu 7.2 has no topology extensions without KVM, and the kernel then sees a core in each), and to the kernel
// (6.1) a last-level cache that spans NUMA nodes, as qemu's does when a socket has several, is only sane on those Intel
// CPUs that are known to have sub-NUMA clusters.
type Topology struct {
	Sockets int
	Nodes   int // NUMA nodes in each socket
	Cores   int // physical cores in each node
	Threads int // hardware threads of each core
}

// CPUs returns how many CPUs the guest sees.
func (t Topology) CPUs() int { return t.Sockets * t.Nodes * t.Cores * t.Threads }

// String returns the topology as [ParseTopology] reads it.
func (t Topology) String() string {
	return fmt.Sprintf("%dx%dx%dx%d", t.Sockets, t.Nodes, t.Cores, t.Threads)
}

// mostCPUs is more than an emulator has any use for, and what keeps products of four numbers in bounds.
const mostCPUs = 64

// ParseTopology reads a topology from its four numbers, such as 2x2x1x2 for two sockets of two NUMA nodes of one core
// of two threads.
func ParseTopology(text string) (Topology, error) {
	var n [4]int
	parts := strings.Split(text, "x")
	ok := len(parts) == len(n)
	for i := 0; ok && i < len(n); i++ {
		var err error
		n[i], err = strconv.Atoi(parts[i])
		ok = err == nil && n[i] > 0 && n[i] <= mostCPUs
	}
	t := Topology{Sockets: n[0], Nodes: n[1], Cores: n[2], Threads: n[3]}
	switch {
	case !ok:
		return Topology{}, errors.New("want four numbers, SOCKETSxNODESxCORESxTHREADS, such as 2x2x1x2")
	case t.CPUs() > mostCPUs:
		return Topology{}, fmt.Errorf("%d CPUs are too many, at most %d", t.CPUs(), mostCPUs)
	}
	return t, nil
}

// args returns what qemu is told of the topology and of the memory, in MiB, which the NUMA nodes have in equal parts.
func (t Topology) args(memory int) []string {
	nodes := t.Sockets * t.Nodes
	args := []string{
		"-cpu", "max,la57=off,vendor=GenuineIntel,family=6,model=85",
		"-smp", fmt.Sprintf("%d,sockets=%d,cores=%d,threads=%d", t.CPUs(), t.Sockets, t.Nodes*t.Cores, t.Threads),
	}
	for i := range nodes {
		size := memory / nodes
		if i == 0 {
			size += memory % nodes
		}
		first := i * t.Cores * t.Threads
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", i, size),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=m%d,cpus=%d-%d", i, i, first, first+t.Cores*t.Threads-1),
		)
	}
	return args
}
