package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
	"github.com/waterline-io/waterline/test/golden"
)

const line = "\n----\n"

// TestTopology reads the machines in testdata/topology; the README there explains them.
func TestTopology(t *testing.T) {
	machines := golden.Each(t, func(t *testing.T, content string) string {
		description, _, _ := strings.Cut(content, line)
		sys := build(t, description)
		top, err := ReadTopology(sys)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadTopology(sys)
		if err != nil {
			t.Error(err)
		}
		if d := fixture.Diff(top, again); d != "" {
			t.Errorf("two reads differ (-first +second):\n%s", d)
		}
		if online, err := OnlineCPUs(sys); err != nil || online != top.Online() {
			t.Errorf("online are %s, %v; in the topology are %s", online, err, top.Online())
		}
		return strings.TrimSuffix(description, "\n") + line + show(top)
	}, "testdata/topology/*.txt")
	if machines < 15 {
		t.Errorf("%d machines are described", machines)
	}
}

// show prints a topology, with a line for each cache domain in a NUMA node in a socket.
func show(t *model.Topology) string {
	type domain struct{ socket, node, l3 int }
	var domains []domain
	cores := map[domain]map[int]model.CPUSet{}
	for _, c := range t.CPUs {
		d := domain{c.Socket, c.Node, c.L3}
		if cores[d] == nil {
			cores[d] = map[int]model.CPUSet{}
			domains = append(domains, d)
		}
		cores[d][c.Core] = cores[d][c.Core].Or(model.CPUs(c.ID))
	}
	var b strings.Builder
	for _, d := range domains {
		fmt.Fprintf(&b, "socket %d node %d L3 %d:", d.socket, d.node, d.l3)
		var single model.CPUSet
		for _, id := range slices.Sorted(maps.Keys(cores[d])) {
			if threads := cores[d][id]; threads.Len() == 1 && threads.Has(id) {
				single.Add(id)
			} else {
				fmt.Fprintf(&b, " %d(%s)", id, threads)
			}
		}
		if !single.Empty() {
			fmt.Fprintf(&b, " each alone %s", single)
		}
		b.WriteString("\n")
	}
	for _, n := range t.Nodes {
		fmt.Fprintf(&b, "node %d memory %d\n", n.ID, n.Memory)
	}
	return b.String()
}

// TestTopologyOfThisMachine reads the real thing.
func TestTopologyOfThisMachine(t *testing.T) {
	top, err := ReadTopology(DefaultSys)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no sysfs here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !top.Online().Within(top.Possible) {
		t.Errorf("%s are online, %s possible", top.Online(), top.Possible)
	}
	for _, c := range top.CPUs {
		if c.Core > c.ID || c.L3 > c.ID || c.Socket < 0 || c.Node < 0 {
			t.Errorf("%+v is impossible", c)
		}
	}
	t.Log("\n" + show(top))
}

// TestBadTopology checks that invalid content gives an error with the file and the value, and no topology.
func TestBadTopology(t *testing.T) {
	const machine = "online 0-3\nsocket 0 0-3\ncore 0-3 /2\ncache 3 0-3 /4\nnode 0 0-3 4030464\n"
	const cpu, node = "devices/system/cpu/cpu2/", "devices/system/node/node0/"
	for _, tc := range []struct {
		file, text string
		want       error
		says       string
	}{
		{"devices/system/cpu/online", "0-x", model.ErrCPUList, `"0-x"`},
		{"devices/system/cpu/possible", "0-x", model.ErrCPUList, `"0-x"`},
		{"devices/system/cpu/online", "", ErrTopology, "names no CPU"},
		{"devices/system/cpu/online", "0-1535", model.ErrManyCPUs, "boot with nr_cpus=1024"},
		{"devices/system/cpu/online", "0-4", ErrTopology, "CPU 4 is online but in no cpulist"},
		{cpu + "topology/physical_package_id", "-2", ErrTopology, `the socket is "-2"`},
		{cpu + "topology/physical_package_id", "", ErrTopology, `the socket is ""`},
		{cpu + "topology/core_cpus_list", "2-3,", model.ErrCPUList, "ends in a comma"},
		{cpu + "topology/core_cpus_list", "2,1024", model.ErrManyCPUs, `"2,1024"`},
		{cpu + "cache/index0/level", "third", ErrTopology, `"third"`},
		{cpu + "cache/index0/level", "0", ErrTopology, `"0"`},
		{cpu + "cache/index0/shared_cpu_list", "3-0", model.ErrCPUList, `"3-0"`},
		{node + "cpulist", "0-3 4", model.ErrCPUList, `"0-3 4"`},
		{node + "meminfo", "Node 0 MemTotal: 10 MB", ErrTopology, `"Node 0 MemTotal: 10 MB"`},
		{node + "meminfo", "Node 0 MemTotal: 9223372036854775807 kB", ErrTopology, "9223372036854775807"},
		{node + "meminfo", "Node 0 MemFree: 12 kB", ErrTopology, "no line has the MemTotal"},
		{"devices/system/node/node1/cpulist", "3", ErrTopology, "CPU 3 is in the NUMA nodes 0 and 1"},
	} {
		t.Run(tc.says, func(t *testing.T) {
			sys := build(t, machine+"file "+tc.file+" "+tc.text+"\n")
			top, err := ReadTopology(sys)
			if !errors.Is(err, tc.want) || top != nil {
				t.Fatalf("got %v, %v, want %v", top, err, tc.want)
			}
			path := filepath.Join(sys, tc.file)
			if strings.Contains(tc.says, "CPU ") {
				path = filepath.Join(sys, "devices/system/node") // the files disagree: the CPU is named
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q does not say %q and %q", err, path, tc.says)
			}
		})
	}
	if _, err := ReadTopology(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without any file: %v", err)
	}
}

// TestPossible checks which CPUs are said to come perhaps.
func TestPossible(t *testing.T) {
	const machine = "online 0-1\nsocket 0 0-1\ncore 0-1 /2\ncache 3 0-1 /2\nnode 0 0-1 4030464\n"
	for text, want := range map[string]model.CPUSet{"0-3": model.CPUs(0, 1, 2, 3), "0-8191": {}} {
		top, err := ReadTopology(build(t, machine+"file devices/system/cpu/possible "+text+"\n"))
		if err != nil || top.Possible != want {
			t.Errorf("%s: %+v, %v", text, top, err)
		}
	}
}

// TestIsolated checks which CPUs are said to be isolated, on kernels with and without the file.
func TestIsolated(t *testing.T) {
	for text, want := range map[string]model.CPUSet{"2-3": model.CPUs(2, 3), "": {}, "0-8191": {}} {
		sys := t.TempDir()
		if err := os.MkdirAll(filepath.Join(sys, "devices/system/cpu"), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(sys, "devices/system/cpu/isolated"), text+"\n")
		if got, err := IsolatedCPUs(sys); err != nil || got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	if got, err := IsolatedCPUs(t.TempDir()); err != nil || !got.Empty() {
		t.Errorf("without the file: %s, %v", got, err)
	}
}

// TestHotplug checks that the list of online CPUs shows a change of the topology, and the cost of reading it.
func TestHotplug(t *testing.T) {
	sys := build(t, "online 0-3\nsocket 0 0-3\ncore 0-3 /2\ncache 3 0-3 /4\nnode 0 0-3 4030464\n")
	before, err := ReadTopology(sys)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(sys, "devices/system/cpu/online"), "0-2\n")
	online, err := OnlineCPUs(sys)
	if err != nil || online == before.Online() || online != model.CPUs(0, 1, 2) {
		t.Errorf("online are %s, %v", online, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = OnlineCPUs(sys) }); n > 3 {
		t.Errorf("a look allocates %g times", n)
	}
}

// TestTopologyWhileCPUsGo reads while a CPU goes on- and offline. Each result is one of the two states, never a
// mixture.
func TestTopologyWhileCPUsGo(t *testing.T) {
	sys := build(t, "online 0-3\nsocket 0 0-3\ncore 0-3 /2\ncache 3 0-3 /4\nnode 0 0-3 4030464\n")
	online := filepath.Join(sys, onlineFile)
	all, some := model.CPUs(0, 1, 2, 3), model.CPUs(0, 1, 2)
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for i := 0; err == nil; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			next := []string{"0-3\n", "0-2\n"}[i%2]
			if err = os.WriteFile(online+".new", []byte(next), 0o644); err == nil {
				err = os.Rename(online+".new", online)
			}
			time.Sleep(200 * time.Microsecond)
		}
		stopped <- err
	}()
	read, gaveUp := 0, 0
	for range 300 {
		top, err := ReadTopology(sys)
		switch {
		case err != nil && strings.Contains(err.Error(), "meanwhile, at the last of 3 tries"):
			gaveUp++
		case err != nil:
			t.Fatal(err)
		case top.Online() != all && top.Online() != some:
			t.Fatalf("read were CPUs %s", top.Online())
		default:
			read++
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d reads, %d given up", read, gaveUp)
	if read == 0 {
		t.Error("none was read")
	}
}

// FuzzTopology checks that any file content gives an error or a possible topology.
func FuzzTopology(f *testing.F) {
	for _, text := range []string{"0", "-1", "3", "0-3,8", "4294967295",
		"Node 0 MemTotal:       13461716 kB\nNode 0 MemFree: 1 kB", "Node 0 MemTotal: -1 kB"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if socket, err := parseSocket(text); err == nil && socket < 0 {
			t.Errorf("%q is socket %d", text, socket)
		}
		if level, err := parseLevel(text); err == nil && (level < 1 || level > 255) {
			t.Errorf("%q is level %d", text, level)
		}
		if memory, err := parseNodeMemory(text); err == nil && (memory < 0 || memory%1024 != 0) {
			t.Errorf("%q is %d bytes", text, memory)
		}
		if cpus, err := model.ParseCPUs(text); err == nil {
			if again, err := model.ParseCPUs(cpus.String()); err != nil || again != cpus {
				t.Errorf("%q is %q, which is %q, %v", text, cpus, again, err)
			}
		}
	})
}

// BenchmarkTopology measures reading a machine of 256 CPUs, and checking whether it changed.
func BenchmarkTopology(b *testing.B) {
	text, err := os.ReadFile("testdata/topology/epyc.txt")
	if err != nil {
		b.Fatal(err)
	}
	description, _, _ := strings.Cut(string(text), line)
	sys := build(b, description)
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = ReadTopology(sys)
		}
	})
	b.Run("look", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = OnlineCPUs(sys)
		}
	})
}

// build makes the tree of files of a machine.
func build(t testing.TB, description string) string {
	t.Helper()
	m := machine{t: t, sys: t.TempDir(), siblings: "core_cpus_list"}
	cpus, nodes := filepath.Join(m.sys, "devices/system/cpu"), filepath.Join(m.sys, "devices/system/node")
	for text := range strings.Lines(description) {
		fields := strings.Fields(text)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		switch verb, args := fields[0], fields[1:]; verb {
		case "old":
			m.siblings = "thread_siblings_list"
		case "online":
			write(t, filepath.Join(cpus, "online"), args[0]+"\n")
			m.each(args[0], func(dir string) { write(t, filepath.Join(dir, "uevent"), "") })
		case "offline":
			m.each(args[0], func(dir string) { write(t, filepath.Join(dir, "online"), "0\n") })
		case "socket":
			m.each(args[1], func(dir string) { write(t, filepath.Join(dir, "topology/physical_package_id"), args[0]+"\n") })
		case "core":
			for _, group := range m.groups(args) {
				m.each(group.String(), func(dir string) {
					write(t, filepath.Join(dir, "topology", m.siblings),
						group.String()+"\n")
				})
			}
		case "cache":
			for _, group := range m.groups(args[1:]) {
				m.each(group.String(), func(dir string) { m.cache(dir, args[0], group) })
			}
		case "node":
			dir, id, list := filepath.Join(nodes, "node"+args[0]), args[0], strings.Trim(args[1], "-")
			write(t, filepath.Join(dir, "cpulist"), list+"\n")
			write(t, filepath.Join(dir, "meminfo"), fmt.Sprintf("Node %s MemTotal: %14s kB\nNode %s MemFree: %14s kB\n", id,
				args[2], id, "1024"))
		case "file":
			write(t, filepath.Join(m.sys, args[0]), strings.Join(args[1:], " ")+"\n")
		default:
			t.Fatalf("%q describes nothing", text)
		}
	}
	return m.sys
}

// machine is a tree of files being made.
type machine struct {
	t        testing.TB
	sys      string
	siblings string // the file with the siblings
}

func (m *machine) list(list string) model.CPUSet {
	m.t.Helper()
	cpus, err := model.ParseCPUs(list)
	if err != nil {
		m.t.Fatal(err)
	}
	return cpus
}

func (m *machine) each(list string, do func(cpuDir string)) {
	cpus := m.list(list)
	for id := range cpus.All() {
		do(filepath.Join(m.sys, "devices/system/cpu/cpu"+strconv.Itoa(id)))
	}
}

// groups parses LIST, LIST /N and LIST /N +D.
func (m *machine) groups(args []string) []model.CPUSet {
	size, offset := 1, 0
	for _, arg := range args[1:] {
		n, err := strconv.Atoi(arg[1:])
		if err != nil {
			m.t.Fatal(err)
		}
		if arg[0] == '/' {
			size = n
		} else {
			offset = n
		}
	}
	cpus := m.list(args[0])
	var groups []model.CPUSet
	for run := range slices.Chunk(slices.Collect(cpus.All()), size) {
		group := model.CPUs(run...)
		for _, id := range run {
			group.Add(id + offset)
		}
		groups = append(groups, group)
	}
	return groups
}

// cache gives a CPU one more cache.
func (m *machine) cache(cpuDir, level string, shared model.CPUSet) {
	for i := 0; ; i++ {
		dir := filepath.Join(cpuDir, "cache", "index"+strconv.Itoa(i))
		if _, err := os.Stat(dir); err != nil {
			write(m.t, filepath.Join(dir, "level"), level+"\n")
			write(m.t, filepath.Join(dir, "shared_cpu_list"), shared.String()+"\n")
			return
		}
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
