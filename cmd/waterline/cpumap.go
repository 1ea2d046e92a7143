package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/model"
)

// The marks of a CPU in the map, the first that holds.
const (
	markTwice     = '!'
	markExclusive = 'E'
	markShare     = 's'
	markReserved  = 'r'
	markShared    = '.'
	markNone      = '-'
)

type cpuView struct {
	m      *serve.CPUMap
	online model.CPUSet
	twice  model.CPUSet   // exclusive and also in another pool, or two pods' at once
	on     map[int]string // who has it as a CPU of its own; "" or none: nobody
	rows   []cpuRow
}

// cpuRow is one line of the map: neighbouring cores with the same in the same places.
type cpuRow struct {
	socket, node, l3 int
	cores            model.CPUSet
	cpus             model.CPUSet
	marks            string   // of the threads of each of the cores
	who              []string // on them
}

// printCPUMap prints the CPUs of a node and their users. The node's name is "" if it is not known.
func printCPUMap(out io.Writer, m *serve.CPUMap, node string, paint func(byte) string) error {
	v := newCPUView(m)
	v.printMachine(out, node)
	v.printRows(out, paint)
	v.printPools(out, paint)
	if err := v.printPods(out); err != nil {
		return err
	}
	printEach(out, "\nnotice: %s\n", m.Notices)
	return nil
}

func newCPUView(m *serve.CPUMap) *cpuView {
	v := &cpuView{m: m, on: map[int]string{}}
	v.twice = m.Exclusive.And(m.Reserved.Or(m.Share).Or(m.Shared))
	owners := map[int][]serve.CPUPod{}
	for _, p := range m.Pods {
		for id := range p.CPUs.All() {
			owners[id] = append(owners[id], p)
			if first := owners[id][0]; m.Exclusive.Has(id) && (p.Namespace != first.Namespace || p.Name != first.Name) {
				v.twice.Add(id) // containers of one pod may have CPUs together
			}
		}
	}
	for id, pods := range owners {
		v.on[id] = first(namesOf(pods, func(p *serve.CPUPod) string {
			return p.Namespace + "/" + p.Name + "/" + p.Container
		}), 3)
	}
	if m.Topology != nil {
		v.online = m.Topology.Online()
		v.makeRows()
	}
	return v
}

// makeRows makes a row of each core, then one of all neighbours that look the same.
func (v *cpuView) makeRows() {
	cpus := slices.SortedFunc(slices.Values(v.m.Topology.CPUs), func(a, b model.CPU) int {
		return cmp.Or(a.Socket-b.Socket, a.Node-b.Node, a.L3-b.L3, a.Core-b.Core, a.ID-b.ID)
	})
	var rows []cpuRow
	for _, c := range cpus {
		core := cpuRow{socket: c.Socket, node: c.Node, l3: c.L3, cores: model.CPUs(c.Core)}
		if n := len(rows); n == 0 || !rows[n-1].cores.Has(c.Core) || !rows[n-1].sameDomain(&core) {
			rows = append(rows, core)
		}
		r := &rows[len(rows)-1]
		r.cpus.Add(c.ID)
		r.marks += string(rune(v.mark(c.ID)))
		r.who = append(r.who, v.who(c.ID))
	}
	for _, r := range rows {
		if n := len(v.rows); n > 0 && v.rows[n-1].sameDomain(&r) && v.rows[n-1].marks == r.marks &&
			slices.Equal(v.rows[n-1].who, r.who) {
			v.rows[n-1].cores = v.rows[n-1].cores.Or(r.cores)
			v.rows[n-1].cpus = v.rows[n-1].cpus.Or(r.cpus)
		} else {
			v.rows = append(v.rows, r)
		}
	}
}

func (r *cpuRow) sameDomain(other *cpuRow) bool {
	return r.socket == other.socket && r.node == other.node && r.l3 == other.l3
}

func (v *cpuView) mark(id int) byte {
	switch m := v.m; {
	case v.twice.Has(id):
		return markTwice
	case m.Exclusive.Has(id):
		return markExclusive
	case m.Share.Has(id):
		return markShare
	case m.Reserved.Has(id):
		return markReserved
	case m.Shared.Has(id):
		return markShared
	}
	return markNone
}

// who returns the users of a CPU: the containers that own it, else the pools that it is in.
func (v *cpuView) who(id int) string {
	var parts []string
	if v.m.Reserved.Has(id) {
		parts = append(parts, "reserved")
	}
	switch {
	case v.on[id] != "":
		parts = append(parts, v.on[id])
	case v.m.Exclusive.Has(id):
		parts = append(parts, "exclusive")
	case v.m.Share.Has(id):
		parts = append(parts, "share")
	case v.m.Shared.Has(id):
		parts = append(parts, "shared")
	}
	if len(parts) == 0 {
		return "unused"
	}
	return strings.Join(parts, ", ")
}

func (v *cpuView) printMachine(out io.Writer, node string) {
	if node != "" {
		fmt.Fprintf(out, "node %s: ", node)
	}
	if v.m.Topology == nil {
		fmt.Fprintln(out, "the agent does not know how its CPUs hang together")
		return
	}
	sockets, nodes, domains, cores := map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, c := range v.m.Topology.CPUs {
		sockets[c.Socket], nodes[c.Node], domains[c.L3], cores[c.Core] = true, true, true, true
	}
	fmt.Fprintf(out, "%s on %s, %s, %s, %s\n", count(v.online.Len(), "CPU"), count(len(cores), "core"),
		count(len(sockets), "socket"), count(len(nodes), "NUMA node"), count(len(domains), "L3 domain"))
}

// printRows prints the map: a block for each NUMA node in each socket, and in it the domains of the last-level cache.
func (v *cpuView) printRows(out io.Writer, paint func(byte) string) {
	if len(v.rows) == 0 {
		return
	}
	domain, cores, cpus, marks := len("CACHE"), len("CORES"), len("CPUS"), len("POOL") // widths
	for _, r := range v.rows {
		domain, cores = max(domain, len(r.domain())), max(cores, len(r.coreNames()))
		cpus, marks = max(cpus, len(short(r.cpus))), max(marks, len(r.marks))
	}
	told := map[int]bool{} // nodes whose memory was told
	for i := range v.rows {
		r, name := &v.rows[i], ""
		newBlock := i == 0 || r.socket != v.rows[i-1].socket || r.node != v.rows[i-1].node
		if newBlock {
			fmt.Fprintf(out, "\nsocket %d, NUMA node %d%s\n", r.socket, r.node, v.memory(r.node, told))
		}
		if i == 0 {
			fmt.Fprintf(out, "  %-*s  %-*s  %-*s  %-*s  WHO\n", domain, "CACHE", cores, "CORES", cpus, "CPUS", marks, "POOL")
		}
		if newBlock || !r.sameDomain(&v.rows[i-1]) {
			name = r.domain()
		}
		var painted strings.Builder
		for j := range len(r.marks) {
			painted.WriteString(paint(r.marks[j]))
		}
		fmt.Fprintf(out, "  %-*s  %-*s  %-*s  %s%*s  %s\n", domain, name, cores, r.coreNames(), cpus, short(r.cpus),
			painted.String(), marks-len(r.marks), "", v.rowWho(r))
	}
	for _, n := range v.m.Topology.Nodes {
		if !told[n.ID] {
			fmt.Fprintf(out, "\nNUMA node %d%s, without CPUs\n", n.ID, v.memory(n.ID, told))
		}
	}
}

// memory writes the memory of a NUMA node at its first use; "" if it is not known.
func (v *cpuView) memory(node int, told map[int]bool) string {
	for _, n := range v.m.Topology.Nodes {
		if n.ID == node && n.Memory > 0 && !told[node] {
			told[node] = true
			return fmt.Sprintf(", %.1f GiB", float64(n.Memory)/(1<<30))
		}
	}
	told[node] = true
	return ""
}

func (r *cpuRow) domain() string { return fmt.Sprintf("L3 %d", r.l3) }

func (r *cpuRow) coreNames() string {
	switch list := r.cores.String(); {
	case r.cores.Len() == 1:
		return "core " + list
	case strings.Contains(list, ","):
		return fmt.Sprintf("%d cores", r.cores.Len())
	default:
		return "cores " + list
	}
}

// rowWho returns the users of a row's CPUs, with the CPUs of each if they differ.
func (v *cpuView) rowWho(r *cpuRow) string {
	var whos []string
	at := map[string]model.CPUSet{}
	for id := range r.cpus.All() {
		who := v.who(id)
		if at[who] == (model.CPUSet{}) {
			whos = append(whos, who)
		}
		at[who] = at[who].Or(model.CPUs(id))
	}
	if len(whos) == 1 {
		return whos[0]
	}
	for i, who := range whos {
		whos[i] = fmt.Sprintf("%s on %s", who, short(at[who]))
	}
	return strings.Join(whos, "; ")
}

// short writes a set in a few characters: on machines that number their sockets in turn a list has no ranges.
func short(s model.CPUSet) string {
	const longest = 24
	list := s.String()
	if len(list) <= longest {
		return list
	}
	parts := strings.Split(list, ",")
	return fmt.Sprintf("%s,%s,..,%s (%d)", parts[0], parts[1], parts[len(parts)-1], s.Len())
}

// printPools prints what the marks mean and how many CPUs have them, whether they are in the map or not.
func (v *cpuView) printPools(out io.Writer, paint func(byte) string) {
	unused := v.online.Minus(v.m.Reserved).Minus(v.m.Exclusive).Minus(v.m.Share).Minus(v.m.Shared)
	fmt.Fprintln(out)
	for _, p := range []struct {
		mark    byte
		name    string
		meaning string
		cpus    model.CPUSet
		always  bool
	}{
		{markReserved, "reserved", "kept for the kubelet and the system", v.m.Reserved, true},
		{markExclusive, "exclusive", "one container's alone", v.m.Exclusive, true},
		{markShare, "share", "a container's home, others may run there", v.m.Share, true},
		{markShared, "shared", "for containers without CPUs of their own", v.m.Shared, true},
		{markNone, "unused", "in no pool", unused, false},
		{markTwice, "twice", "exclusive and given to others too: a fault", v.twice, false},
	} {
		if p.always || !p.cpus.Empty() {
			fmt.Fprintf(out, "%s  %-9s  %-42s  %4d  %s\n", paint(p.mark), p.name, p.meaning, p.cpus.Len(), cpuList(p.cpus))
		}
	}
}

func (v *cpuView) printPods(out io.Writer) error {
	if len(v.m.Pods) == 0 {
		_, err := fmt.Fprintln(out, "\nNo container has CPUs of its own.")
		return err
	}
	fmt.Fprintln(out)
	return table(out, "POD\tCONTAINER\tMODE\tCPUS\tSET", v.m.Pods, func(p *serve.CPUPod) string {
		return fmt.Sprintf("%s/%s\t%s\t%s\t%d\t%s", p.Namespace, p.Name, p.Container, p.Mode, p.CPUs.Len(), cpuList(p.CPUs))
	})
}

// count writes a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
