package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/waterline-io/waterline/test/bed/vm"
)

// options are what the command line says.
type options struct {
	config      vm.Config
	cache       string
	modules     []string
	keep, quiet bool
}

// modules is where the guest has the modules that it was given.
const modules = "/lib/modules"

const usage = `Usage: vmrun [flags] [-run 'name: shell command']... [-- /guest/program args...]

Runs programs as root on a cgroup v2 kernel in qemu.

Flags:
`

func parse(args []string, accel string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("vmrun", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&o.config.Memory, "mem", 512, "the guest's memory in `MiB`; its files take twice their size from it")
	fs.IntVar(&o.config.CPUs, "smp", 2, "`number` of CPUs")
	fs.Func("topology", "the CPUs as `SOCKETSxNODESxCORESxTHREADS`, each for one of the one before, instead of -smp: "+
		"2x2x1x2 is 2 sockets, each of 2 NUMA nodes, each of 1 core of 2 threads", func(s string) error {
		t, err := vm.ParseTopology(s)
		o.config.Topology = t
		return err
	})
	fs.DurationVar(&o.config.Timeout, "timeout", 10*time.Minute, "`limit` for all commands together")
	fs.StringVar(&o.config.OutDir, "o", "", "`folder` for what the commands leave in the guest's /out")
	fs.StringVar(&o.config.Kernel, "kernel", "", "`bzImage` to boot, instead of the distribution's")
	fs.StringVar(&o.cache, "cache", filepath.Join("out", "vm"),
		"`folder` for the distribution's kernel and what -keep keeps")
	fs.BoolVar(&o.keep, "keep", false, "keep the initramfs and the log of the guest's console")
	fs.BoolVar(&o.quiet, "q", false, "say only what goes wrong")
	fs.Func("file", "a `host=guest` pair: a file or a folder for the guest; may be repeated", func(s string) error {
		host, guest, ok := strings.Cut(s, "=")
		if !ok || host == "" || !path.IsAbs(guest) {
			return errors.New("want host=/guest")
		}
		o.config.Files = append(o.config.Files, vm.File{Host: host, Guest: guest})
		return nil
	})
	fs.Func("module", "a `name` of a module of the kernel, for the guest's "+modules+"; may be repeated",
		func(s string) error {
			o.modules = append(o.modules, s)
			return nil
		})
	fs.Func("e", "`KEY=VALUE` for the environment of the commands; may be repeated", func(s string) error {
		if strings.Index(s, "=") < 1 {
			return errors.New("want KEY=VALUE")
		}
		o.config.Env = append(o.config.Env, s)
		return nil
	})
	fs.Func("append", "`argument` for the kernel's command line; may be repeated", func(s string) error {
		o.config.KernelArgs = append(o.config.KernelArgs, s)
		return nil
	})
	fs.Func("run", "a `command` for the guest's shell, best as 'name: command'; may be repeated", func(s string) error {
		c, err := shellCommand(s)
		o.config.Commands = append(o.config.Commands, c)
		return err
	})
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stderr, usage)
			fs.SetOutput(stderr)
			fs.PrintDefaults()
		}
		return o, err
	}
	if argv := fs.Args(); len(argv) > 0 {
		o.config.Commands = append(o.config.Commands, vm.Command{Name: path.Base(argv[0]), Argv: argv})
	}
	switch accel {
	case "":
		o.config.Accel = "tcg"
	case "tcg", "kvm":
		o.config.Accel = accel
	default:
		return o, fmt.Errorf("WATERLINE_VM_ACCEL is %q, want tcg or kvm", accel)
	}
	switch {
	case len(o.config.Commands) == 0:
		return o, errors.New("no command: vmrun -h shows how to give one")
	case o.config.Memory < 1 || o.config.CPUs < 1 || o.config.Timeout <= 0:
		return o, errors.New("-mem, -smp and -timeout want more than 0")
	}
	return o, nil
}

var named = regexp.MustCompile(`(?s)^([\w.-]+): +(.*\S.*)$`)

// shellCommand splits the name off, or takes the program's for it.
func shellCommand(s string) (vm.Command, error) {
	name, text := "", s
	if m := named.FindStringSubmatch(s); m != nil {
		name, text = m[1], m[2]
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return vm.Command{}, errors.New("want a command")
	}
	if name == "" {
		name = path.Base(words[0])
	}
	return vm.Command{Name: name, Argv: []string{"/bin/sh", "-c", text}}, nil
}
