package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// Switches is how often the threads of a process left a CPU, and how often they moved to another.
type Switches struct {
	Voluntary, Involuntary, Migrations float64
}

// PerSecond returns the rates since an earlier reading.
func (s Switches) PerSecond(before Switches, length time.Duration) Switches {
	n := length.Seconds()
	return Switches{
		(s.Voluntary - before.Voluntary) / n, (s.Involuntary - before.Involuntary) / n,
		(s.Migrations - before.Migrations) / n,
	}
}

// ReadSwitches sums up the switches of the threads of a process so far.
func ReadSwitches(pid int) (Switches, error) {
	var sum Switches
	err := eachThread(pid, func(dir string) error {
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			return err
		}
		voluntary, err1 := parseNumber(string(status), "voluntary_ctxt_switches")
		involuntary, err2 := parseNumber(string(status), "nonvoluntary_ctxt_switches")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		sum.Voluntary, sum.Involuntary = sum.Voluntary+voluntary, sum.Involuntary+involuntary
		// Kernels built without CONFIG_SCHED_DEBUG do not count migrations.
		if sched, err := os.ReadFile(filepath.Join(dir, "sched")); err == nil {
			migrations, _ := parseNumber(string(sched), "se.nr_migrations")
			sum.Migrations += migrations
		}
		return nil
	})
	if err != nil {
		return Switches{}, fmt.Errorf("reading context switches: %w", err)
	}
	return sum, nil
}

// parseNumber finds a value among lines such as "name: value".
func parseNumber(content, name string) (float64, error) {
	for line := range strings.Lines(content) {
		key, value, found := strings.Cut(line, ":")
		if found && strings.TrimSpace(key) == name {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("there is no %s", name)
}

// eachThread calls do with the directory of each thread of a process. A thread that ends meanwhile is left out.
func eachThread(pid int, do func(dir string) error) error {
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return err
	}
	if len(dirs) == 0 {
		return fmt.Errorf("process %d has ended", pid)
	}
	for _, dir := range dirs {
		if err := do(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Place is where a thread may run, and where it ran.
type Place struct {
	Allowed model.CPUSet
	Last    model.CPUSet // the one CPU on which the thread runs, or last ran
	Running bool         // it runs, or waits for a CPU
}

// Union returns where any of some threads may run.
func Union(places []Place) Place {
	var all Place
	for _, p := range places {
		all.Allowed, all.Last = all.Allowed.Or(p.Allowed), all.Last.Or(p.Last)
		all.Running = all.Running || p.Running
	}
	return all
}

// Places returns the place of each thread of the processes that a cgroup.procs file lists.
func Places(procsFile string) ([]Place, error) {
	content, err := os.ReadFile(procsFile)
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var all []Place
	for line := range strings.Lines(string(content)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("listing processes: %w", err)
		}
		err = eachThread(pid, func(dir string) error {
			status, err := os.ReadFile(filepath.Join(dir, "status"))
			if err != nil {
				return err
			}
			stat, err := os.ReadFile(filepath.Join(dir, "stat"))
			if err != nil {
				return err
			}
			p, err := parsePlace(string(status), string(stat))
			all = append(all, p)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading where threads may run: %w", err)
		}
	}
	return all, nil
}

// parsePlace reads Cpus_allowed_list of /proc/PID/status, and from /proc/PID/stat the CPU on which the thread last ran.
func parsePlace(status, stat string) (Place, error) {
	_, rest, _ := strings.Cut(status, "Cpus_allowed_list:")
	line, _, _ := strings.Cut(rest, "\n")
	allowed, err := model.ParseCPUs(line)
	if err != nil {
		return Place{}, err
	}
	// The name, in parentheses, may hold any character. The 39th field is the CPU; the first after the name is the
	// third.
	const processor = 39 - 3
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= processor {
		return Place{}, fmt.Errorf("%q has too few fields", stat)
	}
	last, err := strconv.Atoi(fields[processor])
	if err != nil {
		return Place{}, fmt.Errorf("the CPU of a thread: %w", err)
	}
	return Place{allowed, model.CPUs(last), fields[0] == "R"}, nil
}

// ReadSchedstat reads the times of a process.
func ReadSchedstat(pid int) (host.Schedstat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return host.Schedstat{}, fmt.Errorf("reading how long a process ran and waited for a CPU: %w", err)
	}
	return host.ParseSchedstat(content)
}
