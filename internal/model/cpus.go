package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxCPUs is the capacity of a [CPUSet]: CPU numbers range from 0 to MaxCPUs-1. The largest machines on sale have 960
// CPUs in one kernel (four sockets of 120 cores, two threads each).
const MaxCPUs = 1024

// ErrCPUList is in the chain of every error about an invalid list of CPUs.
var ErrCPUList = errors.New("bad list of CPUs")

// ErrManyCPUs is in the chain of the error about a list with a CPU number of [MaxCPUs] or more. So is [ErrCPUList].
var ErrManyCPUs = fmt.Errorf("%w: more CPUs than supported", ErrCPUList)

// CPUSet is a set of CPUs by their numbers in the kernel. It is a plain value that can be compared, copied and used
// as a map key. Of its methods only String and MarshalText allocate.
type CPUSet struct {
	words [MaxCPUs / 64]uint64
}

// CPUs returns the set of these CPUs. Numbers outside the range are ignored.
func CPUs(ids ...int) CPUSet {
	var s CPUSet
	for _, id := range ids {
		s.Add(id)
	}
	return s
}

// ParseCPUs parses a list in the kernel's format, "0-3,8,10-11", or an empty string for the empty set. Surrounding
// spaces and a final newline are ignored. The error has [ErrCPUList] in its chain.
func ParseCPUs(list string) (CPUSet, error) {
	var s CPUSet
	text := strings.TrimSpace(list)
	for rest := text; rest != ""; {
		part, more, found := strings.Cut(rest, ",")
		if found && more == "" {
			return CPUSet{}, fmt.Errorf("%w: %.64q ends in a comma", ErrCPUList, list)
		}
		rest = more
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 32)
		to, err2 := strconv.ParseUint(high, 10, 32)
		switch {
		case err1 != nil || err2 != nil || from > to:
			return CPUSet{}, fmt.Errorf("%w: %.64q is neither a number nor a range in %.64q", ErrCPUList, part, list)
		case to >= MaxCPUs:
			return CPUSet{}, fmt.Errorf("%w: %.64q names a CPU above %d", ErrManyCPUs, list, MaxCPUs-1)
		}
		for id := from; id <= to; id++ {
			s.Add(int(id))
		}
	}
	return s, nil
}

// String returns the set in the kernel's format, such as "0-3,8"; "" for the empty set.
func (s CPUSet) String() string {
	var buffer [64]byte
	b := buffer[:0]
	for id := s.next(0); id >= 0; {
		last := id
		for s.Has(last + 1) {
			last++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
		if last > id {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(last), 10)
		}
		id = s.next(last + 1)
	}
	return string(b)
}

// MarshalText encodes the set as [CPUSet.String] does.
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText decodes the output of [CPUSet.MarshalText].
func (s *CPUSet) UnmarshalText(text []byte) error {
	parsed, err := ParseCPUs(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// Add adds a CPU. A number outside the range is ignored.
func (s *CPUSet) Add(id int) {
	if uint(id) < MaxCPUs {
		s.words[id/64] |= 1 << (id % 64)
	}
}

// Remove removes a CPU.
func (s *CPUSet) Remove(id int) {
	if uint(id) < MaxCPUs {
		s.words[id/64] &^= 1 << (id % 64)
	}
}

// Has reports whether a CPU is in the set.
func (s *CPUSet) Has(id int) bool {
	return uint(id) < MaxCPUs && s.words[id/64]&(1<<(id%64)) != 0
}

// Len returns the number of CPUs in the set.
func (s CPUSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty reports whether no CPU is in the set.
func (s CPUSet) Empty() bool { return s == CPUSet{} }

// Or returns the union of both sets.
func (s CPUSet) Or(other CPUSet) CPUSet {
	for i := range s.words {
		s.words[i] |= other.words[i]
	}
	return s
}

// And returns the intersection of both sets.
func (s CPUSet) And(other CPUSet) CPUSet {
	for i := range s.words {
		s.words[i] &= other.words[i]
	}
	return s
}

// Minus returns the CPUs that are in s but not in the other set.
func (s CPUSet) Minus(other CPUSet) CPUSet {
	for i := range s.words {
		s.words[i] &^= other.words[i]
	}
	return s
}

// Within reports whether every CPU of s is in the other set.
func (s CPUSet) Within(other CPUSet) bool { return s.Minus(other) == CPUSet{} }

// Overlaps reports whether any CPU is in both sets.
func (s CPUSet) Overlaps(other CPUSet) bool { return s.And(other) != CPUSet{} }

// All yields the CPUs in ascending order.
func (s *CPUSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for id := s.next(0); id >= 0; id = s.next(id + 1) {
			if !yield(id) {
				return
			}
		}
	}
}

// next returns the lowest CPU in the set that is at least from; -1: none.
func (s *CPUSet) next(from int) int {
	for i := from / 64; i < len(s.words); i++ {
		w := s.words[i]
		if i == from/64 {
			w &= ^uint64(0) << (from % 64)
		}
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// Topology is the CPU topology of a machine. It is immutable.
type Topology struct {
	CPUs     []CPU      // online, ordered by ID
	Nodes    []NUMANode // with memory or CPUs, ordered by ID
	Possible CPUSet     // CPUs that can come online before the next boot; empty: not known
}

// CPU is one hardware thread and its place in the machine. Two CPUs share a socket, node, cache or core exactly if
// the numbers are equal; numbers are unique across the machine. Beyond that, they are the kernel's numbers.
type CPU struct {
	ID     int
	Socket int
	Node   int // NUMA node
	L3     int // last-level cache domain: its lowest online CPU
	Core   int // physical core: its lowest online CPU
}

// NUMANode is one NUMA node.
type NUMANode struct {
	ID     int
	Memory int64 // in bytes
}

// Threads returns how many CPUs the core with most of them has, at least one.
func (t *Topology) Threads() int {
	most, of := 1, map[int]int{}
	for i := range t.CPUs {
		id := t.CPUs[i].Core
		of[id]++
		most = max(most, of[id])
	}
	return most
}

// Online returns the CPUs of the machine that are online.
func (t *Topology) Online() CPUSet {
	var s CPUSet
	for i := range t.CPUs {
		s.Add(t.CPUs[i].ID)
	}
	return s
}

// CPUMode is the kind of CPU set that a pod has.
type CPUMode string

// The modes. The zero value is that of a pod that requests none, and counts as CPUNone.
const (
	CPUNone      CPUMode = "none"      // all CPUs that are not exclusive to a pod
	CPUShare     CPUMode = "share"     // home CPUs, where other pods may run too
	CPUExclusive CPUMode = "exclusive" // CPUs where no other pod runs
)

// CPUPlacement is the strategy for choosing the CPUs of a pod with its own set.
type CPUPlacement string

// The placements. The zero value is PlacePacked.
const (
	PlacePacked CPUPlacement = "packed"    // on as few NUMA nodes, sockets, cores and cache domains as possible
	PlaceSpread CPUPlacement = "spread"    // on as few NUMA nodes as possible, and there on as many cores as possible
	PlaceCores  CPUPlacement = "pcpu-only" // like packed, in whole physical cores
)

// MarshalJSON encodes the CPU as an array of numbers. Large machines have hundreds of CPUs, and every round of the
// journal contains all of them.
func (c CPU) MarshalJSON() ([]byte, error) {
	return json.Marshal([5]int{c.ID, c.Socket, c.Node, c.L3, c.Core})
}

// UnmarshalJSON decodes the output of [CPU.MarshalJSON].
func (c *CPU) UnmarshalJSON(text []byte) error {
	var row [5]int
	if err := json.Unmarshal(text, &row); err != nil {
		return fmt.Errorf("reading a CPU: %w", err)
	}
	*c = CPU{ID: row[0], Socket: row[1], Node: row[2], L3: row[3], Core: row[4]}
	return nil
}
