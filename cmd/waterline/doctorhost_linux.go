package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/agent/store"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// expected are the programs that write pod cgroups on every node. Anybody else's writes are a second writer's.
var expected = []string{
	"kubelet", "containerd", "containerd-shim-runc-v2", "crio", "runc", "crun", "dockerd", "systemd", "init",
	"waterline-agent",
}

// nodeChecks adds the flags of the node's checks, and returns what runs these.
func nodeChecks(c *cobra.Command) func(ctx context.Context, d *doctor) error {
	var cgroupRoot, kubepods, runDir, nriSocket string
	var seconds int
	c.Flags().StringVar(&cgroupRoot, "cgroup-root", host.DefaultRoot, "where the cgroup file system is mounted")
	c.Flags().StringVar(&kubepods, "kubepods", "",
		"directory of all pods below the CPU hierarchy (default: find it)")
	c.Flags().StringVar(&runDir, "run-dir", "/run/waterline", "run directory of the agent")
	c.Flags().StringVar(&nriSocket, "nri-socket", "/var/run/nri/nri.sock", "socket of the container runtime's NRI")
	c.Flags().IntVar(&seconds, "seconds", 15, "how long to watch for writers")
	return func(ctx context.Context, d *doctor) error {
		mount, layout := d.node(cgroupRoot, kubepods)
		d.kubelet(host.DefaultProc, layout.Driver)
		d.runtime(nriSocket)
		d.agent(runDir)
		if layout.Root != "" {
			d.stray(mount, layout)
			d.writers(ctx, mount, layout, time.Duration(seconds)*time.Second)
		}
		return nil
	}
}

// node checks the kernel's side. The layout is empty if there are no pods.
func (d *doctor) node(cgroupRoot, kubepods string) (host.Mount, cgroup.Layout) {
	if os.Geteuid() != 0 {
		d.bad("run this as root on the node", "not root")
	}
	mount, err := host.FindMount(cgroupRoot)
	if err != nil {
		d.bad("mount the cgroup file system, or say where it is with --cgroup-root", "%v", err)
		return mount, cgroup.Layout{}
	}
	d.ok("cgroup %s, CPU controller at %s", mount.Version, mount.Path)
	if f, err := os.OpenFile(filepath.Join(mount.Path, "cgroup.procs"), os.O_WRONLY, 0); err != nil {
		d.bad("mount it writable", "the hierarchy cannot be written: %v", err)
	} else {
		_ = f.Close()
	}
	layout, ok := cgroup.ParseLayout(kubepods)
	if !ok && kubepods == "" {
		layout, err = host.FindKubepods(mount, "")
	}
	switch {
	case !ok && kubepods != "":
		d.bad("name the cgroup of all pods, such as kubepods.slice, kubepods or kubelet/kubepods",
			"--kubepods %q does not end in kubepods or kubepods.slice", kubepods)
		return mount, cgroup.Layout{}
	case errors.Is(err, host.ErrNoKubepods):
		d.note("say where the pods are with --kubepods, if there are any", "%v", err)
		return mount, cgroup.Layout{}
	case err != nil:
		d.bad("say where the pods are with --kubepods", "%v", err)
		return mount, cgroup.Layout{}
	}
	d.ok("pods at %s, driver %s", layout.Root, layout.Driver)
	return mount, layout
}

// stray checks that containers are in the cgroups of their pods. They are not if the kubelet and the container runtime
// have different cgroup drivers.
func (d *doctor) stray(mount host.Mount, layout cgroup.Layout) {
	all, err := host.Stray(mount, layout, nil)
	switch dirs := slices.Sorted(maps.Values(all)); {
	case err != nil:
		d.bad("run this as root on the node", "%v", err)
	case len(dirs) > 0:
		d.bad(reasons()[string(model.PodsOutside)].Fix,
			"%s of pods outside of %s, such as %s: the kubelet's cgroup driver is %s, the container runtime's is not",
			count(len(dirs), "container"), layout.Root, dirs[0], layout.Driver)
	default:
		d.ok("no container of a pod is outside of %s", layout.Root)
	}
}

func (d *doctor) agent(runDir string) {
	switch locked, err := store.Locked(runDir); {
	case errors.Is(err, os.ErrNotExist):
		d.note("install the chart, if an agent should work here", "no agent has worked here: %v", err)
	case err != nil:
		d.bad("run this as root on the node", "whether an agent works here is not known: %v", err)
	case locked:
		d.ok("an agent works on %s", runDir)
	default:
		d.note("install the chart, if an agent should work here", "no agent works on %s", runDir)
	}
	running := host.Programs()
	inOrder(rivals, func(name, fix string) {
		if running[name] {
			d.bad(fix, "%s runs here, and sets the same files", name)
		}
	})
}

// writers watches for programs that write the pods' weights and quotas.
func (d *doctor) writers(ctx context.Context, mount host.Mount, layout cgroup.Layout, period time.Duration) {
	tree := host.NewTree(mount, layout, nil)
	defer tree.Close()
	if _, err := tree.Scan(func(string) bool { return false }); err != nil {
		d.bad("run this as root on the node", "%v", err)
		return
	}
	t := tree.Model()
	d.kernel(&t)
	dirs := []string{t.Burstable, t.BestEffort}
	for _, pod := range t.Pods {
		dirs = append(dirs, pod.Dir)
	}
	for i := range dirs {
		dirs[i] = filepath.Join(mount.Path, dirs[i])
	}
	type writer struct{ program, file string }
	counts := map[writer]int{}
	ctx, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	if !d.output.data() {
		fmt.Fprintf(d.out, "      watching %d pods for %s ...\n", len(t.Pods), period)
	}
	err := host.WatchWriters(ctx, dirs, func(w host.Write) {
		if knob, ours := cgroup.KnobOf(mount.Version, filepath.Base(w.Path)); ours {
			counts[writer{cmp.Or(w.Program, "a process that has ended"), knob.String()}]++
		}
	})
	if err != nil {
		d.note("", "writers cannot be identified here: %v", err)
		return
	}
	writers := slices.SortedFunc(maps.Keys(counts),
		func(a, b writer) int { return strings.Compare(a.program+a.file, b.program+b.file) })
	for _, w := range writers {
		if slices.Contains(expected, w.program) {
			d.ok("%s wrote %s %d times", w.program, w.file, counts[w])
		} else {
			d.bad("stop it, or have it leave these files alone", "%s wrote %s %d times: a second writer", w.program, w.file,
				counts[w])
		}
	}
	if len(writers) == 0 {
		d.ok("no program wrote a weight or a quota")
	}
}
