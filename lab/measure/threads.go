package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

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

// Allowed returns the CPUs on which any of some threads may run.
func Allowed(places []Place) model.CPUSet {
	var all model.CPUSet
	for _, p := range places {
		all = all.Or(p.Allowed)
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
