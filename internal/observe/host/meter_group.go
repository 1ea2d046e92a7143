package host

import (
	"errors"
	"math"
	"path/filepath"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// meteredGroup is a measured cgroup.
type meteredGroup struct {
	files  [cgroup.NumStats]statFile
	begin  int64 // first measurement of this cgroup; earlier readings are of another cgroup
	cpu    cpuReading
	stall  stallReading
	memory memoryReading
}

func newMeteredGroup(m Mount, dir string) meteredGroup {
	var g meteredGroup
	for s := range g.files {
		g.locate(m, dir, cgroup.Stat(s))
	}
	return g
}

// locate sets the paths of the given files, of those that this node has.
func (g *meteredGroup) locate(m Mount, dir string, stats ...cgroup.Stat) {
	for _, s := range stats {
		if hierarchy := m.OfStat(s); hierarchy != "" {
			g.files[s].path = filepath.Join(hierarchy, dir, cgroup.StatFile(m.Version, s))
		}
	}
}

// close closes the files of the group. Its readings stay.
func (g *meteredGroup) close(r *statReader) {
	for i := range g.files {
		r.close(&g.files[i])
	}
}

// readGroup reads one file of a group. It returns nil without an error if the file does not exist.
func (m *Meter) readGroup(g *meteredGroup, s cgroup.Stat, keep bool) ([]byte, error) {
	content, recreated, err := m.reader.read(&g.files[s], keep)
	if recreated {
		g.begin = m.tick
	}
	if errors.Is(err, errAbsent) {
		return nil, nil
	}
	return content, g.files[s].wrap(err)
}

// idleNanos is the CPU time, in nanoseconds, below which a group counts as idle. It equals the smallest quota
// per period that the kernel accepts (min_cfs_quota_period in kernel/sched/core.c), so a group uses more than
// this before its quota throttles it.
const idleNanos = 1e6

// measureCPU measures the CPU use of a group.
func (m *Meter) measureCPU(g *meteredGroup, usage *model.CPUUsage, keep bool) error {
	// The clock is read for each group. With one time for the whole measurement, a pause of 20 ms within it
	// would show all later groups 2 % too high, and 2 % too low in the next measurement.
	now := cpuReading{reading: reading{tick: m.tick, at: m.clock(bootClock)}}
	content, err := m.readGroup(g, cgroup.CPUUsage, keep)
	if content == nil || err != nil {
		return err
	}
	if m.mount.Version == cgroup.V2 {
		now.CPUStat, err = cgroup.ParseCPUStat(cgroup.V2, content)
		now.throttle = true
	} else {
		now.Nanos, err = cgroup.ParseCount(content)
	}
	if err != nil {
		return g.files[cgroup.CPUUsage].wrap(err)
	}
	span := now.since(g.cpu.reading, g.begin)
	if m.mount.Version == cgroup.V1 {
		if span != gap && g.cpu.throttle && now.Nanos-g.cpu.throttleNanos < idleNanos {
			now.throttle, now.throttleNanos = true, g.cpu.throttleNanos
			now.Periods, now.Throttled = g.cpu.Periods, g.cpu.Throttled
		} else if err := m.readThrottle(g, &now, keep); err != nil {
			return err
		}
	}
	if span == usable {
		if u, ok := now.usage(&g.cpu, m.cpu.cpus); ok {
			*usage = u
		}
	}
	if span != tooSoon {
		g.cpu = now
	}
	return nil
}

// readThrottle reads the throttling counters, which on v1 have a file of their own. A kernel without quotas
// lacks the file.
func (m *Meter) readThrottle(g *meteredGroup, now *cpuReading, keep bool) error {
	content, err := m.readGroup(g, cgroup.CPUThrottle, keep)
	if content == nil || err != nil {
		return err
	}
	throttle, err := cgroup.ParseCPUStat(cgroup.V1, content)
	now.Periods, now.Throttled = throttle.Periods, throttle.Throttled
	now.throttle, now.throttleNanos = err == nil, now.Nanos
	return g.files[cgroup.CPUThrottle].wrap(err)
}

// measureMemory measures the memory use of a group.
func (m *Meter) measureMemory(g *meteredGroup, usage *model.MemoryUsage, keep bool) error {
	at := m.clock(bootClock)
	content, err := m.readGroup(g, cgroup.MemoryUsage, keep)
	if content == nil || err != nil {
		return err
	}
	used, err := cgroup.ParseCount(content)
	if err != nil {
		return g.files[cgroup.MemoryUsage].wrap(err)
	}
	now := memoryReading{tick: m.tick, used: used, nanos: g.cpu.Nanos}
	if now.same(&g.memory, g.begin) {
		usage.At = at
		return nil
	}
	if content, err = m.readGroup(g, cgroup.MemoryDetails, keep); content == nil || err != nil {
		return err
	}
	stat, err := cgroup.ParseMemoryStat(m.mount.Version, content)
	if err != nil {
		return g.files[cgroup.MemoryDetails].wrap(err)
	}
	g.memory = now
	*usage = model.MemoryUsage{
		At: at, WorkingSet: max(int64(min(used, math.MaxInt64))-stat.InactiveFile, 0),
		Anon: stat.Anon, ActiveFile: stat.ActiveFile, InactiveFile: stat.InactiveFile,
	}
	return nil
}

// measurePressure measures the pressure (PSI) of a group.
func (m *Meter) measurePressure(g *meteredGroup, pressure *model.Pressure, keep bool) error {
	files := g.files[cgroup.CPUStall : cgroup.IOStall+1]
	if files[0].path == "" {
		return nil
	}
	now := stallReading{reading: reading{tick: m.tick, at: m.clock(bootClock)}}
	recreated, found, err := m.readPressure(files, &now, keep)
	if recreated {
		g.begin = m.tick
	}
	if found && err == nil {
		now.compare(&g.stall, g.begin, pressure)
	}
	return err
}

// readPressure reads the pressure files of CPU, memory and IO.
func (m *Meter) readPressure(files []statFile, now *stallReading, keep bool) (recreated, found bool, err error) {
	for i := range files {
		content, fileRecreated, err := m.reader.read(&files[i], keep)
		recreated = recreated || fileRecreated
		if errors.Is(err, errAbsent) {
			return recreated, false, nil
		}
		if err != nil {
			return recreated, false, files[i].wrap(err)
		}
		if now.stalled[i], err = cgroup.ParsePressure(content); err != nil {
			return recreated, false, files[i].wrap(err)
		}
	}
	return recreated, true, nil
}

// compare updates a pressure from the last reading and this one, which then becomes the last reading.
func (r *stallReading) compare(last *stallReading, begin int64, to *model.Pressure) {
	span := r.since(last.reading, begin)
	if span == usable {
		if p, ok := r.pressure(last); ok {
			*to = p
		}
	}
	if span != tooSoon {
		*last = *r
	}
}
