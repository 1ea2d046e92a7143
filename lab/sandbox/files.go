package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// ProcsFile returns the path of a file that lists the processes of a cgroup.
func (c *cgroups) ProcsFile(dir string) string { return c.procsFiles(dir)[0] }

// procsFiles returns the files to which a process writes its pid in order to enter a cgroup.
func (c *cgroups) procsFiles(dir string) []string {
	var files []string
	for _, mount := range c.mounts() {
		files = append(files, filepath.Join(mount, dir, "cgroup.procs"))
	}
	return files
}

// Population returns the number of processes in a cgroup.
func (c *cgroups) Population(dir string) (int, error) {
	content, err := os.ReadFile(c.ProcsFile(dir))
	if err != nil {
		return 0, fmt.Errorf("counting processes: %w", err)
	}
	return bytes.Count(content, []byte("\n")), nil
}

// File returns the path of a file in a cgroup. On v1 that is in the CPU hierarchy.
func (c *cgroups) File(dir, name string) string { return filepath.Join(c.mount.Path, dir, name) }

// KnobFile returns the path of the file with a knob of the CPU controller.
func (c *cgroups) KnobFile(dir string, k model.Knob) string {
	return c.File(dir, cgroup.FileName(c.mount.Version, k))
}

// Weight reads the weight of a cgroup, in the kernel's unit.
func (c *cgroups) Weight(dir string) (cgroup.Raw, error) {
	raw, err := c.knob(dir, model.Shares)
	if err != nil {
		return cgroup.Raw{}, fmt.Errorf("reading a weight: %w", err)
	}
	return raw, nil
}

// SetWeight writes the weight of a cgroup, in the kernel's unit.
func (c *cgroups) SetWeight(dir string, raw cgroup.Raw) error {
	if err := c.setKnob(dir, model.Shares, raw); err != nil {
		return fmt.Errorf("writing a weight: %w", err)
	}
	return nil
}

// SetShares writes the weight of a cgroup, in shares.
func (c *cgroups) SetShares(dir string, shares int64) error {
	return c.SetWeight(dir, cgroup.ToRaw(c.mount.Version, model.Shares, model.Number(shares)))
}

// schedIdle reports whether cpu.idle of a cgroup is set. Kernels before 5.15 do not have it.
func (c *cgroups) schedIdle(dir string) bool {
	raw, err := c.knob(dir, model.Idle)
	return err == nil && raw.Number != 0
}

func (c *cgroups) knob(dir string, k model.Knob) (cgroup.Raw, error) {
	content, err := os.ReadFile(c.KnobFile(dir, k))
	if err != nil {
		return cgroup.Raw{}, err
	}
	raw, err := cgroup.Parse(c.mount.Version, k, content, cgroup.Raw{})
	if err != nil {
		return cgroup.Raw{}, fmt.Errorf("%s: %w", dir, err)
	}
	return raw, nil
}

func (c *cgroups) setKnob(dir string, k model.Knob, raw cgroup.Raw) error {
	return writeFile(c.KnobFile(dir, k), string(cgroup.Append(nil, c.mount.Version, k, raw)))
}

// UsageFile returns the path of the file with the CPU time of a cgroup, see [ParseUsage].
func (c *cgroups) UsageFile(dir string) string {
	return filepath.Join(c.acct, dir, cgroup.StatFile(c.mount.Version, cgroup.CPUUsage))
}

// Usage reads how much CPU time the processes of a cgroup have used so far.
func (c *cgroups) Usage(dir string) (time.Duration, error) {
	content, err := os.ReadFile(c.UsageFile(dir))
	if err != nil {
		return 0, fmt.Errorf("reading used CPU time: %w", err)
	}
	return ParseUsage(c.mount.Version, content)
}

// ParseUsage reads the content of [Sandbox.UsageFile]: cpuacct.usage on v1, cpu.stat on v2.
func ParseUsage(v cgroup.Version, content []byte) (time.Duration, error) {
	if v == cgroup.V2 {
		stat, err := cgroup.ParseCPUStat(v, content)
		return time.Duration(stat.Nanos), err
	}
	nanos, err := cgroup.ParseCount(content)
	return time.Duration(nanos), err
}

// Throttling reads in how many CFS periods the quota has stopped a cgroup so far.
func (c *cgroups) Throttling(dir string) (cgroup.CPUStat, error) {
	content, err := os.ReadFile(c.File(dir, "cpu.stat"))
	if err != nil {
		return cgroup.CPUStat{}, fmt.Errorf("reading how often a quota has stopped its cgroup: %w", err)
	}
	return cgroup.ParseCPUStat(c.mount.Version, content)
}

// CPUsFile returns the path of the file with the CPUs on which the processes of a cgroup may run.
func (c *cgroups) CPUsFile(dir string) string {
	return filepath.Join(c.mount.Cpusets, dir, cgroup.EffectiveFile(c.mount.Version))
}

// CPUs reads on which CPUs the processes of a cgroup may run.
func (c *cgroups) CPUs(dir string) (model.CPUSet, error) {
	list, err := os.ReadFile(c.CPUsFile(dir))
	if err != nil {
		return model.CPUSet{}, fmt.Errorf("reading a cgroup's CPUs: %w", err)
	}
	return model.ParseCPUs(string(list))
}

// writeFile writes to a file that exists. Unlike os.WriteFile it neither creates nor truncates.
func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
