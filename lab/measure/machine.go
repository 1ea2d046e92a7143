package measure

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// TooBusy is how many CPUs may be used outside of the pods before that shows in the figures.
const TooBusy = 0.1

// DescribeMachine returns one line about this machine, to stand beside figures.
func DescribeMachine(v cgroup.Version) string {
	cpu := "CPUs"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		cpu = cpuModel(info)
	}
	var u unix.Utsname
	_ = unix.Uname(&u) // it fails for a bad address only
	release := unix.ByteSliceToString(u.Release[:])
	memory := ""
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) == nil {
		memory = fmt.Sprintf(", %.1f GiB", float64(s.Totalram*uint64(s.Unit))/(1<<30))
	}
	return fmt.Sprintf("%d × %s%s, Linux %s, cgroup %s", runtime.NumCPU(), cpu, memory, release, v)
}

// cpuModel finds the model's name in /proc/cpuinfo. Some architectures have none.
func cpuModel(info []byte) string {
	for line := range bytes.Lines(info) {
		key, value, found := strings.Cut(string(line), ":")
		if found && strings.TrimSpace(key) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return runtime.GOARCH + " CPU"
}

// machineCPU is the first line of /proc/stat: time of all CPUs since the boot, in ticks.
type machineCPU struct{ total, idle, steal uint64 }

func readMachineCPU() (machineCPU, error) {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machineCPU{}, fmt.Errorf("reading the machine's CPU time: %w", err)
	}
	return parseMachineCPU(content)
}

// parseMachineCPU reads user, nice, system, idle, iowait, irq, softirq and steal. The columns that follow, a guest's
// time, are counted in user and nice already.
func parseMachineCPU(content []byte) (machineCPU, error) {
	line, _, _ := strings.Cut(string(content), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return machineCPU{}, fmt.Errorf("reading the machine's CPU time: /proc/stat begins with %q", line)
	}
	var c machineCPU
	for i, field := range fields[1:9] {
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return machineCPU{}, fmt.Errorf("reading the machine's CPU time: %w", err)
		}
		c.total += ticks
		switch i {
		case 3, 4:
			c.idle += ticks
		case 7:
			c.steal = ticks
		}
	}
	return c, nil
}

// stealSince returns the percentage of all CPUs' time since an earlier reading that the hypervisor gave to other
// machines.
func (c machineCPU) stealSince(before machineCPU) float64 {
	if c.total == before.total {
		return 0
	}
	return 100 * float64(c.steal-before.steal) / float64(c.total-before.total)
}

// busySince returns how many CPUs were not idle since an earlier reading, on average.
func (c machineCPU) busySince(before machineCPU) float64 {
	if c.total == before.total {
		return 0
	}
	return float64(runtime.NumCPU()) * (1 - float64(c.idle-before.idle)/float64(c.total-before.total))
}

// LoadAverage returns the load over the last minute, 0 if it cannot be read.
func LoadAverage() float64 {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(content), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}
