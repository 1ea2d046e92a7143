package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// kernel reports which features of policies the kernel lacks.
func (d *doctor) kernel(t *model.Tree) {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	words := reasons()
	lacks := 0
	for _, feature := range []struct {
		missing bool
		code    model.Code
	}{
		{t.NoBurst, model.NoBurst}, {t.NoIdle, model.NoIdle}, {t.NoCpusets, model.NoCPUSets},
		{t.NoProtection != "", model.NoMemoryProtection}, {t.NoReclaim, model.NoReclaim}, {t.NoPressure, model.NoPressure},
	} {
		if feature.missing {
			lacks++
			about := words[string(feature.code)]
			d.note(about.Fix, "%s: %s", feature.code, about.Text)
		}
	}
	if lacks == 0 {
		d.ok("kernel %s has every feature that a policy may use", strings.TrimSpace(string(release)))
	}
}

// kubeletConfig is the part of a KubeletConfiguration that matters here.
type kubeletConfig struct {
	CgroupsPerQOS    *bool           `json:"cgroupsPerQOS"`
	CgroupDriver     string          `json:"cgroupDriver"`
	CPUManagerPolicy string          `json:"cpuManagerPolicy"`
	FeatureGates     map[string]bool `json:"featureGates"`
}

// errNoKubelet says that no kubelet runs.
var errNoKubelet = errors.New("no kubelet runs here, or its processes cannot be seen")

// kubelet checks the configuration of the kubelet that runs here.
func (d *doctor) kubelet(proc string, driver cgroup.Driver) {
	config, path, err := readKubeletConfig(proc)
	switch {
	case errors.Is(err, errNoKubelet):
		d.note("", "%v", err)
	case err != nil:
		d.note("", "the kubelet's configuration cannot be read: %v", err)
	default:
		d.judgeKubelet(config, path, driver)
	}
}

// judgeKubelet checks a configuration.
func (d *doctor) judgeKubelet(config *kubeletConfig, path string, driver cgroup.Driver) {
	if config.CgroupsPerQOS != nil && !*config.CgroupsPerQOS {
		about := reasons()[string(model.NoPodCgroups)]
		d.bad(about.Fix, "kubelet, %s: %s", path, about.Text)
		return
	}
	if driver != 0 && config.CgroupDriver != "" && config.CgroupDriver != driver.String() {
		d.note("see which kubelet runs the pods",
			"kubelet, %s: cgroupDriver is %s, and the pods' cgroups are those of driver %s", path, config.CgroupDriver, driver)
	}
	if config.CPUManagerPolicy == "static" {
		d.note("mount /var/lib/kubelet/pod-resources (paths.podResources of the chart), so that the agent knows those CPUs",
			"kubelet, %s: cpuManagerPolicy is static, so the kubelet gives CPUs to pods too", path)
	}
	if config.FeatureGates["MemoryQoS"] {
		d.note("switch MemoryQoS off, or set protect.memory: false",
			"kubelet, %s: MemoryQoS is on, and writes the files of protect.memory", path)
	}
	d.ok("kubelet, %s: pods have cgroups, driver %s", path, cmp.Or(config.CgroupDriver, "of its default"))
}

// readKubeletConfig finds the kubelet's process, and reads the file that its flag --config names.
func readKubeletConfig(proc string) (*kubeletConfig, string, error) {
	commands, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "comm"))
	if err != nil {
		return nil, "", err
	}
	for _, path := range commands {
		name, _ := os.ReadFile(path)
		if strings.TrimSpace(string(name)) != "kubelet" {
			continue
		}
		dir := filepath.Dir(path)
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			return nil, "", err
		}
		flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
		flags.ParseErrorsAllowlist.UnknownFlags = true
		file := flags.String("config", "", "")
		if err := flags.Parse(strings.Split(string(line), "\x00")); err != nil || *file == "" {
			return nil, "", errors.New("its flags name no file with --config")
		}
		// As the kubelet sees it, which may have a file system of its own.
		document, err := os.ReadFile(filepath.Join(dir, "root", *file))
		if err != nil {
			return nil, "", err
		}
		var config kubeletConfig
		if err := yaml.Unmarshal(document, &config); err != nil {
			return nil, "", fmt.Errorf("%s: %w", *file, err)
		}
		return &config, *file, nil
	}
	return nil, "", errNoKubelet
}

// runtime checks that the container runtime has its plugin interface on.
func (d *doctor) runtime(socket string) {
	if info, err := os.Stat(socket); err == nil && info.Mode()&os.ModeSocket != 0 {
		d.ok("the container runtime serves NRI at %s: new containers get their CPUs and limits before they start", socket)
		return
	}
	d.note("containerd has NRI from 2.0 on, CRI-O from 1.26; or set agent.nri.enabled: false",
		"no NRI at %s: containers get CPUs of their own, and batch containers limits, after their start", socket)
}
