package host

import (
	"math"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	// minInterval is the least time between two readings of a counter. A rate over less is not meaningful.
	minInterval = 100 * time.Millisecond
	// maxInterval is the most time between two measurements. After a longer gap a mean would hide changes within it.
	maxInterval = 10 * time.Second
	// clockJump is the difference between the progress of the two clocks that counts as a suspension of the machine.
	clockJump = 100 * time.Millisecond
	// maxTicksApart is the most measurements between two comparable readings of a counter. Reads in between failed.
	maxTicksApart = 2 * closedTicks
)

// reading is the time at which a counter was read.
type reading struct {
	tick int64         // number of the measurement; 0: never
	at   time.Duration // since boot
}

// span is the kind of interval between two readings.
type span int

const (
	usable  span = iota
	gap          // the readings cannot be compared; the later one is the new base
	tooSoon      // the interval is too short; the earlier reading stays the base
)

// since returns the kind of interval from an earlier reading to this one. A reading from before the measurement
// begin is of another counter, or from before a gap.
func (r reading) since(earlier reading, begin int64) span {
	switch {
	case earlier.tick == 0 || earlier.tick < begin || r.tick-earlier.tick > maxTicksApart:
		return gap
	case r.at-earlier.at < minInterval:
		return tooSoon
	}
	return usable
}

// cpuReading is a reading of the CPU time of a group.
type cpuReading struct {
	reading
	cgroup.CPUStat
	throttle      bool   // Periods and Throttled are known
	throttleNanos uint64 // on v1: Nanos when Periods and Throttled were read
}

// usage computes the CPU use between an earlier reading and this one, on a machine with this number of CPUs (0:
// unknown).
//
// The result is not limited to the capacity of the CPUs, because the kernel accounts CPU time late: by up to a
// tick, or by a second on CPUs without a tick (nohz_full). A limit would lose that time from means over several
// measurements and from sums over pods. The kernel is never late by more than a second, so a result above twice
// the capacity is invalid.
func (r *cpuReading) usage(earlier *cpuReading, cpus int) (model.CPUUsage, bool) {
	if r.Nanos < earlier.Nanos {
		return model.CPUUsage{}, false
	}
	milli := float64(r.Nanos-earlier.Nanos) / float64(r.at-earlier.at) * 1000
	if cpus == 0 {
		cpus = model.MaxCPUs
	}
	if milli > 2*1000*float64(cpus) {
		return model.CPUUsage{}, false
	}
	u := model.CPUUsage{At: r.at, Milli: int64(math.Round(milli))}
	if r.throttle && earlier.throttle {
		if r.Periods < earlier.Periods || r.Throttled < earlier.Throttled {
			return model.CPUUsage{}, false
		}
		u.Periods, u.Throttled = int64(r.Periods-earlier.Periods), int64(r.Throttled-earlier.Throttled)
	}
	return u, true
}

// stallReading is a reading of pressure (PSI).
type stallReading struct {
	reading
	stalled [3]cgroup.Stalled // CPU, memory, IO
}

// pressure computes the pressure between an earlier reading and this one. There is no result if tasks would have
// stalled for twice the time: the kernel's counters may jump, by 2^32 ns and more (bugzilla.kernel.org 219194).
func (r *stallReading) pressure(earlier *stallReading) (model.Pressure, bool) {
	elapsed := r.at - earlier.at
	var stalls [3]model.Stall
	for i, now := range r.stalled {
		some, full := now.Some-earlier.stalled[i].Some, now.Full-earlier.stalled[i].Full
		if some < 0 || full < 0 || max(some, full) > 2*elapsed {
			return model.Pressure{}, false
		}
		stalls[i] = model.Stall{Some: thousandths(some, elapsed), Full: thousandths(full, elapsed)}
	}
	return model.Pressure{At: r.at, CPU: stalls[0], Memory: stalls[1], IO: stalls[2]}, true
}

// thousandths returns part/whole in thousandths, at most 1000. The part can exceed the whole because the kernel
// reads its clock a little later than the meter.
func thousandths(part, whole time.Duration) int64 {
	return int64(math.Round(min(float64(part)/float64(whole), 1) * 1000))
}

// memoryReading is the state of a group at the last reading of its memory details.
type memoryReading struct {
	tick  int64  // number of the measurement; 0: never
	used  uint64 // bytes
	nanos uint64 // CPU time
}

// same reports whether the memory details can still be valid: the group uses the same number of bytes and was
// idle. Even then the kernel can move pages between its lists, so the details expire.
func (r *memoryReading) same(last *memoryReading, begin int64) bool {
	return last.tick > 0 && last.tick >= begin && r.tick-last.tick < detailTicks &&
		r.used == last.used && r.nanos-last.nanos < idleNanos
}

// idleReading is a reading of the idle time of the machine.
type idleReading struct {
	reading
	idle, stolen time.Duration
	cpus         int
}

// usage computes the CPU use between an earlier reading and this one, at most the capacity. Its resolution is
// 10 ms. There is no result when the number of CPUs changed, because the kernel then counts idle time
// differently.
func (r *idleReading) usage(earlier *idleReading) (model.CPUUsage, bool) {
	if r.cpus != earlier.cpus || r.idle < earlier.idle {
		return model.CPUUsage{}, false
	}
	used := float64(r.cpus) - float64(r.idle-earlier.idle)/float64(r.at-earlier.at)
	return model.CPUUsage{At: r.at, Milli: int64(math.Round(max(used, 0) * 1000))}, true
}

// stolenMilli computes the CPU time that the hypervisor gave to other machines between an earlier reading and
// this one, in milli-cores. A machine that was moved to another host may count from 0 again; the result is then
// 0 once.
func (r *idleReading) stolenMilli(earlier *idleReading) int64 {
	return int64(math.Round(max(float64(r.stolen-earlier.stolen), 0) / float64(r.at-earlier.at) * 1000))
}
