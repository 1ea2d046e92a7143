package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// switches is how often the threads of a process came off a CPU so far, and went to another.
type switches struct {
	voluntary, involuntary, migrations float64
}

// since returns how often that was a second, over a time that began with an earlier reading.
func (s switches) since(before switches, length time.Duration) switches {
	n := length.Seconds()
	return switches{(s.voluntary - before.voluntary) / n, (s.involuntary - before.involuntary) / n, (s.migrations - before.migrations) / n}
}

// readSwitches sums up the threads of a process.
func readSwitches(pid int) (switches, error) {
	var sum switches
	err := eachThread(pid, func(dir string) error {
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			return err
		}
		voluntary, err1 := number(string(status), "voluntary_ctxt_switches")
		involuntary, err2 := number(string(status), "nonvoluntary_ctxt_switches")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		sum.voluntary, sum.involuntary = sum.voluntary+voluntary, sum.involuntary+involuntary
		// Not every kernel is built with it (CONFIG_SCHED_DEBUG): then nothing is known of migrations.
		if sched, err := os.ReadFile(filepath.Join(dir, "sched")); err == nil {
			migrations, _ := number(string(sched), "se.nr_migrations")
			sum.migrations += migrations
		}
		return nil
	})
	if err != nil {
		return switches{}, fmt.Errorf("reading context switches: %w", err)
	}
	return sum, nil
}

// number finds a value in a file of lines such as "name: value".
func number(content, name string) (float64, error) {
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

// place is where a thread may run.
type place struct {
	allowed model.CPUSet
	last    model.CPUSet // the one CPU on which it runs, or did when it last ran
	running bool         // it runs, or waits for a CPU
}

// union returns where any of some threads may run.
func union(places []place) place {
	var all place
	for _, p := range places {
		all.allowed, all.last = all.allowed.Or(p.allowed), all.last.Or(p.last)
		all.running = all.running || p.running
	}
	return all
}

// places returns where each thread in a cgroup may run.
func (b *sandbox) places(dir string) ([]place, error) {
	content, err := os.ReadFile(b.procs(dir)[0])
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var all []place
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
			return nil, fmt.Errorf("asking where processes may run: %w", err)
		}
	}
	return all, nil
}

// parsePlace reads Cpus_allowed_list of /proc/PID/status, and from /proc/PID/stat the CPU on which the thread last ran.
func parsePlace(status, stat string) (place, error) {
	_, rest, _ := strings.Cut(status, "Cpus_allowed_list:")
	line, _, _ := strings.Cut(rest, "\n")
	allowed, err := model.ParseCPUs(line)
	if err != nil {
		return place{}, err
	}
	// The name, in parentheses, may hold anything. The 39th field is the CPU, and the first after the name is the third.
	const processor = 39 - 3
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= processor {
		return place{}, fmt.Errorf("%q has too few fields", stat)
	}
	last, err := strconv.Atoi(fields[processor])
	if err != nil {
		return place{}, fmt.Errorf("the CPU of a thread: %w", err)
	}
	return place{allowed, model.CPUs(last), fields[0] == "R"}, nil
}

// cpusFile returns the path of the file that tells where the processes in a cgroup may run.
func (b *sandbox) cpusFile(dir string) string {
	return filepath.Join(b.mount.Cpusets, dir, cgroup.EffectiveFile(b.mount.Version))
}

// cpus returns where the processes in a cgroup may run.
func (b *sandbox) cpus(dir string) (model.CPUSet, error) {
	list, err := os.ReadFile(b.cpusFile(dir))
	if err != nil {
		return model.CPUSet{}, fmt.Errorf("reading a cgroup's CPUs: %w", err)
	}
	return model.ParseCPUs(string(list))
}
