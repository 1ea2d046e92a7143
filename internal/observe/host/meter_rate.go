package host

import (
	"math"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	shortest = 100 * time.Millisecond // between two readings of a counter, or their difference means nothing
	longest  = 10 * time.Second       // between two measurements, or some were missed: a mean over it would hide what happened
	jump     = 100 * time.Millisecond // by which the clocks may part between two measurements before it was a suspension
	oldest   = 2 * rarely             // measurements between two readings of a counter; more were in vain
)

// reading tells when a counter was read.
type reading struct {
	tick int64         // in which measurement; 0: never
	at   time.Duration // since boot
}

// span is what lies between two readings.
type span int

const (
	usable  span = iota
	gap          // they are not to be compared: the later one is a new beginning
	tooSoon      // the earlier one is to be kept
)

// since tells what lies between an earlier reading and this one. What was read before the measurement begin is another
// counter, or counted while nobody looked.
func (r reading) since(earlier reading, begin int64) span {
	switch {
	case earlier.tick == 0 || earlier.tick < begin || r.tick-earlier.tick > oldest:
		return gap
	case r.at-earlier.at < shortest:
		return tooSoon
	}
	return usable
}

// cpuReading is what was read of a group's CPU time.
type cpuReading struct {
	reading
	cgroup.CPUStat
	throttle bool   // Periods and Throttled are known
	looked   uint64 // on v1: Nanos when they were read
}

// usage computes what was used between an earlier reading and this one on a machine with so many CPUs, 0 if that is not known.
//
// It is not cut to what the CPUs can do: the kernel counts late, by up to a tick, or a second where it has stopped the tick
// (nohz_full). Cut off, that time would be missing from the mean over several measurements and from the sum of the pods.
// But by more than a second it counts nothing late, so that what is more than twice what the CPUs can do was never used.
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

// stallReading is what was read of pressure.
type stallReading struct {
	reading
	stalled [3]cgroup.Stalled // CPU, memory, IO
}

// pressure computes it for the time between an earlier reading and this one.
func (r *stallReading) pressure(earlier *stallReading) (model.Pressure, bool) {
	elapsed := r.at - earlier.at
	var stalls [3]model.Stall
	for i, now := range r.stalled {
		some, full := now.Some-earlier.stalled[i].Some, now.Full-earlier.stalled[i].Full
		if some < 0 || full < 0 {
			return model.Pressure{}, false
		}
		stalls[i] = model.Stall{Some: thousandths(some, elapsed), Full: thousandths(full, elapsed)}
	}
	return model.Pressure{At: r.at, CPU: stalls[0], Memory: stalls[1], IO: stalls[2]}, true
}

// thousandths returns the part of a time, at most 1000: the kernel reads its clock a little later than we do.
func thousandths(part, whole time.Duration) int64 {
	return int64(math.Round(min(float64(part)/float64(whole), 1) * 1000))
}

// memoryReading is what was read when the details of a group's memory were read last.
type memoryReading struct {
	tick  int64  // in which measurement; 0: never
	used  uint64 // bytes
	nanos uint64 // CPU time
}

// same reports whether the details can still be true: the group has as many bytes and has done nothing. Only the kernel can have
// moved pages between its lists then, so they are read anew after a while.
func (r *memoryReading) same(last *memoryReading, begin int64) bool {
	return last.tick > 0 && last.tick >= begin && r.tick-last.tick < seldom && r.used == last.used && r.nanos-last.nanos < idle
}

// idleReading is what was read of the whole machine's idle time.
type idleReading struct {
	reading
	idle, stolen time.Duration
	cpus         int
}

// usage computes what was used between an earlier reading and this one, at most what there is: it is known to 10 ms. When
// CPUs came or went there is none, because the kernel then counts their idle time in another way.
func (r *idleReading) usage(earlier *idleReading) (model.CPUUsage, bool) {
	if r.cpus != earlier.cpus || r.idle < earlier.idle {
		return model.CPUUsage{}, false
	}
	used := float64(r.cpus) - float64(r.idle-earlier.idle)/float64(r.at-earlier.at)
	return model.CPUUsage{At: r.at, Milli: int64(math.Round(max(used, 0) * 1000))}, true
}

// taken computes what the hypervisor gave to others between an earlier reading and this one, in milli-cores. A machine that
// was moved to another host may count from the beginning; then it is 0 for once.
func (r *idleReading) taken(earlier *idleReading) int64 {
	return int64(math.Round(max(float64(r.stolen-earlier.stolen), 0) / float64(r.at-earlier.at) * 1000))
}
