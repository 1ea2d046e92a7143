package host

import (
	"errors"
	"math"
	"path/filepath"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// meteredGroup is a cgroup that is measured.
type meteredGroup struct {
	files  [cgroup.Stats]statFile
	begin  int64 // the first measurement of this cgroup; what was read before is of another
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

// locate says where some files of the group are, of those that this node has.
func (g *meteredGroup) locate(m Mount, dir string, stats ...cgroup.Stat) {
	for _, s := range stats {
		if hierarchy := m.OfStat(s); hierarchy != "" {
			g.files[s].path = filepath.Join(hierarchy, dir, cgroup.StatFile(m.Version, s))
		}
	}
}

// close closes the group's files. What was read stays.
func (g *meteredGroup) close(r *statReader) {
	for i := range g.files {
		r.close(&g.files[i])
	}
}

// readGroup reads one file of a group; nil without an error if there is none.
func (m *Meter) readGroup(g *meteredGroup, s cgroup.Stat, keep bool) ([]byte, error) {
	content, anew, err := m.reader.read(&g.files[s], keep)
	if anew {
		g.begin = m.tick
	}
	if errors.Is(err, errAbsent) {
		return nil, nil
	}
	return content, g.files[s].wrap(err)
}

// idle is the CPU time, in nanoseconds, below which a group has as good as done nothing. It is also the least quota for a period
// that the kernel takes (min_cfs_quota_period in kernel/sched/core.c), so what a group is stopped for, it has used more before.
const idle = 1e6

// measureCPU measures what a group uses of the CPUs.
func (m *Meter) measureCPU(g *meteredGroup, usage *model.CPUUsage, keep bool) error {
	// The clock is read for each group: were all given the time of the measurement's beginning, one in which we were kept
	// from running for 20 ms would show everything after that 2 % too high, and the next one too low.
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
		if span != gap && g.cpu.throttle && now.Nanos-g.cpu.looked < idle {
			now.throttle, now.looked, now.Periods, now.Throttled = true, g.cpu.looked, g.cpu.Periods, g.cpu.Throttled
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

// readThrottle reads what on v1 stands in a file of its own, which a kernel without quotas has not.
func (m *Meter) readThrottle(g *meteredGroup, now *cpuReading, keep bool) error {
	content, err := m.readGroup(g, cgroup.CPUThrottle, keep)
	if content == nil || err != nil {
		return err
	}
	throttle, err := cgroup.ParseCPUStat(cgroup.V1, content)
	now.Periods, now.Throttled, now.throttle, now.looked = throttle.Periods, throttle.Throttled, err == nil, now.Nanos
	return g.files[cgroup.CPUThrottle].wrap(err)
}

// measureMemory measures what memory a group has.
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

// measurePressure measures for how long tasks of a group wait.
func (m *Meter) measurePressure(g *meteredGroup, pressure *model.Pressure, keep bool) error {
	files := g.files[cgroup.CPUStall : cgroup.IOStall+1]
	if files[0].path == "" {
		return nil
	}
	now := stallReading{reading: reading{tick: m.tick, at: m.clock(bootClock)}}
	anew, found, err := m.readPressure(files, &now, keep)
	if anew {
		g.begin = m.tick
	}
	if found && err == nil {
		now.compare(&g.stall, g.begin, pressure)
	}
	return err
}

// readPressure reads the pressure of CPU, memory and IO.
func (m *Meter) readPressure(files []statFile, now *stallReading, keep bool) (anew, found bool, err error) {
	for i := range files {
		content, renewed, err := m.reader.read(&files[i], keep)
		anew = anew || renewed
		if errors.Is(err, errAbsent) {
			return anew, false, nil
		}
		if err != nil {
			return anew, false, files[i].wrap(err)
		}
		if now.stalled[i], err = cgroup.ParsePressure(content); err != nil {
			return anew, false, files[i].wrap(err)
		}
	}
	return anew, true, nil
}

// compare brings a pressure up to date from the last reading and this one, which becomes the last.
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
