package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	hogShares = model.MaxShares
	// agentShares is what the agent's pod is annotated with, see [lab.startAgent].
	agentShares = 102400
	settle      = 1500 * time.Millisecond // from the last weight to the first measurement: many times what the scheduler averages over
	patience    = 20 * time.Second        // for the agent, on a machine however slow
)

// lab is one experiment's sandbox with what runs in it.
type lab struct {
	cfg     Config
	name    string // of the experiment
	helper  string
	agent   string // executable
	dir     string // temporary, for manifests and the agent's record
	box     *sandbox
	kubelet kubelet
	pods    []*pod // that bear load, running ones only
	procs   []*process
	asking  string // cgroup of who asks the server; "": nobody does, or it is not counted apart
}

// newLab makes a sandbox with the directories of a node without pods, and with more controllers than that of CPU time if that is
// wanted.
func newLab(name string, cfg Config, controllers ...string) (_ *lab, err error) {
	l := &lab{cfg: cfg, name: name, helper: cfg.Helper}
	if l.helper == "" {
		if l.helper, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("finding this executable: %w", err)
		}
	}
	if cfg.Node == nil {
		if l.agent, err = FindAgent(cfg.AgentPath); err != nil {
			return nil, err
		}
	}
	if l.box, err = openSandbox(cfg.root(), controllers...); err != nil {
		return nil, err
	}
	l.kubelet = kubelet{box: l.box, milli: int64(runtime.NumCPU()) * 1000}
	dir := filepath.Join(tempParents()[0], l.box.name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("making a temporary directory: %w", err), l.close())
	}
	l.dir = dir
	l.kubelet.manifests = filepath.Join(dir, "pods")
	if err := os.Mkdir(l.kubelet.manifests, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("making a temporary directory: %w", err), l.close())
	}
	if cfg.Node == nil {
		if err := l.kubelet.start(); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	if err := l.box.stepAside(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// close ends every process and removes every trace.
func (l *lab) close() error {
	var errs []error
	for _, p := range slices.Backward(l.procs) {
		errs = append(errs, p.kill())
	}
	if l.cfg.Node != nil {
		errs = append(errs, l.cfg.Node.Clean(context.Background()))
	}
	errs = append(errs, l.box.remove())
	if l.dir != "" {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}

// threads is how many threads a pod's load has: more than there are CPUs, so that it can use all of them at any moment.
func threads() int { return 2 * runtime.NumCPU() }

// loadPod returns a Burstable pod with load. All request the same: the annotation alone makes the difference.
func loadPod(name string, shares int64) *pod {
	return &pod{name: name, qos: model.Burstable, requestMilli: 100, shares: shares, threads: threads()}
}

// prepare announces pods, and one that hogs all CPUs if that is wanted, makes their cgroups as the kubelet leaves them, and
// starts the agent, which makes the weights true. Then the load starts and settles.
func (l *lab) prepare(ctx context.Context, pods ...*pod) error {
	if l.cfg.Hog {
		pods = append(pods, loadPod("hog", hogShares))
	}
	if err := l.create(ctx, pods...); err != nil {
		return err
	}
	l.tell(Progress{Doing: "starting the agent"})
	if err := l.startAgent(ctx, agentPod()); err != nil {
		return err
	}
	if err := l.await(ctx, pods...); err != nil {
		return err
	}
	return l.load(ctx, pods...)
}

// create announces pods and makes their cgroups as the kubelet leaves them; or lets a kubelet make them.
func (l *lab) create(ctx context.Context, pods ...*pod) error {
	for _, p := range pods {
		if l.cfg.Node != nil {
			if err := l.place(ctx, p); err != nil {
				return err
			}
			continue
		}
		if err := l.kubelet.announce(p); err != nil {
			return err
		}
		if err := l.kubelet.run(p); err != nil {
			return err
		}
	}
	return nil
}

// agentPod returns the agent's own pod. Where there is a cluster the agent knows it by its UID and gives it this weight by
// itself. Here the annotation says the same, because its weight must be counted in, or the pods beside it would not weigh
// what they ask for.
func agentPod() *pod {
	return &pod{name: "agent", qos: model.Burstable, requestMilli: 10, shares: agentShares}
}

// enforcePolicy is the policy of an agent that is given no other: without one it would only observe.
const enforcePolicy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: experiment}
spec: {mode: Enforce}
`

// startAgent runs the real agent in a pod of its own, as its DaemonSet does.
func (l *lab) startAgent(ctx context.Context, p *pod, more ...string) error {
	if err := l.create(ctx, p); err != nil {
		return err
	}
	enforce := filepath.Join(l.dir, "enforce.yaml")
	if err := os.WriteFile(enforce, []byte(enforcePolicy), 0o600); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	args := []string{
		"--oom-score", fmt.Sprint(p.oomScore), "--", l.agent, "--pods", l.kubelet.manifests, "--kubepods", l.kubelet.layout.Root, "--cgroup-root", l.cfg.root(),
		"--run-dir", filepath.Join(l.dir, "run"), "--listen", "", "--local", "", "--kubelet", "", "--config", enforce,
	}
	_, err := l.start("the agent", l.kubelet.containerDir(p), "exec", append(args, more...)...)
	return err
}

// await waits until the pods weigh what they are annotated with, which is the agent's doing.
func (l *lab) await(ctx context.Context, pods ...*pod) error {
	for _, p := range pods {
		if p.shares == 0 {
			continue
		}
		err := l.poll(ctx, "for the agent to give pod "+p.name+" its weight", func() (bool, error) {
			dir := l.kubelet.dir(p)
			if p.batchMilli > 0 && l.box.idle(dir) {
				return true, nil // the policy has it run only when nobody beside it wants to
			}
			is, err := l.box.weight(dir)
			return is == l.raw(p.shares), err
		})
		if err != nil {
			return fmt.Errorf("%w; the agent's log: %s", err, l.log())
		}
	}
	return nil
}

// log returns the end of what the agent logged.
func (l *lab) log() string {
	for _, p := range l.procs {
		if p.name == "the agent" {
			return p.stderr.String()
		}
	}
	return ""
}

// load starts the load of pods and lets the scheduler's averages settle.
func (l *lab) load(ctx context.Context, pods ...*pod) error {
	l.tell(Progress{Doing: "starting the load"})
	for _, p := range pods {
		if err := l.burn(ctx, p); err != nil {
			return err
		}
	}
	return Sleep(ctx, settle)
}

// loadOf is what the processes of a pod's load are called.
func loadOf(p *pod) string { return "the load of pod " + p.name }

// burn starts the load of one pod and waits until all of it is in the pod.
func (l *lab) burn(ctx context.Context, p *pod) error {
	for i := range p.threads {
		args := []string{"--number", fmt.Sprint(i)}
		if p.roams {
			args = []string{"--roam"}
		}
		if _, err := l.start(loadOf(p), l.kubelet.containerDir(p), "burn", args...); err != nil {
			return err
		}
	}
	l.pods = append(l.pods, p)
	return l.poll(ctx, "for "+loadOf(p), func() (bool, error) {
		count, err := l.box.population(l.kubelet.containerDir(p))
		return count == p.threads, err
	})
}

// poll asks every millisecond until the answer is yes.
func (l *lab) poll(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not there after %v", patience))
	defer cancel()
	for {
		if yes, err := done(); yes || err != nil {
			return err
		}
		if err := l.running(); err != nil {
			return err
		}
		if err := Sleep(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("waiting %s: %w", what, err)
		}
	}
}

// running returns an error if one of the processes that should run has ended.
func (l *lab) running() error {
	for _, p := range l.procs {
		if err := p.ended(); err != nil {
			return err
		}
	}
	return nil
}

// raw converts shares to what the kernel counts in.
func (l *lab) raw(shares int64) cgroup.Raw {
	return cgroup.ToRaw(l.box.mount.Version, model.Shares, model.Number(shares))
}

// theory returns the part of the CPU of all pods together that each should get, by the weights that the kernel holds now.
func (l *lab) theory() (map[string]float64, error) {
	root := Group{Name: "kubepods"}
	classes := map[model.QoSClass]*Group{
		model.Guaranteed: &root,
		model.Burstable:  {Name: "burstable"},
		model.BestEffort: {Name: "besteffort"},
	}
	weight := func(g *Group, dir string) error {
		raw, err := l.box.weight(dir)
		g.Weight = float64(raw.Number)
		return err
	}
	for _, p := range l.pods {
		container := Group{Name: p.name, Threads: p.threads}
		if err := weight(&container, l.kubelet.containerDir(p)); err != nil {
			return nil, err
		}
		group := Group{Name: "pod " + p.name, Children: []Group{container}}
		if err := weight(&group, l.kubelet.dir(p)); err != nil {
			return nil, err
		}
		class := classes[p.qos]
		class.Children = append(class.Children, group)
	}
	for _, q := range []model.QoSClass{model.Burstable, model.BestEffort} {
		if len(classes[q].Children) == 0 {
			continue
		}
		if err := weight(classes[q], l.kubelet.layout.Class(q)); err != nil {
			return nil, err
		}
		root.Children = append(root.Children, *classes[q])
	}
	got := Theory(float64(runtime.NumCPU()), root)
	var sum float64
	for _, cpus := range got {
		sum += cpus
	}
	for name := range got {
		got[name] /= sum
	}
	return got, nil
}

// tell reports progress.
func (l *lab) tell(p Progress) {
	if l.cfg.Progress != nil {
		p.Experiment = l.name
		l.cfg.Progress(p)
	}
}
