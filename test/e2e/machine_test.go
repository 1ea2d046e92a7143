package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/waterline-io/waterline/test/bed/vmnode"
)

// machine is the host of a node.
type machine interface {
	readFile(path string) ([]byte, error)
	writeFile(path string, content []byte) error
	remove(path string) error
	// watch reads files for a while and returns their changes.
	watch(w vmnode.Watch) ([]vmnode.Change, error)
	// first waits for the first process in one of some groups.
	first(f vmnode.First) (string, error)
	// run runs a command where the node's pods can be reached.
	run(args ...string) (string, error)
	// restart restarts a component of the node: containerd or kubelet.
	restart(component string) error
	// ctr runs containerd's command.
	ctr(args ...string) (string, error)
	// runDir returns the agent's run directory.
	runDir() string
}

// patience is the additional time that an action on a machine may take.
const patience = 2 * time.Minute

// here is this machine, with the bed's node on it.
type here struct{}

func (here) readFile(path string) ([]byte, error) { return os.ReadFile(path) }

func (here) writeFile(path string, content []byte) error { return os.WriteFile(path, content, 0o644) }

func (here) remove(path string) error { return os.Remove(path) }

func (here) watch(w vmnode.Watch) ([]vmnode.Change, error) { return w.Run(context.Background()), nil }

func (here) first(f vmnode.First) (string, error) { return f.Run(context.Background()), nil }

func (here) restart(component string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return bed.Control(ctx, "restart", component)
}

func (h here) ctr(args ...string) (string, error) {
	ctr := []string{filepath.Join(built, "bed/bin/ctr"), "--connect-timeout", "5m", "-n", "k8s.io"}
	return h.run(append(ctr, args...)...)
}

func (here) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := bed.Inside(ctx, args...)
	if err != nil {
		return "", err
	}
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

func (here) runDir() string { return bed.RunWaterline() }

// guest is the virtual machine with the bed's second node.
type guest struct{ *vmnode.Client }

func within[T any](limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return f(ctx)
}

func (g guest) readFile(path string) ([]byte, error) {
	return within(patience, func(ctx context.Context) ([]byte, error) { return g.ReadFile(ctx, path) })
}

func (guest) runDir() string { return "/run/waterline" }

func (g guest) writeFile(path string, content []byte) error {
	_, err := within(patience, func(ctx context.Context) (any, error) { return nil, g.WriteFile(ctx, path, content) })
	return err
}

func (g guest) remove(path string) error {
	_, err := within(patience, func(ctx context.Context) (any, error) { return nil, g.Remove(ctx, path) })
	return err
}

func (g guest) watch(w vmnode.Watch) ([]vmnode.Change, error) {
	return within(w.For+patience, func(ctx context.Context) ([]vmnode.Change, error) { return g.Watch(ctx, w) })
}

func (g guest) first(f vmnode.First) (string, error) {
	return within(f.For+patience, func(ctx context.Context) (string, error) { return g.First(ctx, f) })
}

func (g guest) run(args ...string) (string, error) {
	return within(patience, func(ctx context.Context) (string, error) { return g.Run(ctx, args...) })
}

func (g guest) restart(component string) error {
	_, err := g.run("systemctl", "restart", component)
	return err
}

func (g guest) ctr(args ...string) (string, error) {
	return g.run(append([]string{"ctr", "--connect-timeout", "5m", "-n", "k8s.io"}, args...)...)
}
