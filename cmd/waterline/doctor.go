package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterline-io/waterline/internal/agent/store"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// expected are the programs that write pod cgroups on every node. Anybody else's writes are a second writer's.
var expected = []string{
	"kubelet", "containerd", "containerd-shim-runc-v2", "crio", "runc", "crun", "dockerd", "systemd", "init",
	"waterline-agent",
}

// rivals are daemons that set the same files. Two at once fight.
var rivals = []string{"cpu-share-syncer", "koordlet", "crane-agent", "katalyst-agent", "vc-agent"}

func doctorCommand() *cobra.Command {
	var cgroupRoot, kubepods, runDir string
	var seconds int
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check a node's requirements and find other cgroup writers; with cluster: what keeps batch pods out",
		Long: `Check that this node meets Waterline's requirements, and watch the cgroups of its pods for other writers.

Run it on the node, as root. A kubelet writes every 60 seconds; --seconds 70 observes that as well. To check the
cluster instead, run "waterline doctor cluster".`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d := doctor{out: c.OutOrStdout()}
			mount, layout := d.node(cgroupRoot, kubepods)
			d.agent(runDir)
			if layout.Root != "" {
				d.writers(c.Context(), mount, layout, time.Duration(seconds)*time.Second)
			}
			return d.result()
		},
	}
	c.Flags().StringVar(&cgroupRoot, "cgroup-root", host.DefaultRoot, "where the cgroup file system is mounted")
	c.Flags().StringVar(&kubepods, "kubepods", "",
		"directory of all pods below the CPU hierarchy (default: find it)")
	c.Flags().StringVar(&runDir, "run-dir", "/run/waterline", "run directory of the agent")
	c.Flags().IntVar(&seconds, "seconds", 15, "how long to watch for writers")
	c.AddCommand(doctorClusterCommand())
	return c
}

type doctor struct {
	out    io.Writer
	failed int
}

func (d *doctor) ok(format string, args ...any)   { fmt.Fprintf(d.out, "ok    "+format+"\n", args...) }
func (d *doctor) note(format string, args ...any) { fmt.Fprintf(d.out, "note  "+format+"\n", args...) }
func (d *doctor) bad(format string, args ...any) {
	d.failed++
	fmt.Fprintf(d.out, "BAD   "+format+"\n", args...)
}

// result returns an error if a check failed.
func (d *doctor) result() error {
	if d.failed > 0 {
		return fmt.Errorf("%d of the checks failed", d.failed)
	}
	return nil
}

// node checks the kernel's side. The layout is empty if there are no pods.
func (d *doctor) node(cgroupRoot, kubepods string) (host.Mount, cgroup.Layout) {
	if os.Geteuid() != 0 {
		d.bad("not root: run this as root on the node")
	}
	mount, err := host.FindMount(cgroupRoot)
	if err != nil {
		d.bad("%v", err)
		return mount, cgroup.Layout{}
	}
	d.ok("cgroup %s, CPU controller at %s", mount.Version, mount.Path)
	if f, err := os.OpenFile(filepath.Join(mount.Path, "cgroup.procs"), os.O_WRONLY, 0); err != nil {
		d.bad("the hierarchy cannot be written: %v", err)
	} else {
		_ = f.Close()
	}
	layout, ok := cgroup.ParseLayout(kubepods)
	if !ok {
		layout, err = host.FindKubepods(mount, "")
	}
	switch {
	case errors.Is(err, host.ErrNoKubepods):
		d.note("%v", err)
		return mount, cgroup.Layout{}
	case err != nil:
		d.bad("%v", err)
		return mount, cgroup.Layout{}
	}
	d.ok("pods at %s, driver %s", layout.Root, layout.Driver)
	return mount, layout
}

func (d *doctor) agent(runDir string) {
	lock, err := store.Lock(runDir)
	switch {
	case err == nil:
		_ = lock.Close()
		d.note("no agent works on %s", runDir)
	case errors.Is(err, os.ErrNotExist):
		d.note("no agent has worked here: %s does not exist", runDir)
	default:
		d.ok("an agent works on %s", runDir)
	}
	running := host.Programs()
	for _, name := range rivals {
		if running[name] {
			d.bad("%s runs here; it sets the same files: stop it first", name)
		}
	}
}

// writers watches for programs that write the pods' weights and quotas.
func (d *doctor) writers(ctx context.Context, mount host.Mount, layout cgroup.Layout, period time.Duration) {
	tree := host.NewTree(mount, layout, nil)
	defer tree.Close()
	if _, err := tree.Scan(func(string) bool { return false }); err != nil {
		d.bad("%v", err)
		return
	}
	t := tree.Model()
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
	fmt.Fprintf(d.out, "      watching %d pods for %s ...\n", len(t.Pods), period)
	err := host.WatchWriters(ctx, dirs, func(w host.Write) {
		if knob, ours := cgroup.KnobOf(mount.Version, filepath.Base(w.Path)); ours {
			program := w.Program
			if program == "" {
				program = "a process that has ended"
			}
			counts[writer{program, knob.String()}]++
		}
	})
	if err != nil {
		d.note("writers cannot be identified here: %v", err)
		return
	}
	writers := slices.SortedFunc(maps.Keys(counts),
		func(a, b writer) int { return strings.Compare(a.program+a.file, b.program+b.file) })
	for _, w := range writers {
		if slices.Contains(expected, w.program) {
			d.ok("%s wrote %s %d times", w.program, w.file, counts[w])
		} else {
			d.bad("%s wrote %s %d times: a second writer; stop it", w.program, w.file, counts[w])
		}
	}
	if len(writers) == 0 {
		d.ok("no program wrote a weight or a quota")
	}
}
