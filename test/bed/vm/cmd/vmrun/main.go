// Command vmrun runs programs as root on a cgroup v2 kernel in qemu and passes on their output, their files and their
// exit code:
//
//	vmrun -file kernel.test=/t/kernel.test -- /t/kernel.test -test.v
//	vmrun -o results -file a.test=/t/a -file testdata=/t/testdata -run 'a: cd /t && ./a' \
//	    -run 'env: uname -a; cat /proc/pressure/cpu'
//
// One boot serves all commands, in their order. Each is one more -run, which busybox's shell executes, or the one after
// --, which is started as it is. What they leave in /out in the guest is in the folder of -o afterwards. Between two
// commands every process and every cgroup that the first left behind is removed.
//
// The guest has two CPUs, or as many as -smp says, and no NUMA. With -topology it has sockets, NUMA nodes, cores
// and threads: -topology 2x2x1x2 makes eight CPUs in two sockets, each of two nodes, each of one core of two threads.
//
// The exit code is that of the first command that fails, 124 if one ran out of time, 125 if the guest itself failed,
// and 2 for a command line that vmrun does not understand.
//
// The kernel is the distribution's own, fetched with apt into the folder of -cache and not installed. qemu emulates the
// CPU unless WATERLINE_VM_ACCEL=kvm asks for KVM. Programs have to be linked statically: build vmrun, and Go tests,
// with CGO_ENABLED=0.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/waterline-io/waterline/test/bed/vm"
	"github.com/waterline-io/waterline/test/bed/vm/guest"
)

const (
	codeGuest = 125
	codeUsage = 2
)

func main() {
	if guest.Here() {
		guest.Main()
	}
	os.Exit(run(os.Args[1:], os.Getenv("WATERLINE_VM_ACCEL"), os.Stdout, os.Stderr))
}

func run(args []string, accel string, stdout, stderr io.Writer) int {
	o, err := parse(args, accel, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "vmrun:", err)
		return codeUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	report, err := boot(ctx, o, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "vmrun:", err)
		return codeGuest
	}
	return report.Code()
}

// boot completes the configuration with what the command line did not name and runs the guest.
func boot(ctx context.Context, o options, stdout, stderr io.Writer) (vm.Report, error) {
	c := o.config
	c.Stdout, c.Log = stdout, logger(stderr, o.quiet)
	var err error
	if c.Init, err = os.Executable(); err != nil {
		return vm.Report{}, fmt.Errorf("looking for this program, which is the guest's process 1: %w", err)
	}
	if c.Kernel == "" {
		if c.Kernel, err = vm.FetchKernel(ctx, filepath.Join(o.cache, "kernel")); err != nil {
			return vm.Report{}, err
		}
	}
	for _, name := range o.modules {
		file, err := vm.Module(c.Kernel, name)
		if err != nil {
			return vm.Report{}, err
		}
		if file != "" {
			c.Files = append(c.Files, vm.File{Host: file, Guest: modules + "/" + name + ".ko"})
		}
	}
	c.Scratch = o.cache
	if o.keep {
		c.KeepDir = filepath.Join(o.cache, "kept", time.Now().Format("20060102-150405.000"))
		c.Log.Info("keeping the initramfs and the console", "in", c.KeepDir)
	}
	report, err := vm.Run(ctx, c)
	if err == nil {
		c.Log.Info("done", "commands", len(report.Results), "took", report.Total.Round(10*time.Millisecond))
	}
	return report, err
}

// logger writes lines without a time: what matters here is how long things took, and that they say themselves.
func logger(w io.Writer, quiet bool) *slog.Logger {
	level := slog.LevelInfo
	if quiet {
		level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	}))
}
