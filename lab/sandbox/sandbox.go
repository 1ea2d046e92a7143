// Package sandbox runs processes in a private copy of the cgroups that a kubelet makes, beside a real agent.
//
// A stand-in for the kubelet makes the cgroups of pods and writes what the kubelet writes. Everything is removed again.
// Nothing outside of the copy is written, with one exception: on cgroup v2 the controllers are switched on below the
// root for as long as the sandbox exists.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/progress"
)

// ErrUnusable is in the chain of every error that says that experiments cannot run on this host. Its text says what to
// do.
var ErrUnusable = errors.New("this host cannot run experiments")

// Controllers that [Open] adds to that of CPU time.
const (
	Cpuset = "cpuset"
	Memory = "memory" // cgroup v2 only
)

// patience is how long the slowest machine may take for one action of the agent.
const patience = time.Minute

// Config says where a sandbox finds what it needs. The zero value is right on most hosts.
type Config struct {
	AgentPath  string              // executable of the agent; "": beside this executable, else in PATH
	CgroupRoot string              // mount point of the cgroup file system; "": /sys/fs/cgroup
	Helper     string              // executable that answers HelperCommand; "": this one
	OnNode     bool                // a kubelet and an agent run already; pods come from Adopt
	Progress   func(progress.Step) // receives how far the experiment is; nil: unused
}

// Flags adds the flags of a command that runs experiments: where they find what they need.
func (c *Config) Flags(flags *pflag.FlagSet) {
	flags.StringVar(&c.AgentPath, "agent", "",
		"executable of the agent (default: "+AgentName+" beside this executable, else in PATH)")
	flags.StringVar(&c.CgroupRoot, "cgroup-root", host.DefaultRoot, "where the cgroup file system is mounted")
}

// Sandbox is a tree of cgroups with the processes that run in it.
type Sandbox struct {
	cgroups
	cfg        Config
	experiment string
	helper     string // executable
	agent      string // executable
	dir        string // temporary, for manifests and the agent's files
	kubelet    kubelet
	loaded     []*Pod
	processes  []*Process // those that must not end
}

// Open makes a sandbox for an experiment, with the cgroups of a node without pods, and moves this process beside them.
// More controllers than that of CPU time are in it if they are named. It first removes what killed runs left behind.
func Open(experiment string, cfg Config, controllers ...string) (_ *Sandbox, err error) {
	s := &Sandbox{cfg: cfg, experiment: experiment, helper: cfg.Helper}
	if s.helper == "" {
		if s.helper, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("finding this executable: %w", err)
		}
	}
	if !cfg.OnNode {
		if s.agent, err = FindExecutable(AgentName, cfg.AgentPath); err != nil {
			if cfg.AgentPath == "" {
				err = fmt.Errorf("%w, or name the file with --agent", err)
			}
			return nil, fmt.Errorf("finding the agent: %w", err)
		}
	}
	if s.cgroups, err = openCgroups(cfg.root(), controllers...); err != nil {
		return nil, err
	}
	if err := s.fill(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// fill makes what stands in a new sandbox.
func (s *Sandbox) fill() error {
	dir := filepath.Join(tempParents()[0], s.name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making a temporary directory: %w", err)
	}
	s.dir = dir
	s.kubelet = kubelet{
		cgroups: &s.cgroups, manifests: filepath.Join(dir, "pods"), allocatableMilli: int64(runtime.NumCPU()) * 1000,
	}
	if err := os.Mkdir(s.kubelet.manifests, 0o700); err != nil {
		return fmt.Errorf("making a temporary directory: %w", err)
	}
	if !s.cfg.OnNode {
		if err := s.kubelet.start(); err != nil {
			return err
		}
	}
	return s.stepOutside()
}

// Check returns nil if experiments can run on this host, else an error with the reason and what to do.
func Check(cgroupRoot string) error {
	c, err := openCgroups(Config{CgroupRoot: cgroupRoot}.root())
	if err != nil {
		return err
	}
	return c.remove()
}

// Close ends every process and removes every trace.
func (s *Sandbox) Close() error {
	var errs []error
	for _, p := range slices.Backward(s.processes) {
		errs = append(errs, p.Kill())
	}
	errs = append(errs, s.remove())
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

func (c Config) root() string {
	if c.CgroupRoot == "" {
		return host.DefaultRoot
	}
	return c.CgroupRoot
}

// Dir returns a temporary directory of the sandbox. It is in memory where that is possible.
func (s *Sandbox) Dir() string { return s.dir }

// Mount returns where the cgroup hierarchies are.
func (s *Sandbox) Mount() host.Mount { return s.mount }

// Version returns the version of the cgroup file system.
func (s *Sandbox) Version() cgroup.Version { return s.mount.Version }

// Layout returns where the pods are.
func (s *Sandbox) Layout() cgroup.Layout { return s.kubelet.layout }

// AddLoad adds a pod to those that bear load.
func (s *Sandbox) AddLoad(p *Pod) { s.loaded = append(s.loaded, p) }

// Loaded returns the pods that bear load.
func (s *Sandbox) Loaded() []*Pod { return s.loaded }

// LoadedGroups returns the cgroups of the pods that bear load, by the names of the pods.
func (s *Sandbox) LoadedGroups() map[string]string {
	groups := map[string]string{}
	for _, p := range s.loaded {
		groups[p.Name] = s.PodGroup(p)
	}
	return groups
}

// Await waits until the agent has given the pods the weights of their annotations.
func (s *Sandbox) Await(ctx context.Context, pods ...*Pod) error {
	for _, p := range pods {
		if p.Shares == 0 {
			continue
		}
		err := s.Poll(ctx, "for the agent to give pod "+p.Name+" its weight", func() (bool, error) {
			dir := s.PodGroup(p)
			if p.BatchMilli > 0 && s.schedIdle(dir) {
				return true, nil // by its policy, which fixes the weight at its minimum
			}
			is, err := s.Weight(dir)
			return is == s.Raw(p.Shares), err
		})
		if err != nil {
			return s.WithAgentLog(err)
		}
	}
	return nil
}

// Poll calls done every millisecond until it returns true. It fails after a minute, or if a process of the sandbox
// ends. The subject completes "waiting", such as "for the agent".
func (s *Sandbox) Poll(ctx context.Context, subject string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not there after %v", patience))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := s.Running(); err != nil {
			return err
		}
		if err := Sleep(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("waiting %s: %w", subject, err)
		}
	}
}

// Running returns an error if a process has ended that must not.
func (s *Sandbox) Running() error {
	for _, p := range s.processes {
		if p.killed {
			continue
		}
		if err := p.Ended(); err != nil {
			return err
		}
	}
	return nil
}

// Raw converts shares to the unit of the kernel's file.
func (s *Sandbox) Raw(shares int64) cgroup.Raw {
	return cgroup.ToRaw(s.mount.Version, model.Shares, model.Number(shares))
}

// Report reports progress.
func (s *Sandbox) Report(step progress.Step) {
	if s.cfg.Progress != nil {
		step.Experiment = s.experiment
		s.cfg.Progress(step)
	}
}

// Sleep waits, unless the context ends first. Then it returns the context's cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
