package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/lab/agentrun"
	"github.com/waterline-io/waterline/lab/counter"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// policy is a policy that protects memory, or does nothing.
const policy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: memory}
spec:
  mode: Enforce
  weight: {max: 262144}
  privileges: [{namespaceSelector: {}, allow: [UnlimitedQuota]}]
  cpu: {suppression: None}
  memory: {waterline: 80%%}
  protect: {burst: false, memory: %v}
`

// pods returns the server's pod and the batch pod. The server is Burstable, batch BestEffort. The kubelet derives from
// that which process the kernel kills first; with protect.memory the agent changes it when a container is made.
func pods(protects bool) (online, batch *sandbox.Pod) {
	online = &sandbox.Pod{
		Name: "online", QoS: model.Burstable, RequestMilli: 500, Memory: requestBytes,
		OOMScore: 1000 - 1000*requestBytes/nodeBytes,
	}
	batch = &sandbox.Pod{Name: "batch", QoS: model.BestEffort, BatchMilli: 500, Memory: batchBytes, OOMScore: 1000}
	if protects {
		online.OOMScore /= 2
	}
	return online, batch
}

// trial is one mode as it runs.
type trial struct {
	*sandbox.Sandbox
	mode          mode
	files         [2]string
	online, batch *sandbox.Pod
	server, hog   restarted
}

// begin starts the agent and the server. It waits until the server has its file in memory and the agent has written its
// settings.
func (t *trial) begin(ctx context.Context) error {
	root := t.File(t.Layout().Root, "memory.max")
	if err := os.WriteFile(root, strconv.AppendInt(nil, t.mode.node, 10), 0); err != nil {
		return fmt.Errorf("limiting the memory of the node: %w", err)
	}
	proc, err := t.makeProc()
	if err != nil {
		return err
	}
	if err := t.Create(t.online, t.batch); err != nil {
		return err
	}
	t.Report(progress.Step{Doing: "mode " + t.mode.name + ", starting"})
	agent := sandbox.AgentPod()
	agent.OOMScore = -997 // as a node-critical pod
	err = agentrun.Start(t.Sandbox, agent, fmt.Sprintf(policy, t.mode.protects), "--proc-root", proc)
	if err != nil {
		return err
	}
	t.AddLoad(t.online)
	t.AddLoad(t.batch)
	t.server.start = t.starter(t.online, serveHelper, reading{File: t.files[0], Bytes: ServedBytes}, "answered=",
		"waited=")
	if err := t.server.begin(); err != nil {
		return err
	}
	err = t.Poll(ctx, "for the server to have its file in memory", func() (bool, error) {
		return t.server.count(0) > 0, t.server.now.Ended()
	})
	if err != nil {
		return err
	}
	return t.awaitSettings(ctx)
}

// awaitSettings waits until batch has its limit and the server, with its parent cgroups, its protection.
func (t *trial) awaitSettings(ctx context.Context) error {
	want := map[string]int64{t.File(t.PodGroup(t.batch), "memory.max"): batchBytes}
	if t.mode.protects {
		want[t.File(t.PodGroup(t.online), "memory.low")] = requestBytes
		want[t.File(t.Layout().Root, "memory.low")] = ServedBytes
	}
	err := t.Poll(ctx, "for the agent to write its settings", func() (bool, error) {
		for file, least := range want {
			if is, err := readBytes(file); err != nil || is < least || is == model.Unlimited {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return t.WithAgentLog(err)
	}
	return nil
}

// makeProc makes a directory that the agent takes for procfs, and returns it. It describes a machine as large as the
// node, without use outside of pods.
func (t *trial) makeProc() (string, error) {
	dir := filepath.Join(t.Dir(), "proc")
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return "", fmt.Errorf("reading the machine's CPU time: %w", err)
	}
	meminfo := fmt.Sprintf("MemTotal: %[1]d kB\nMemFree: %[1]d kB\nActive(file): 0 kB\nInactive(file): 0 "+
		"kB\nAnonPages: 0 kB\n",
		t.mode.node>>10)
	err = os.Mkdir(dir, 0o700)
	for name, text := range map[string]string{
		"meminfo": meminfo, "stat": string(stat), "zoneinfo": "        low      0\n",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, name := range []string{"self", "sys", "pressure"} {
		err = errors.Join(err, os.Symlink("/proc/"+name, filepath.Join(dir, name)))
	}
	if err != nil {
		return "", fmt.Errorf("making the agent's procfs: %w", err)
	}
	return dir, nil
}

// starter returns what starts the load of a pod. The kernel may kill that load without an error.
func (t *trial) starter(p *sandbox.Pod, helper string, input any, keys ...string) func() (life, error) {
	return func() (life, error) {
		var l life
		var all []io.Writer
		for _, key := range keys {
			c := counter.New(key)
			l.counts, all = append(l.counts, c), append(all, c)
		}
		var err error
		l.process, err = t.Start(sandbox.Command{
			Name: load.BurnName(p), Group: t.ContainerGroup(p), OOMScore: p.OOMScore, Ends: true,
			Stdout: io.MultiWriter(all...), Helper: helper, Input: input,
		})
		return l, err
	}
}

// measure starts batch, if the mode has it, and measures for some seconds.
func (t *trial) measure(ctx context.Context, seconds int) (found run, err error) {
	found.mode = t.mode.name
	defer func() { err = errors.Join(err, t.server.end(), t.hog.end()) }()
	before, err := t.read()
	if err != nil {
		return found, err
	}
	if t.mode.batch {
		t.hog.start = t.starter(t.batch, hogHelper, reading{File: t.files[1], Bytes: StreamedBytes}, "done=")
		if err := t.hog.begin(); err != nil {
			return found, err
		}
	}
	var failed error
	meter := measure.Meter{Source: t.Sandbox}
	found.window, err = meter.Seconds(ctx, "mode "+t.mode.name, seconds, func(measure.Window) string {
		if failed == nil {
			var now counts
			now, failed = t.read()
			found.seconds = append(found.seconds, now.since(before))
			failed = errors.Join(failed, t.server.restart(), t.hog.restart())
		}
		return fmt.Sprintf("%.0f requests answered", t.server.count(0))
	})
	if err = errors.Join(err, failed); err != nil {
		return found, t.WithAgentLog(err)
	}
	after, err := t.read()
	if err != nil {
		return found, err
	}
	found.counts = after.since(before)
	return found, nil
}

// read reads all counts so far.
func (t *trial) read() (c counts, err error) {
	c.answered, c.waited, c.worked = t.server.count(0), t.server.count(1), t.hog.count(0)
	if c.online, err = readEvents(t.File(t.PodGroup(t.online), "")); err != nil {
		return c, err
	}
	if c.batch, err = readEvents(t.File(t.PodGroup(t.batch), "")); err != nil {
		return c, err
	}
	if c.used, err = readBytes(t.File(t.PodGroup(t.batch), "memory.current")); err != nil {
		return c, err
	}
	c.reclaimed, err = reclaimed(t.AgentRunDir())
	return c, err
}

// restarted is a process that is started again within a second of being killed, as the kubelet would do some time
// later.
type restarted struct {
	start func() (life, error)
	now   *sandbox.Process
	lives []life
}

// life is a process with its counts.
type life struct {
	process *sandbox.Process
	counts  []*counter.Counter
}

func (r *restarted) begin() error {
	l, err := r.start()
	if err != nil {
		return err
	}
	r.now, r.lives = l.process, append(r.lives, l)
	return nil
}

// count returns the sum of one of its counts over all lives.
func (r *restarted) count(which int) (sum float64) {
	for _, l := range r.lives {
		sum += l.counts[which].Count()
	}
	return sum
}

// restart starts the process again if it was killed. If it ended by itself that is an error.
func (r *restarted) restart() error {
	if r.now == nil {
		return nil
	}
	if r.now.Killed() {
		return r.begin()
	}
	return r.now.Ended()
}

func (r *restarted) end() error {
	if r.now == nil {
		return nil
	}
	return r.now.Kill()
}
