package experiment

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HelperCommand is the first argument with which experiments start the running executable again.
const HelperCommand = "experiment-helper"

// list is a flag that can be given more than once.
type list []string

// String returns the values given so far.
func (l *list) String() string { return strings.Join(*l, " ") }

// Set adds a value.
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// RunHelper does what the arguments after [HelperCommand] say. First it enters the cgroups whose cgroup.procs are given with
// --procs, so that not one instruction of load runs elsewhere.
func RunHelper(args []string) error {
	if len(args) == 0 {
		return errors.New("a helper of experiments was started without saying for what")
	}
	var procs, files, pids list
	flags := flag.NewFlagSet(HelperCommand+" "+args[0], flag.ContinueOnError)
	flags.Var(&procs, "procs", "cgroup.procs file of a cgroup to enter")
	flags.Var(&files, "file", "outsider: FILE=VALUE to overwrite, and the value it should come back to; step: NAME=FILE to look at")
	flags.Var(&pids, "pid", "step: of a stopped process that is online load")
	number := flags.Int("number", 0, "burn: which of a pod's loops this is; it decides on which CPU; step: how many")
	parent := flags.Int("parent", 0, "burn, exec, serve: pid of the process to end with")
	roam := flags.Bool("roam", false, "burn: on any CPU that the cgroup allows")
	length := flags.Duration("for", time.Second, "outsider, ask: how long; step: each")
	seed := flags.Uint64("seed", 1, "outsider, ask: of the random numbers")
	dir := flags.String("dir", "", "serve, ask: with the server's FIFOs")
	var q question
	flags.StringVar(&q.address, "address", "", "ask: of a server without FIFOs, the path of a Unix socket or host:port")
	flags.IntVar(&q.connections, "connections", 1, "ask: to the address")
	flags.IntVar(&q.cpu, "cpu", -1, "ask: on which to run; -1: any")
	flags.BoolVar(&q.urgent, "urgent", false, "ask: come before everything else")
	flags.IntVar(&q.watch, "watch", 0, "ask: pid of the server, to see how long it waits for a CPU")
	flags.StringVar(&q.line, "line", "", "ask: a request")
	flags.DurationVar(&q.lead, "lead", 0, "ask: how long before that, at the first rate")
	rate := flags.String("rate", "1", "ask: requests a second; more than one, with commas, each for a part of the time")
	oomScore := flags.Int("oom-score", 0, "oom_score_adj to start with; 0: that of who starts it")
	size := flags.Int64("bytes", 0, "answer, hog: of the file to read")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	for _, file := range procs {
		if err := writeFile(file, "0"); err != nil {
			return fmt.Errorf("entering a cgroup: %w", err)
		}
	}
	if *oomScore != 0 {
		if err := writeFile("/proc/self/oom_score_adj", strconv.Itoa(*oomScore)); err != nil {
			return fmt.Errorf("saying whom to kill first: %w", err)
		}
	}
	switch args[0] {
	case "burn":
		if !*roam {
			if err := stay(*number); err != nil {
				return err
			}
		}
		// A busy loop until the process is killed. It is the shell's, because a Go program cannot keep one thread busy and do
		// nothing else: its runtime's own threads wake up a hundred times a second, and each time the kernel divides the group's
		// weight anew among the CPUs. Measured with such load, two pods of 8192 and 16384 came out at 2.33 : 1; with this one, at
		// 2.00 : 1.
		return become([]string{"/bin/sh", "-c", "while :; do :; done"}, nil, *parent)
	case "exec":
		argv := flags.Args()
		if len(argv) == 0 {
			return errors.New("exec needs a command")
		}
		return become(argv, os.Environ(), *parent)
	case "outsider":
		return outsider(files, *length, *seed, os.Stdout)
	case "step":
		what := stepping{files: files, steps: *number, length: *length}
		for _, text := range pids {
			pid, err := strconv.Atoi(text)
			if err != nil || pid <= 1 {
				return fmt.Errorf("--pid %s is none", text)
			}
			what.pids = append(what.pids, pid)
		}
		return makeSteps(what, os.Stdout)
	case "serve":
		return serve(*dir, *parent)
	case "answer":
		return answerFrom(files.String(), *size, *seed, os.Stdout)
	case "hog":
		return hog(files.String(), *size, memoryTaken, memoryWanted, os.Stdout)
	case "ask":
		q.dir, q.length, q.seed = *dir, *length, *seed
		var err error
		if q.rates, err = parseCourse(*rate); err != nil {
			return fmt.Errorf("--rate: %w", err)
		}
		return ask(q, os.Stdout)
	}
	return fmt.Errorf("there is no helper %q", args[0])
}

// stay puts a busy loop on one CPU, which it never leaves, each CPU as many: what is measured shall be the weights, not the
// luck of the load balancer.
func stay(number int) error {
	cpus, err := allowedCPUs()
	if err != nil {
		return err
	}
	return stayOn(cpus[number%len(cpus)])
}

// allowedCPUs lists those on which this process may run.
func allowedCPUs() (cpus []int, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("asking which CPUs may be used: %w", err)
	}
	for cpu := 0; len(cpus) < allowed.Count(); cpu++ {
		if allowed.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// stayOn puts this thread on a CPU for good; it is locked to its goroutine, and become goes on with the same.
func stayOn(cpu int) error {
	var only unix.CPUSet
	only.Set(cpu)
	runtime.LockOSThread()
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("staying on CPU %d: %w", cpu, err)
	}
	return nil
}

// become goes on as another program, which is killed when the parent ends. The kernel keeps this wish for each thread, and
// any of the Go runtime's may be the one that execs, so what the parent set when it started us is not enough.
func become(argv, env []string, parent int) error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("asking to be killed with the parent: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the parent has ended already")
	}
	return fmt.Errorf("starting %s: %w", argv[0], unix.Exec(argv[0], argv, env))
}
