package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
)

// DefaultSys is the mount point of sysfs on a host.
const DefaultSys = "/sys"

const (
	onlineFile   = "/devices/system/cpu/online"
	possibleFile = "/devices/system/cpu/possible"
	isolatedFile = "/devices/system/cpu/isolated" // by the kernel argument isolcpus; since 4.2
	cpuDirs      = "/devices/system/cpu/cpu"
	nodesDir     = "/devices/system/node"
)

// ErrTopology is in the chain of errors of [ReadTopology] about impossible file content.
var ErrTopology = errors.New("impossible CPU topology in sysfs")

// OnlineCPUs returns the CPUs that are online, from one file below sys (see [DefaultSys]). It is cheap enough
// to call often: three system calls, at most three small allocations.
//
// The kernel puts a CPU online a moment before it describes the caches of that CPU. After a change of the set,
// read the topology at once and again a while later.
func OnlineCPUs(sys string) (model.CPUSet, error) {
	path := sys + onlineFile
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return model.CPUSet{}, fmt.Errorf("opening %s: %w", path, err)
	}
	var page [4096]byte // a read of a sysfs file returns at most one page
	n, err := unix.Read(fd, page[:])
	_ = unix.Close(fd)
	if err != nil {
		return model.CPUSet{}, fmt.Errorf("reading %s: %w", path, err)
	}
	online, err := model.ParseCPUs(string(page[:n]))
	switch {
	case errors.Is(err, model.ErrManyCPUs):
		return online, fmt.Errorf("reading %s: %w; to place CPUs here, boot with nr_cpus=%d or take the CPUs above offline",
			path, err, model.MaxCPUs)
	case err != nil:
		return online, fmt.Errorf("reading %s: %w", path, err)
	case online.Empty():
		return online, fmt.Errorf("%w: %s names no CPU", ErrTopology, path)
	}
	return online, nil
}

// IsolatedCPUs returns the CPUs that the kernel keeps out of load balancing, by its argument isolcpus.
func IsolatedCPUs(sys string) (model.CPUSet, error) {
	isolated, _, err := readParsed(sys+isolatedFile, model.ParseCPUs)
	if errors.Is(err, model.ErrManyCPUs) {
		err = nil
	}
	return isolated, err
}

// ReadTopology reads the topology of the online CPUs of this machine from the files below sys (see
// [DefaultSys]). Two reads of the same machine give the same result. After a CPU goes on- or offline,
// [model.CPU.Core] and [model.CPU.L3] may be other numbers, because the kernel removes an offline CPU from
// every list.
//
// Missing information is replaced as follows:
//   - The set of possible CPUs is unknown on a machine with more than [model.MaxCPUs].
//   - A machine without NUMA has one node, 0, whose memory is unknown (0 bytes).
//   - A CPU without a socket is in socket 0. Virtual machines on ARM report socket -1; where sockets matter, their NUMA
//     nodes separate the CPUs as well.
//   - A CPU without siblings is a core of its own.
//   - For CPUs without a last-level cache see assignL3.
//
// The error has [ErrTopology] or [model.ErrCPUList] in its chain if a file has impossible content.
func ReadTopology(sys string) (*model.Topology, error) {
	const tries = 3
	for try := 1; ; try++ {
		before, err := OnlineCPUs(sys)
		if err != nil {
			return nil, err
		}
		t, err := readTopology(sys, before)
		after, afterErr := OnlineCPUs(sys)
		switch {
		case afterErr != nil:
			return nil, afterErr
		case before == after && err == nil:
			return t, nil
		case try < tries: // a CPU went on- or offline meanwhile, and the read mixes both states
		case err != nil:
			return nil, err
		default:
			return nil, fmt.Errorf("reading the CPU topology: the CPUs online went from %s to %s meanwhile, "+
				"at the last of %d tries", before, after, tries)
		}
	}
}

func readTopology(sys string, online model.CPUSet) (*model.Topology, error) {
	nodes, nodeOf, err := readNodes(sys, online)
	if err != nil {
		return nil, err
	}
	t := &model.Topology{Nodes: nodes}
	t.Possible, _, err = readParsed(sys+possibleFile, model.ParseCPUs)
	if err != nil && !errors.Is(err, model.ErrManyCPUs) {
		return nil, err
	}
	cores := newGroups()
	caches := make([]cache, 0, online.Len())
	for id := range online.All() {
		dir := sys + cpuDirs + strconv.Itoa(id)
		socket, _, err := readParsed(dir+"/topology/physical_package_id", parseSocket)
		if err != nil {
			return nil, err
		}
		siblings, err := readSiblings(dir)
		if err != nil {
			return nil, err
		}
		c, err := readCache(dir)
		if err != nil {
			return nil, err
		}
		cores.join(id, siblings.And(online))
		c.shared = c.shared.And(online)
		caches = append(caches, c)
		t.CPUs = append(t.CPUs, model.CPU{ID: id, Socket: socket, Node: nodeOf[id]})
	}
	for i := range t.CPUs {
		t.CPUs[i].Core = cores.find(t.CPUs[i].ID)
	}
	assignL3(t.CPUs, caches)
	return t, nil
}

// assignL3 sets the domain of the last-level cache of each CPU.
//
// A third-level cache is a domain, whether or not CPUs share it: on some EPYC machines every core has its own.
// A second-level cache is a domain if several cores share it, as on small ARM machines.
//
// A cache private to one core is not the last level. Either sysfs does not describe the cache behind it, such
// as the system-level cache of ARM servers, or it describes no caches, as in many virtual machines. Then the
// CPUs of a NUMA node in one socket form a domain, because they are the closest to each other and to memory
// after the private caches. The whole socket would be too wide, since domains are filled within nodes.
func assignL3(cpus []model.CPU, caches []cache) {
	coreOf := map[int]int{}
	for i := range cpus {
		coreOf[cpus[i].ID] = cpus[i].Core
	}
	type place struct{ socket, node int }
	domains, unknown := newGroups(), map[place]int{}
	for i := range cpus {
		c := &cpus[i]
		known := caches[i].level >= 3
		if caches[i].level == 2 {
			for other := range caches[i].shared.All() {
				known = known || coreOf[other] != c.Core
			}
		}
		if known {
			domains.join(c.ID, caches[i].shared)
			continue
		}
		at := place{c.Socket, c.Node}
		if first, found := unknown[at]; found {
			domains.join(c.ID, model.CPUs(first))
		} else {
			unknown[at] = c.ID
		}
	}
	for i := range cpus {
		cpus[i].L3 = domains.find(cpus[i].ID)
	}
}

// groups joins CPUs that share a core or a cache into groups (union-find). For each CPU it holds the lowest CPU
// of the group, or a CPU on the way to it. The kernel's lists need not agree with each other, and on virtual
// machines they do not always: a CPU that claims to share with another CPU joins the whole group of that CPU.
type groups []int

func newGroups() groups {
	g := make(groups, model.MaxCPUs)
	for id := range g {
		g[id] = id
	}
	return g
}

func (g groups) find(id int) int {
	for g[id] != id {
		id = g[id]
	}
	return id
}

func (g groups) join(id int, others model.CPUSet) {
	for other := range others.All() {
		a, b := g.find(id), g.find(other)
		g[max(a, b)] = min(a, b)
	}
}

// readNodes reads the NUMA nodes and the node of each CPU.
func readNodes(sys string, online model.CPUSet) ([]model.NUMANode, map[int]int, error) {
	nodeOf := map[int]int{}
	var nodes []model.NUMANode
	entries, err := os.ReadDir(sys + nodesDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("listing the NUMA nodes: %w", err)
	}
	for _, entry := range entries {
		digits, isNode := strings.CutPrefix(entry.Name(), "node")
		id, err := strconv.ParseUint(digits, 10, 31)
		if !isNode || err != nil {
			continue // not a node's directory
		}
		node, cpus, err := readNode(filepath.Join(sys+nodesDir, entry.Name()), int(id))
		if err != nil {
			return nil, nil, err
		}
		cpus = cpus.And(online)
		for cpu := range cpus.All() {
			if other, found := nodeOf[cpu]; found {
				return nil, nil, fmt.Errorf("%w: CPU %d is in the NUMA nodes %d and %d, by their cpulist below %s",
					ErrTopology, cpu, other, node.ID, sys+nodesDir)
			}
			nodeOf[cpu] = node.ID
		}
		if node.Memory > 0 || !cpus.Empty() {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) == 0 {
		return []model.NUMANode{{}}, nodeOf, nil // on a kernel without NUMA every CPU is in node 0
	}
	for cpu := range online.All() {
		if _, found := nodeOf[cpu]; !found {
			return nil, nil, fmt.Errorf("%w: CPU %d is online but in no cpulist of a NUMA node below %s",
				ErrTopology, cpu, sys+nodesDir)
		}
	}
	slices.SortFunc(nodes, func(a, b model.NUMANode) int { return a.ID - b.ID })
	return nodes, nodeOf, nil
}

func readNode(dir string, id int) (model.NUMANode, model.CPUSet, error) {
	node := model.NUMANode{ID: id}
	cpus, _, err := readParsed(filepath.Join(dir, "cpulist"), model.ParseCPUs)
	if err == nil {
		node.Memory, _, err = readParsed(filepath.Join(dir, "meminfo"), parseNodeMemory)
	}
	return node, cpus, err
}

// readSiblings reads the CPUs that share a core with a CPU.
func readSiblings(cpuDir string) (model.CPUSet, error) {
	siblings, found, err := readParsed(filepath.Join(cpuDir, "topology/core_cpus_list"), model.ParseCPUs)
	if !found && err == nil { // before Linux 5.3
		siblings, _, err = readParsed(filepath.Join(cpuDir, "topology/thread_siblings_list"), model.ParseCPUs)
	}
	return siblings, err
}

// cache is the last cache of a CPU, the one with the highest level.
type cache struct {
	level  int // 0: sysfs describes no cache
	shared model.CPUSet
}

// readCache reads the cache with the highest level that sysfs describes.
func readCache(cpuDir string) (cache, error) {
	dir := filepath.Join(cpuDir, "cache")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cache{}, fmt.Errorf("listing the caches: %w", err)
	}
	var last cache
	for _, entry := range entries { // the numbers can have gaps: the kernel hides caches of unknown type
		if !strings.HasPrefix(entry.Name(), "index") {
			continue
		}
		level, _, err := readParsed(filepath.Join(dir, entry.Name(), "level"), parseLevel)
		if err != nil {
			return cache{}, err
		}
		if level <= last.level {
			continue
		}
		shared, found, err := readParsed(filepath.Join(dir, entry.Name(), "shared_cpu_list"), model.ParseCPUs)
		if err != nil {
			return cache{}, err
		}
		if found {
			last = cache{level: level, shared: shared}
		}
	}
	return last, nil
}

// readParsed reads and parses a file. If the file does not exist, found is false and value is the zero value.
func readParsed[T any](path string, parse func(string) (T, error)) (value T, found bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return value, false, nil
	}
	if err != nil {
		return value, false, fmt.Errorf("reading the CPU topology: %w", err)
	}
	value, err = parse(string(bytes.TrimSpace(text)))
	if err != nil {
		return value, false, fmt.Errorf("reading the CPU topology: %s: %w", path, err)
	}
	return value, true, nil
}

// parseSocket parses physical_package_id. It reads -1 where the kernel knows no sockets, which counts as socket
// 0.
func parseSocket(text string) (int, error) {
	if text == "-1" {
		return 0, nil
	}
	id, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%w: the socket is %.64q", ErrTopology, text)
	}
	return int(id), nil
}

// parseLevel parses the level of a cache, which is at least 1.
func parseLevel(text string) (int, error) {
	level, err := strconv.ParseUint(text, 10, 8)
	if err != nil || level == 0 {
		return 0, fmt.Errorf("%w: the level of a cache is %.64q", ErrTopology, text)
	}
	return int(level), nil
}

// parseNodeMemory returns MemTotal from the meminfo of a NUMA node, in bytes.
func parseNodeMemory(text string) (int64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line) // Node 0 MemTotal: 65711028 kB
		if len(fields) < 4 || fields[2] != "MemTotal:" {
			continue
		}
		kib, err := strconv.ParseUint(fields[3], 10, 63)
		if err != nil || kib > math.MaxInt64/1024 || len(fields) != 5 || fields[4] != "kB" {
			return 0, fmt.Errorf("%w: the memory of a NUMA node is %.64q", ErrTopology, strings.TrimSpace(line))
		}
		return int64(kib) * 1024, nil
	}
	return 0, fmt.Errorf("%w: no line has the MemTotal of a NUMA node", ErrTopology)
}
