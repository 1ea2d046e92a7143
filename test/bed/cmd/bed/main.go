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
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/test/bed/cluster"
)

const usage = `bed up [-node=false] [IMAGES.tar ...]     bring a cluster up and leave it running
bed down                                  end it and remove every trace
bed start|stop|kill|restart COMPONENT     etcd, apiserver, controller-manager, scheduler, containerd or kubelet
bed import IMAGES.tar                     import images into its node`

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
	node := flags.Bool("node", true, "with a node")
	leash := flags.Bool("leash", false, "for init: end when the leash is let go")
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
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		bed, err := cluster.Up(ctx, cluster.Options{Bin: bin, Node: *node, Images: rest})
		if err != nil {
			return err
		}
		fmt.Printf("export KUBECONFIG=%s\n", bed.Kubeconfig())
		return nil
	case "down":
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return cluster.Down(ctx, cluster.DefaultDir)
	case "start", "stop", "kill", "restart", "import":
		if len(rest) != 1 {
			return errors.New("usage:\n" + usage)
		}
		bed, err := cluster.Attach(cluster.DefaultDir, bin)
		if err != nil {
			return err
		}
		if command == "import" {
			return bed.Import(ctx, rest[0])
		}
		return bed.Control(ctx, command, rest[0])
	case "init": // -leash=B DIR BIN NODE IMAGES...: the first process inside
		return cluster.Init(self, append([]string{"supervise"}, rest...), *leash)
	case "supervise": // DIR BIN NODE IMAGES...
		withNode, err := strconv.ParseBool(rest[2])
		if err != nil {
			return err
		}
		return cluster.Supervise(ctx, rest[0], rest[1], withNode, rest[3:])
	case "sweep": // DIR
		return cluster.Sweep(rest[0], os.Stdin)
	}
	return errors.New("usage:\n" + usage)
}
