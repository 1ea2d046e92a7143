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

// MaxCPUs is how many CPUs a [CPUSet] can hold: CPUs are numbered from 0 to MaxCPUs-1. The largest machines that are
// sold have 960 in one kernel (four sockets of 120 cores, two threads each).
const MaxCPUs = 1024

// ErrCPUList is in the chain of every error about a list of CPUs that cannot be used.
var ErrCPUList = errors.New("bad list of CPUs")

// ErrManyCPUs is in the chain of the error about a list that names a CPU from [MaxCPUs] on. So is [ErrCPUList].
var ErrManyCPUs = fmt.Errorf("%w: more than can be told apart", ErrCPUList)

// CPUSet is a set of CPUs by their numbers in the kernel. It is a plain value: it can be compared, copied and used as a
// key, and nothing it does allocates but String.
type CPUSet struct {
	words [MaxCPUs / 64]uint64
}

// CPUs returns the set of these CPUs. Numbers outside of the range are left out.
func CPUs(ids ...int) CPUSet {
	var s CPUSet
	for _, id := range ids {
		s.Add(id)
	}
	return s
}

// ParseCPUs reads a list as the kernel writes it: "0-3,8,10-11", or nothing for the empty set. Spaces around it and a final
// newline are passed over. The error has [ErrCPUList] in its chain.
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

// String returns the set as the kernel writes it, such as "0-3,8"; "" for the empty set.
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

// MarshalText writes the set as [CPUSet.String] does.
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what [CPUSet.MarshalText] wrote.
func (s *CPUSet) UnmarshalText(text []byte) error {
	parsed, err := ParseCPUs(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// Add adds a CPU. A number outside of the range is left out.
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

// Or returns the CPUs that are in either set.
func (s CPUSet) Or(other CPUSet) CPUSet {
	for i := range s.words {
		s.words[i] |= other.words[i]
	}
	return s
}

// And returns the CPUs that are in both sets.
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

// next returns the lowest CPU from this one on; -1: there is none.
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

// Topology is how the CPUs of a machine hang together. It is never changed once made.
type Topology struct {
	CPUs     []CPU      // that are online, ordered by ID
	Nodes    []NUMANode // that have memory or CPUs, ordered by ID
	Possible CPUSet     // that may ever be online until the machine is booted again; empty: not known
}

// CPU is one hardware thread and where it stands. The numbers are the same for two CPUs that share the thing, and
// different for two that do not, over the whole machine; beyond that they mean what the kernel means by them.
type CPU struct {
	ID     int
	Socket int
	Node   int // NUMA node
	L3     int // domain of the last-level cache: the lowest CPU online that shares it
	Core   int // physical core: the lowest CPU online that shares it
}

// NUMANode is one NUMA node.
type NUMANode struct {
	ID     int
	Memory int64 // in bytes
}

// Online returns the CPUs of the machine that are online.
func (t *Topology) Online() CPUSet {
	var s CPUSet
	for i := range t.CPUs {
		s.Add(t.CPUs[i].ID)
	}
	return s
}

// CPUMode is which CPUs a pod may run on.
type CPUMode string

// The modes. The zero value is that of a pod that asks for nothing, which is treated as CPUNone.
const (
	CPUNone      CPUMode = "none"      // on all that are nobody's alone
	CPUShare     CPUMode = "share"     // on CPUs that are its home, on which others may run too
	CPUExclusive CPUMode = "exclusive" // on CPUs on which no other pod runs
)

// CPUPlacement is how the CPUs of a pod with a set of its own are chosen.
type CPUPlacement string

// The placements. The zero value is PlacePacked.
const (
	PlacePacked CPUPlacement = "packed"    // on as few NUMA nodes, sockets, cores and cache domains as can be
	PlaceSpread CPUPlacement = "spread"    // on as few NUMA nodes as can be, and there on as many cores as can be
	PlaceCores  CPUPlacement = "pcpu-only" // as packed, in whole physical cores
)

// MarshalJSON writes the CPU as a row of numbers: large machines have hundreds, and every round of the journal has all.
func (c CPU) MarshalJSON() ([]byte, error) {
	return json.Marshal([5]int{c.ID, c.Socket, c.Node, c.L3, c.Core})
}

// UnmarshalJSON reads what [CPU.MarshalJSON] wrote.
func (c *CPU) UnmarshalJSON(text []byte) error {
	var row [5]int
	if err := json.Unmarshal(text, &row); err != nil {
		return fmt.Errorf("reading a CPU: %w", err)
	}
	*c = CPU{ID: row[0], Socket: row[1], Node: row[2], L3: row[3], Core: row[4]}
	return nil
}
