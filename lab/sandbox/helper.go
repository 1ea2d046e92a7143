package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// HelperCommand is the first argument with which a sandbox starts the running executable again. The executable must
// then call [RunHelper] with the arguments that follow.
const HelperCommand = "experiment-helper"

// Helper is a program within this executable that a sandbox runs as a process of its own.
type Helper struct {
	Name string
	Run  func(HelperInput) error
}

// HelperInput is what a helper gets from the process that started it.
type HelperInput struct {
	parent int
	data   json.RawMessage
}

// Decode reads the Input of the [Command].
func (h HelperInput) Decode(into any) error {
	if err := json.Unmarshal(h.data, into); err != nil {
		return fmt.Errorf("reading the input of a helper: %w", err)
	}
	return nil
}

// helperCall is the argument of a helper.
type helperCall struct {
	Procs    []string        `json:",omitempty"` // cgroup.procs files of the cgroups to enter
	Parent   int             // pid of the process to end with
	OOMScore int             `json:",omitempty"`
	Program  []string        `json:",omitempty"` // to become, instead of a helper
	Input    json.RawMessage `json:",omitempty"`
}

// RunHelper does what the arguments after [HelperCommand] say: it enters cgroups, then runs a program or one of the
// helpers.
func RunHelper(args []string, helpers []Helper) error {
	if len(args) != 2 {
		return errors.New("a helper of experiments takes two arguments; only experiments start it")
	}
	var call helperCall
	if err := json.Unmarshal([]byte(args[1]), &call); err != nil {
		return fmt.Errorf("reading the argument of helper %q: %w", args[0], err)
	}
	for _, file := range call.Procs {
		if err := writeFile(file, "0"); err != nil {
			return fmt.Errorf("entering a cgroup: %w", err)
		}
	}
	if call.OOMScore != 0 {
		if err := writeFile("/proc/self/oom_score_adj", strconv.Itoa(call.OOMScore)); err != nil {
			return fmt.Errorf("setting the OOM score: %w", err)
		}
	}
	input := HelperInput{parent: call.Parent, data: call.Input}
	if call.Program != nil {
		return input.Become(call.Program, os.Environ())
	}
	for _, h := range helpers {
		if h.Name == args[0] {
			return h.Run(input)
		}
	}
	return fmt.Errorf("there is no helper %q", args[0])
}

// Become replaces this program by another, which is killed when the parent ends. The kernel keeps this setting for each
// thread, and any thread of the Go runtime may be the one that execs, so the setting of [Sandbox.Start] is not enough.
func (h HelperInput) Become(argv, env []string) error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("setting the signal for the parent's end: %w", err)
	}
	if os.Getppid() != h.parent {
		return errors.New("the parent has ended already")
	}
	return fmt.Errorf("starting %s: %w", argv[0], unix.Exec(argv[0], argv, env))
}
