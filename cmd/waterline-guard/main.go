// Command waterline-guard runs beside a NodeManager in its pod. When the worker must shrink and nobody else ends
// containers in time, or when memory is about to run out, it tells the cheapest containers to leave.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard"
	"github.com/waterline-io/waterline/internal/program/limited"
)

// version is set when a release is built.
var version = "dev"

func main() { os.Exit(run(os.Args[1:])) }

// run carries out the command line and returns the exit code: 0, 1 if the guard cannot work, 2 if the command line is
// invalid.
func run(args []string) int {
	// By default, the heap grows to 4 MiB before garbage is collected, and what was freed stays resident. With the limit,
	// 9.4 MB were resident beside 40 containers in place of 10.6 MB, and 9.6 MB beside 400. The limit is soft: beyond it,
	// garbage is collected more often, for half of the CPU time at most.
	debug.SetGCPercent(20)
	debug.SetMemoryLimit(7e6)
	o := guard.Options{
		Settings: shed.DefaultSettings(), Out: os.Stdout, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}
	f := flag.NewFlagSet("waterline-guard", flag.ContinueOnError)
	listen := f.String("listen", "127.0.0.1:9468", "address for /state and /records; empty: none")
	f.StringVar(&o.Allowance, "allowance", "/etc/waterline/allowance", "file with what the worker may use")
	f.StringVar(&o.NodeManager, "nodemanager", "http://127.0.0.1:8042", "base address of the NodeManager's web services")
	f.Func("resourcemanager", "base address of a ResourceManager's web services, once for each; the active one is asked "+
		"to have containers ended that the guard may not signal", func(address string) error {
		o.ResourceManagers = append(o.ResourceManagers, address)
		return nil
	})
	f.StringVar(&o.User, "user", "", "name of the guard's user in YARN, with simple authentication")
	f.IntVar(&o.PID, "pid", 0, "process of the NodeManager; 0: find it in the pod's shared process namespace")
	f.StringVar(&o.Cgroup, "cgroup", "", "directory of the NodeManager's cgroup; empty: what it sees at /sys/fs/cgroup")
	f.StringVar(&o.Message, "termination-message", "/dev/termination-log",
		"file for the last record of each container that left; the kubelet copies it into the pod's status")
	f.BoolVar(&o.OtherUsers, "other-users", false, "containers run as other users, as with the Linux container executor")
	f.IntVar(&o.Settings.KillsPerMinute, "kills-per-minute", o.Settings.KillsPerMinute,
		"containers that may be ended within a minute, except at the hard mark")
	f.Int64Var(&o.Settings.HardPercent, "hard-memory-percent", o.Settings.HardPercent,
		"part of the memory limit, in percent, at which containers are ended at once")
	printVersion := f.Bool("version", false, "print the version and exit")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case f.NArg() > 0:
		fmt.Fprintf(os.Stderr, "waterline-guard takes no arguments, and got %q\n", f.Arg(0))
		return 2
	case *printVersion:
		fmt.Println(version)
		return 0
	}
	g, err := guard.New(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "waterline-guard:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	serve(ctx, *listen, g, o.Log)
	g.Run(ctx)
	return 0
}

// connections that callers may have open. Containers are in the network of the guard's pod.
const connections = 4

// serve serves the guard's state until the context ends. The guard does its work without it too.
func serve(ctx context.Context, address string, g *guard.Guard, log *slog.Logger) {
	if address == "" {
		return
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		log.Warn("the guard does not show its state; change --listen", "err", err)
		return
	}
	server := limited.Server(g.Handler(), connections)
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("the guard does not show its state any more", "err", err)
		}
	}()
}
