// Package restore restores a node while no agent runs.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	acthost "github.com/waterline-io/waterline/internal/act/host"
	"github.com/waterline-io/waterline/internal/agent/kernel"
	"github.com/waterline-io/waterline/internal/agent/store"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// Config is the configuration of [Restore].
type Config struct {
	CgroupRoot string // where the cgroup file system is mounted
	RunDir     string // of the agent
	Sys        string // where sysfs is mounted

	Pods    Pods                                             // nil: the undo record alone counts
	Kubelet func(ctx context.Context) (model.Kubelet, error) // its settings; nil: unknown
}

// Pods reports the pods of the node.
type Pods interface {
	Run(ctx context.Context)
	Wake() <-chan struct{}
	Snapshot() model.Snapshot
}

// Restored is one file that [Restore] restored, or failed to.
type Restored struct {
	model.File
	Ours   model.Value
	Value  model.Value
	Reason model.Reason
	Failed string // the kernel's error; "": it was restored, or its group is gone
}

// Restore restores every file on the undo record while no agent runs: to the value that the kubelet computes if the
// pods are known, else to the recorded one. The pods are known if cfg.Pods is set and delivers them before the context
// ends.
func Restore(ctx context.Context, cfg Config) ([]Restored, error) {
	lock, err := store.Lock(cfg.RunDir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	mount, err := host.FindMount(cfg.CgroupRoot)
	if err != nil {
		return nil, err
	}
	undo, err := acthost.OpenUndo(filepath.Join(cfg.RunDir, kernel.UndoFile))
	if err != nil {
		return nil, err
	}
	h, err := acthost.New(mount.Version, mount.OfKnob, undo)
	if err != nil {
		return nil, err
	}
	defer func() { _ = h.Close() }() // it was only read through

	var unknown error
	for _, file := range h.Foreign() {
		unknown = errors.Join(unknown, fmt.Errorf("%s: a newer version of Waterline wrote it; restore it with that version",
			file))
	}
	n := model.Node{Now: time.Now(), Owned: h.Owned()}
	if len(n.Owned) == 0 {
		return nil, unknown
	}
	if layout, ok := layoutOf(n.Owned); ok && cfg.Pods != nil {
		n.Kubelet = observePods(ctx, cfg, &n)
		tree := host.NewTree(mount, layout, nil)
		defer tree.Close()
		if _, err := tree.Scan(func(string) bool { return true }); err != nil {
			return nil, err
		}
		n.Tree = tree.Model()
	}
	if n.Topology, err = host.ReadTopology(cfg.Sys); err != nil {
		n.Topology = nil // then what was recorded counts
	}
	for _, name := range []string{store.StateFile, store.PodsFile} {
		if err := os.Remove(filepath.Join(cfg.RunDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("removing the state: %w", err)
		}
	}
	plan, _ := node.Decide(n, model.Policy{Mode: model.ModeDisabled}, node.State{})
	incidents, err := h.Apply(&plan)
	err = errors.Join(err, unknown)
	restored := make([]Restored, 0, len(n.Owned))
	for i, s := range plan.Settings {
		r := Restored{File: s.File, Ours: n.Owned[i].Ours, Value: s.Value, Reason: s.Reason}
		for _, incident := range incidents {
			if incident.File != s.File {
				continue
			}
			switch incident.Kind {
			case model.Rejected:
				r.Failed = incident.Errno
				err = errors.Join(err, errors.New(s.Dir+" "+s.Knob.String()+": the kernel refused the value: "+r.Failed))
			case model.Exceeded:
				r.Failed = "in use"
				err = errors.Join(err, fmt.Errorf("%s %s: %d bytes are in use, more than the value", s.Dir, s.Knob, incident.Use))
			}
		}
		restored = append(restored, r)
	}
	return restored, err
}

// layoutOf finds the directory of all pods in the path of a file that was owned.
func layoutOf(owned []model.Owned) (cgroup.Layout, bool) {
	for _, o := range owned {
		for dir := o.Dir; dir != "." && dir != "/"; dir = filepath.Dir(dir) {
			if layout, ok := cgroup.ParseLayout(dir); ok {
				return layout, true
			}
		}
	}
	return cgroup.Layout{}, false
}

// observePods waits for the pods and returns the kubelet's settings, each as far as it can be had.
func observePods(ctx context.Context, cfg Config, n *model.Node) model.Kubelet {
	running, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { cfg.Pods.Run(running); close(done) }()
	defer func() { cancel(); <-done }()
	for {
		if s := cfg.Pods.Snapshot(); s.Known {
			n.Pods, n.PodsKnown, n.Allocatable.CPU = s.Pods, true, s.Allocatable.CPU
			break
		}
		select {
		case <-cfg.Pods.Wake():
		case <-ctx.Done():
			return model.Kubelet{}
		}
	}
	if cfg.Kubelet == nil {
		return model.Kubelet{}
	}
	kubelet, err := cfg.Kubelet(ctx)
	if err != nil {
		return model.Kubelet{} // then what was recorded counts
	}
	return kubelet
}
