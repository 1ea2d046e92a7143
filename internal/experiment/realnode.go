package experiment

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Node is this machine as a node of a cluster. Its kubelet and its agent are real, and so are the pods, in which nothing runs: what
// is to run in them the experiment starts itself, in their cgroups, so that it can be started, stopped and counted like any
// other.
type Node interface {
	// Describe says in a few words what the node is.
	Describe() string
	// Govern has the node's agent go by a policy, the text of a ColocationPolicy, and returns once it does; "": by one that is
	// switched off.
	Govern(ctx context.Context, policy string) error
	// Run makes a pod, and returns once it runs. One that lasts may have been made for an earlier run, and has nothing in it.
	Run(ctx context.Context, p NodePod) (Made, error)
	// Agent returns the agent's own pod.
	Agent(ctx context.Context) (Made, error)
	// Lost returns how many of the pods that were made do not run any more, or were started again.
	Lost(ctx context.Context) (int, error)
	// Clean deletes what was made for a run.
	Clean(ctx context.Context) error
}

// NodePod is a pod to make on a node. CPU is in milli-cores.
type NodePod struct {
	Name         string
	RequestMilli int64
	BatchMilli   int64 // of batch CPU that it asks for, as a batch pod; 0: it is none
	Lasts        bool  // it serves the runs after this one too. An agent counts a pod that is new with all that it requests, for a minute
}

// Made is a pod that was made: its UID, and the id of its container.
type Made struct{ UID, Container string }

// place makes a pod on a real node, and finds its cgroups.
func (l *lab) place(ctx context.Context, p *pod) error {
	l.tell(Progress{Doing: "making pod " + p.name})
	made, err := l.cfg.Node.Run(ctx, NodePod{Name: p.name, RequestMilli: p.requestMilli, BatchMilli: p.batchMilli, Lasts: p.lasts})
	if err != nil {
		return err
	}
	return l.locate(p, made)
}

// locate finds the cgroups of a pod that a kubelet made.
func (l *lab) locate(p *pod, made Made) (err error) {
	if p.group, err = l.box.find(made.UID); err != nil {
		return fmt.Errorf("finding the cgroup of pod %s: %w", p.name, err)
	}
	if p.inner, err = l.box.find(made.Container); err != nil {
		return fmt.Errorf("finding the cgroup of the container of pod %s: %w", p.name, err)
	}
	return nil
}

// find returns the highest cgroup that has an id in its name. With the systemd driver that has underscores instead of dashes.
func (b *sandbox) find(id string) (string, error) {
	var found string
	err := filepath.WalkDir(b.mount.Path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it went away while we looked
		}
		if !strings.Contains(strings.ReplaceAll(d.Name(), "_", "-"), id) {
			return nil
		}
		found, err = filepath.Rel(b.mount.Path, path)
		if err != nil {
			return err
		}
		return fs.SkipAll
	})
	if err == nil && found == "" {
		err = fmt.Errorf("nothing below %s has %s in its name", b.mount.Path, id)
	}
	return found, err
}
