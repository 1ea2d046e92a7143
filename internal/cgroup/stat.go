package cgroup

import (
	"bytes"
	"fmt"
	"math"
	"time"
)

// Stat is a statistics file of a group, which only the kernel writes.
type Stat uint8

// Statistics files.
const (
	CPUUsage      Stat = iota // CPU time used; on v2 also the content of CPUThrottle
	CPUThrottle               // periods in which the quota throttled the group; v1 only
	MemoryUsage               // memory in use
	MemoryDetails             // memory in use by kind
	CPUStall                  // pressure (PSI), v2 only, as the next two
	MemoryStall
	IOStall
	NumStats int = iota // number of statistics files
)

// StatFile returns the name of a statistics file, "" if this version has none.
func StatFile(v Version, s Stat) string {
	v1 := [NumStats]string{
		CPUUsage: "cpuacct.usage", CPUThrottle: "cpu.stat",
		MemoryUsage: "memory.usage_in_bytes", MemoryDetails: "memory.stat",
	}
	v2 := [NumStats]string{
		CPUUsage: "cpu.stat", MemoryUsage: "memory.current", MemoryDetails: "memory.stat",
		CPUStall: "cpu.pressure", MemoryStall: "memory.pressure", IOStall: "io.pressure",
	}
	if v == V1 {
		return v1[s]
	}
	return v2[s]
}

// CPUStat holds the CPU counters of a group since it was made.
type CPUStat struct {
	Nanos     uint64 // CPU time in nanoseconds; v1 has it in cpuacct.usage
	Periods   uint64 // CFS periods in which the group ran with a quota
	Throttled uint64 // the Periods in which the quota throttled it
}

// ParseCPUStat parses the content of cpu.stat. A v2 group without the CPU controller has no periods.
func ParseCPUStat(v Version, content []byte) (CPUStat, error) {
	var s CPUStat
	ok, used := true, v == V1
	for rest := content; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextPair(rest)
		switch string(key) {
		case "usage_usec":
			if v == V2 && ok {
				s.Nanos, ok = parseUint(value)
				ok = ok && s.Nanos <= math.MaxUint64/1000
				s.Nanos, used = s.Nanos*1000, true
			}
		case "nr_periods":
			if ok {
				s.Periods, ok = parseUint(value)
			}
		case "nr_throttled":
			if ok {
				s.Throttled, ok = parseUint(value)
			}
		}
	}
	if !ok || !used {
		return CPUStat{}, malformedStat("cpu.stat", content)
	}
	return s, nil
}

// ParseCount parses a file that holds one number: bytes, or CPU time in nanoseconds. The CPU time in
// cpuacct.usage passes 2^63 after 292 CPU years, within 14 months on 256 CPUs.
func ParseCount(content []byte) (uint64, error) {
	n, ok := parseUint(bytes.TrimSuffix(content, []byte("\n")))
	if !ok {
		return 0, malformedStat("a count", content)
	}
	return n, nil
}

// MemoryStat is the memory of a group and its descendants, in bytes. The most recent changes may be missing, up
// to 64 pages per CPU.
type MemoryStat struct {
	Anon         int64 // anonymous memory of processes, without tmpfs
	ActiveFile   int64
	InactiveFile int64
	// Slab is what the kernel can reclaim of its own caches, such as those of directories. 0 on v1.
	Slab int64
}

// ParseMemoryStat parses the content of memory.stat. On v1 it uses the values that include descendants
// (total_...).
func ParseMemoryStat(v Version, content []byte) (MemoryStat, error) {
	var s MemoryStat
	found := 0
	take := func(of *int64, value []byte) {
		if n, ok := parseInt(value); ok && n >= 0 {
			*of = n
			found++
		}
	}
	for rest := content; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextPair(rest)
		if v == V1 {
			var hierarchical bool
			if key, hierarchical = bytes.CutPrefix(key, []byte("total_")); !hierarchical {
				continue
			}
		}
		switch string(key) {
		case "anon", "rss": // v2 and v1
			take(&s.Anon, value)
		case "active_file":
			take(&s.ActiveFile, value)
		case "inactive_file":
			take(&s.InactiveFile, value)
		case "slab_reclaimable": // v2
			if n, ok := parseInt(value); ok && n > 0 {
				s.Slab = n
			}
		}
	}
	if found != 3 {
		return MemoryStat{}, malformedStat("memory.stat", content)
	}
	return s, nil
}

// Stalled is the time in which tasks were stalled, since the group was made or the machine booted.
type Stalled struct {
	Some time.Duration // at least one task was stalled
	Full time.Duration // all tasks were stalled; 0 if the kernel does not report it, as for the CPU before 5.13
}

// ParsePressure parses a pressure file (PSI), of a group or from /proc/pressure.
func ParsePressure(content []byte) (Stalled, error) {
	var s Stalled
	some := false
	for rest := content; len(rest) > 0; {
		var key, value []byte
		key, value, rest = nextPair(rest)
		i := bytes.LastIndex(value, []byte(" total="))
		if i < 0 {
			return Stalled{}, malformedStat("pressure", content)
		}
		micros, ok := parseInt(value[i+len(" total="):])
		if !ok || micros < 0 || micros > math.MaxInt64/int64(time.Microsecond) {
			return Stalled{}, malformedStat("pressure", content)
		}
		total := time.Duration(micros) * time.Microsecond
		switch string(key) {
		case "some":
			s.Some, some = total, true
		case "full":
			s.Full = total
		}
	}
	if !some {
		return Stalled{}, malformedStat("pressure", content)
	}
	return s, nil
}

// nextPair splits the first line off a file of keys and values.
func nextPair(b []byte) (key, value, rest []byte) {
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	key, value, _ = bytes.Cut(line, []byte(" "))
	return key, value, rest
}

// malformedStat returns the error about the content of a file.
func malformedStat(file string, content []byte) error {
	const maxShown = 64
	return fmt.Errorf("%w: %s reads %q", ErrMalformed, file, content[:min(len(content), maxShown)])
}

// parseUint is strconv.ParseUint for bytes, in base 10 and without an allocation.
func parseUint(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		d := uint64(c - '0')
		if c < '0' || c > '9' || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}
