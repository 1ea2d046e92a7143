// Command bed brings the test bed's cluster up and down.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/test/bed/cluster"
	"github.com/waterline-io/waterline/test/bed/vm"
)

const usage = `bed up [-node=false] [-static] [-vm] [IMAGES.tar ...]  bring a cluster up and leave it running
bed down                                               end it and remove every trace
bed start|stop|kill|restart COMPONENT                  one of etcd, apiserver, controller-manager, scheduler,
                                                       coredns, containerd, kubelet and vm
bed import IMAGES.tar                                  import images into the node on this machine
bed vm COMMAND...                                      run a command in the virtual machine`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage:\n" + usage)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin := filepath.Dir(self)
	flags := flag.NewFlagSet("bed "+args[0], flag.ContinueOnError)
	node := flags.Bool("node", true, "with a node on this machine")
	static := flags.Bool("static", false, "the node on this machine has the CPU manager policy static")
	second := flags.Bool("vm", false, "with a node in a virtual machine: cgroup v2, systemd")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	rest := flags.Args()
	switch command := args[0]; command {
	case "up":
		// A cluster that stays must not keep the caller's pipes and locks open.
		if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return fmt.Errorf("closing inherited files: %w", err)
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		o := cluster.Options{Bin: bin, Node: *node, Static: *static, Images: rest}
		if *second {
			if o.VM, err = vm.FetchKernel(ctx, filepath.Join(bin, "../../vm/kernel")); err != nil {
				return err
			}
		}
		bed, err := cluster.Up(ctx, o)
		if err != nil {
			return err
		}
		fmt.Printf("export KUBECONFIG=%s\n", bed.Kubeconfig())
		return nil
	case "down":
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return cluster.Down(ctx)
	case "vm":
		bed, err := cluster.Attach(bin)
		if err != nil {
			return err
		}
		node, err := bed.VM()
		if err != nil {
			return err
		}
		out, err := node.Run(ctx, rest...)
		fmt.Print(out)
		return err
	case "start", "stop", "kill", "restart", "import":
		if len(rest) != 1 {
			return errors.New("usage:\n" + usage)
		}
		bed, err := cluster.Attach(bin)
		if err != nil {
			return err
		}
		if command == "import" {
			return bed.Import(ctx, rest[0])
		}
		return bed.Control(ctx, command, rest[0])
	// What the cluster starts itself, with the directory of its state.
	case "init", "supervise", "sweep":
		if len(rest) != 1 {
			return errors.New("usage:\n" + usage)
		}
		switch dir := rest[0]; command {
		case "init": // the first process inside
			return cluster.Init(self, dir)
		case "supervise":
			return cluster.Supervise(ctx, dir)
		default:
			return cluster.Sweep(dir, os.Stdin)
		}
	}
	return errors.New("usage:\n" + usage)
}
