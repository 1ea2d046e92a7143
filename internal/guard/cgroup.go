package guard

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/model"
)

// meter reads the cgroup of the NodeManager.
type meter struct {
	dir   string // "": it is not known
	found bool   // dir follows from the process of the NodeManager

	memory     shed.Memory
	cpu        shed.CPU
	before     cgroup.CPUStat
	beforeTime time.Time
}

// follow points the meter at what a NodeManager sees at /sys/fs/cgroup: in a container, its own cgroup.
func (m *meter) follow(proc string, manager process) {
	dir := ""
	if manager.pid != 0 {
		dir = filepath.Join(proc, strconv.Itoa(manager.pid), "root/sys/fs/cgroup")
	}
	if dir != m.dir {
		*m = meter{dir: dir}
	}
	m.found = true
}

// read returns the last readings. One that fails leaves the one before, with its time.
func (m *meter) read(now time.Time) (shed.Memory, shed.CPU, error) {
	if m.dir == "" {
		return m.memory, m.cpu, nil // there is an error about that already
	}
	version := cgroup.V1
	if _, err := os.Stat(filepath.Join(m.dir, "cgroup.controllers")); err == nil {
		version = cgroup.V2
	}
	return m.memory, m.cpu, errors.Join(m.readMemory(version, now), m.readCPU(version, now))
}

// path returns the path of a file of a controller.
func (m *meter) path(v cgroup.Version, controller, file string) string {
	if v == cgroup.V2 {
		return filepath.Join(m.dir, file)
	}
	return filepath.Join(m.dir, controller, file)
}

func (m *meter) readMemory(v cgroup.Version, now time.Time) error {
	var content [3][]byte
	for i, file := range []string{
		cgroup.StatFile(v, cgroup.MemoryUsage), cgroup.StatFile(v, cgroup.MemoryDetails), cgroup.FileName(v, model.MemoryMax),
	} {
		var err error
		if content[i], err = os.ReadFile(m.path(v, "memory", file)); err != nil {
			return err
		}
	}
	used, err := cgroup.ParseCount(content[0])
	if err != nil {
		return err
	}
	details, err := cgroup.ParseMemoryStat(v, content[1])
	if err != nil {
		return err
	}
	limit, err := cgroup.Parse(v, model.MemoryMax, content[2], cgroup.Raw{})
	if err != nil {
		return err
	}
	m.memory = shed.Memory{
		At: now, Used: int64(min(used, 1<<62)), Reclaimable: details.ActiveFile + details.InactiveFile + details.Slab,
		Limit: max(limit.Number, 0),
	}
	return nil
}

func (m *meter) readCPU(v cgroup.Version, now time.Time) error {
	content, err := os.ReadFile(m.path(v, "cpu", "cpu.stat"))
	if err != nil {
		return err
	}
	stat, err := cgroup.ParseCPUStat(v, content)
	if err != nil {
		return err
	}
	if v == cgroup.V1 {
		used, err := os.ReadFile(m.path(v, "cpuacct", cgroup.StatFile(v, cgroup.CPUUsage)))
		if err != nil {
			return err
		}
		if stat.Nanos, err = cgroup.ParseCount(used); err != nil {
			return err
		}
	}
	limit, err := m.cpuLimit(v)
	if err != nil {
		return err
	}
	before, elapsed := m.before, now.Sub(m.beforeTime)
	m.before, m.beforeTime = stat, now
	if elapsed <= 0 || elapsed > time.Minute || stat.Nanos < before.Nanos || stat.Periods < before.Periods {
		return nil // there is nothing to compare with
	}
	m.cpu = shed.CPU{At: now, Milli: int64(stat.Nanos-before.Nanos) / (elapsed.Nanoseconds()/1000 + 1), Limit: limit}
	if periods := stat.Periods - before.Periods; periods > 0 {
		m.cpu.Throttled = int64((stat.Throttled - before.Throttled) * 1000 / periods)
	}
	return nil
}

// cpuLimit returns the CPU limit in mCPU; 0: there is none.
func (m *meter) cpuLimit(v cgroup.Version) (int64, error) {
	content, err := os.ReadFile(m.path(v, "cpu", cgroup.FileName(v, model.Quota)))
	if err != nil {
		return 0, err
	}
	if name := cgroup.PeriodFile(v, model.Quota); name != "" {
		period, err := os.ReadFile(m.path(v, "cpu", name))
		if err != nil {
			return 0, err
		}
		content = append(content, period...)
	}
	quota, err := cgroup.Parse(v, model.Quota, content, cgroup.Raw{})
	if err != nil || quota.Number <= 0 {
		return 0, err
	}
	return quota.Number * 1000 / quota.Period, nil
}
