// Package memory measures what batch takes of a server's page cache, with and without protect.memory. It needs cgroup
// v2.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// The experiment.
const (
	Name  = "memory"
	About = "A server that lives on its page cache beside batch that reads and grows: how much memory it loses, and " +
		"how many " +
		"requests it still answers, with and without protect.memory."
	DefaultSeconds = 30 // of each mode
	// ServedBytes and StreamedBytes are how much the server and batch read of their files.
	ServedBytes   = 96 << 20
	StreamedBytes = 96 << 20
)

// The memory of the node and of its pods, in bytes. The offer to batch is free while the server does nothing. Batch
// wants more.
const (
	nodeBytes     = 240 << 20
	roomyBytes    = 400 << 20 // of a node on which memory is not short
	requestBytes  = 108 << 20 // of the server
	batchBytes    = 174 << 20 // batch memory request
	batchAtOnce   = 80 << 20  // that batch takes at its start
	batchInTheEnd = 192 << 20
)

// Config says how the experiment runs. The zero value is the default.
type Config struct {
	sandbox.Config
	Seconds int      // of each mode
	Dir     string   // on a disk, for two files; "": the directory for temporary files
	Disks   []string // two disks or files to read instead, the server's first; they are not written to
}

// Run has a server read random pieces of a file as fast as it answers: alone; beside batch on a node that has memory
// for both; and on a node that has not, under an agent that protects no memory, and under one that does. The node is a
// cgroup with a limit. The metrics are those of [outcome.report].
func Run(ctx context.Context, cfg Config) (r report.Result, err error) {
	if cfg.Seconds == 0 {
		cfg.Seconds = DefaultSeconds
	}
	root := cmp.Or(cfg.CgroupRoot, host.DefaultRoot)
	if mount, err := host.FindMount(root); err == nil && mount.Version == cgroup.V1 {
		return r, fmt.Errorf("%w: cgroup v1 protects no memory; this experiment needs a machine with cgroup v2 alone "+
			"(kernel "+
			"parameter systemd.unified_cgroup_hierarchy=1) or a virtual one, as make bench NAME=memory does",
			sandbox.ErrUnusable)
	}
	files, clean, err := cfg.files()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, clean()) }()
	r = report.Begin(Name, About)
	r.Machine = measure.DescribeMachine(cgroup.V2)
	found := outcome{seconds: cfg.Seconds}
	for i, m := range modes() {
		if found.runs[i], err = cfg.run(ctx, m, files); err != nil {
			return r, fmt.Errorf("mode %s: %w", m.name, err)
		}
	}
	found.report(&r)
	return r, nil
}

// mode says what runs, on which node, and under which policy.
type mode struct {
	name     string
	node     int64 // bytes that it has
	batch    bool
	protects bool
}

// modes returns the modes in their order in [outcome]. Mode roomy shows what batch costs the server in CPU alone.
func modes() [4]mode {
	return [4]mode{
		{name: "alone", node: nodeBytes},
		{name: "roomy", node: roomyBytes, batch: true},
		{name: "plain", node: nodeBytes, batch: true},
		{name: "waterline", node: nodeBytes, batch: true, protects: true},
	}
}

// files returns the files that the server and batch read, and what removes them.
func (c *Config) files() (files [2]string, clean func() error, err error) {
	var made []*os.File
	clean = func() error {
		var errs []error
		for _, f := range made {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	if len(c.Disks) == len(files) {
		return [2]string(c.Disks), clean, nil
	}
	dir := cmp.Or(c.Dir, os.TempDir())
	if host.InMemory(dir) {
		return files, clean, fmt.Errorf("%w: %s is in memory, so the kernel cannot reclaim pages of a file in it; name a "+
			"directory on a disk with --dir, or disks with --disk", sandbox.ErrUnusable, dir)
	}
	for i, size := range []int64{ServedBytes, StreamedBytes} {
		f, err := makeFile(dir, size)
		if err != nil {
			return files, clean, errors.Join(err, clean())
		}
		made = append(made, f)
		files[i] = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	}
	return files, clean, nil
}

// run measures one mode, in a sandbox of its own.
func (c *Config) run(ctx context.Context, m mode, files [2]string) (found run, err error) {
	for _, file := range files {
		if err := dropCache(file); err != nil {
			return found, err
		}
	}
	s, err := sandbox.Open(Name, c.Config, sandbox.Memory)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	t := &trial{Sandbox: s, mode: m, files: files}
	t.online, t.batch = pods(m.protects)
	if err := t.begin(ctx); err != nil {
		return found, err
	}
	return t.measure(ctx, c.Seconds)
}
