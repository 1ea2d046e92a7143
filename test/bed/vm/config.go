package vm

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/waterline-io/waterline/test/bed/vm/wire"
)

// Config is a guest to boot and what to run in it.
type Config struct {
	// Kernel is a bzImage, as FetchKernel returns it.
	Kernel string
	// KernelArgs are added to the kernel's command line.
	KernelArgs []string
	// Init is the statically linked program that becomes process 1 and calls guest.Main there.
	Init string
	// Memory is in MiB. The initramfs takes twice the size of its files from it.
	Memory int
	CPUs   int
	// Topology is how the CPUs hang together. If it is not zero, it also says how many there are, and CPUs does not count.
	Topology Topology
	// Accel is "tcg" or "kvm".
	Accel string
	// BootLimit is how long the guest may take until it is ready for commands; 0: 2 minutes. A guest that takes longer is
	// started once more.
	BootLimit time.Duration
	// Timeout is for all commands together. At its end the command that runs is interrupted, the rest is skipped, and
	// the files are still brought back.
	Timeout time.Duration
	Files   []File
	// Env is added to the environment of the commands: KEY=VALUE. They also have PATH, HOME and WATERLINE_VM=1.
	Env      []string
	Commands []Command
	// OutDir receives what the commands left in /out; if it is empty, nothing is sent.
	OutDir string
	// KeepDir receives the initramfs and the log of the guest's console; if it is empty, neither is kept.
	KeepDir string
	// Scratch is a folder for a file that is removed while the guest boots.
	Scratch string
	// Stdout receives what the commands write to their standard output and standard error.
	Stdout io.Writer
	Log    *slog.Logger
}

// File is a file or a folder of the host that the guest gets under an absolute path.
type File struct{ Host, Guest string }

// Command is one program to run. Its first argument is a path in the guest or the name of a busybox applet.
type Command = wire.Command

// Result is how a command ended.
type Result = wire.Exit

// Report is what a guest did.
type Report struct {
	// Release is that of the guest's kernel, Controllers are the cgroup controllers it has.
	Release     string
	Controllers string
	// Boot is the time from the start of qemu to the guest's readiness, Total that to the end of qemu.
	Boot, Total time.Duration
	// Results are in the order of the commands. After an error there may be fewer than commands.
	Results []Result
}

// Code is the exit code of the first command that did not end with 0, or 0.
func (r Report) Code() int {
	for _, e := range r.Results {
		switch {
		case e.TimedOut:
			return CodeTimeout
		case e.Code != 0:
			return e.Code
		}
	}
	return 0
}

// CodeTimeout is the exit code for a command that ran out of time.
const CodeTimeout = 124

// ErrGuest is returned, with the end of the guest's console, if the guest did not do as it should: it panicked, hung or
// switched off too early.
var ErrGuest = errors.New("guest failed")
