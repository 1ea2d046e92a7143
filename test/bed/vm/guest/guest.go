// Package guest is process 1 of a test-bed VM: it mounts what a node has, runs the commands of a plan one after
// another, sends their output and the files they leave to the host, and switches the machine off.
package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/waterline-io/waterline/test/bed/vm/wire"
)

// Here says whether this is process 1 of such a VM, and not of some container.
func Here() bool { return os.Getpid() == 1 && os.Args[0] == wire.InitPath }

// Main is the whole life of process 1. It does not return; a panic in it ends as a kernel panic, which the host sees.
func Main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "waterline guest:", err)
	}
	syscall.Sync()
	for {
		// Should the machine not know how to switch off, a restart ends qemu too.
		_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
		_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)
		time.Sleep(time.Second)
	}
}

func run() (err error) {
	booted := time.Now()
	if err := mountAll(); err != nil {
		return err
	}
	port, err := openPort(wire.Port)
	if err != nil {
		return err
	}
	w, err := wire.NewWriter(port)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = w.Send(wire.KindError, []byte(err.Error()))
		}
		drain(port)
	}()
	go beat(w)

	plan, err := readPlan()
	if err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(plan.Hostname)); err != nil {
		return fmt.Errorf("setting the host name %q: %w", plan.Hostname, err)
	}
	hello, err := prepare()
	if err != nil {
		return err
	}
	if err := w.SendJSON(wire.KindHello, hello); err != nil {
		return err
	}
	if err := runAll(w, plan, booted.Add(plan.Timeout)); err != nil {
		return err
	}
	if plan.SendOut {
		if err := sendFiles(w.Stream(wire.KindFiles), wire.OutDir); err != nil {
			return err
		}
	}
	return w.Send(wire.KindDone, nil)
}

func readPlan() (wire.Plan, error) {
	b, err := os.ReadFile(wire.PlanPath)
	if err != nil {
		return wire.Plan{}, fmt.Errorf("reading the plan: %w", err)
	}
	var p wire.Plan
	if err := json.Unmarshal(b, &p); err != nil {
		return wire.Plan{}, fmt.Errorf("decoding %s: %w", wire.PlanPath, err)
	}
	return p, nil
}

func beat(w *wire.Writer) {
	for range time.Tick(wire.BeatEvery) {
		if w.Send(wire.KindBeat, nil) != nil {
			return
		}
	}
}
