package redisbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/lab/agentrun"
	"github.com/waterline-io/waterline/lab/counter"
	"github.com/waterline-io/waterline/lab/kube"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// run is one run as it goes on: the server, batch beside it, and the generator of requests.
type run struct {
	*sandbox.Sandbox
	node      *kube.Host // nil: the sandbox makes the pods
	cell      Cell
	seconds   int
	lookups   bool
	figure    figure
	server    redis
	apart     int // CPU to which generators keep, and from which Redis is kept; -1: there is only one
	crowd     crowd
	frames    []*counter.Counter // of the encoders
	stress    stress
	generator string       // its cgroup
	end       func() error // ends what Beside started; nil: nothing
}

// create makes pods in the sandbox, or on the real node.
func (r *run) create(ctx context.Context, pods ...pod) error {
	for _, p := range pods {
		if r.node == nil {
			if err := r.Create(p.Pod); err != nil {
				return err
			}
			continue
		}
		r.Report(progress.Step{Doing: "making pod " + p.Name})
		made, err := r.node.Run(ctx, kube.Pod{
			Name: p.Name, RequestMilli: p.RequestMilli, BatchMilli: p.BatchMilli, Lasts: p.lasts,
		})
		if err != nil {
			return err
		}
		if err := r.Adopt(p.Pod, made.UID, made.Container); err != nil {
			return err
		}
	}
	return nil
}

// begin starts the agent, the server and batch, as far as the mode has them.
func (r *run) begin(ctx context.Context) error {
	online := serverPod()
	if r.figure.max > 0 {
		online.IP = r.figure.address.Addr().String()
		r.cell.Policy += r.figure.policy(online.Pod)
	}
	encoder, burner := batchPods(r.cell.Policy != "", r.node != nil)
	var batch []pod
	if r.cell.Encoders > 0 {
		batch = append(batch, encoder)
	}
	if r.cell.Burns {
		batch = append(batch, burner)
	}
	if r.node != nil {
		if err := r.node.Govern(ctx, r.cell.Policy); err != nil {
			return err
		}
	}
	// Before the server: an agent counts a new pod with all that it requests.
	if err := r.create(ctx, batch...); err != nil {
		return err
	}
	if r.cell.Online {
		if err := r.create(ctx, online); err != nil {
			return err
		}
	}
	if r.cell.Crowd {
		if err := r.create(ctx, crowdPod()); err != nil {
			return err
		}
	}
	if r.cell.Policy != "" {
		if err := r.startAgent(ctx, batch); err != nil {
			return err
		}
	}
	var err error
	if r.cell.Online {
		if r.server, err = startRedis(ctx, r.Sandbox, online.Pod, r.lookups); err != nil {
			return err
		}
		if r.apart, err = load.Separate(r.server.PID()); err != nil {
			return err
		}
	}
	if r.cell.Crowd {
		if r.crowd, err = startCrowd(ctx, r.Sandbox, crowdPod().Pod); err != nil {
			return err
		}
	}
	if r.cell.Encoders > 0 {
		r.AddLoad(encoder.Pod)
	}
	for range r.cell.Encoders {
		frames, err := startEncoder(r.Sandbox, encoder.Pod)
		if err != nil {
			return err
		}
		r.frames = append(r.frames, frames)
	}
	if r.cell.Burns {
		if r.stress, err = startStress(r.Sandbox, burner.Pod, r.cell.Stressor); err != nil {
			return err
		}
	}
	if r.cell.Beside != nil {
		r.end, err = r.cell.Beside(ctx, r.Sandbox)
	}
	return err
}

// startAgent starts an agent under the policy, or finds that of the real node, which follows the policy already. It
// waits until batch has the weights of its requests.
func (r *run) startAgent(ctx context.Context, batch []pod) error {
	agent := sandbox.AgentPod()
	if r.node == nil {
		if err := agentrun.Start(r.Sandbox, agent, r.cell.Policy); err != nil {
			return err
		}
	} else {
		made, err := r.node.Agent(ctx)
		if err != nil {
			return err
		}
		if err := r.Adopt(agent, made.UID, made.Container); err != nil {
			return err
		}
		r.AddLoad(agent)
	}
	for _, p := range batch {
		if err := agentrun.AwaitBatch(ctx, r.Sandbox, p.Pod); err != nil {
			return err
		}
	}
	return nil
}

// measure sends requests to the server, if there is one, and measures meanwhile.
func (r *run) measure(ctx context.Context, steps int) (Run, error) {
	found := Run{
		Mode: r.cell.Name, Repeat: r.cell.repeat, Load: r.cell.Load, Lead: r.cell.Lead, Rises: r.cell.Rises,
		NodeCPU: map[string]time.Duration{},
	}
	look := r.observe
	if r.cell.Online {
		look = func(ctx context.Context, found *Run) error { return r.request(ctx, steps, found) }
	}
	err := look(ctx, &found)
	if err == nil && r.cell.Burns {
		found.Operations, err = r.stress.stop(ctx)
	}
	return found, err
}

// request sends requests to the server while it observes. The generator is in a cgroup outside of kubepods where it is
// on time.
func (r *run) request(ctx context.Context, steps int, found *Run) (err error) {
	if r.generator, err = r.OutsideGroup("generator"); err != nil {
		return err
	}
	requests := load.Requests{
		Address: r.server.socket, Connections: Connections, CPU: r.apart, Prioritize: true, Watch: r.server.PID(),
		Line: r.server.request(steps), Rates: r.cell.Rates.Times(1 / RequestCost.Seconds()), Lead: r.cell.Lead,
		Length: time.Duration(r.seconds) * time.Second, Seed: uint64(r.cell.repeat) + 1,
	}
	if r.figure.max > 0 {
		requests.Figure = r.figure.address.String()
	}
	generator, err := load.StartGenerator(r.Sandbox, r.generator, requests)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, generator.Kill()) }()
	var second *load.Generator
	if r.cell.Crowd {
		if second, err = load.StartGenerator(r.Sandbox, r.generator, r.crowdRequests()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, second.Kill()) }()
	}
	if err := r.observe(ctx, found); err != nil {
		return err
	}
	if second != nil {
		outcome, err := second.Outcome(ctx)
		if err == nil {
			err = found.countCrowd(outcome.Requests)
		}
		if err != nil {
			return err
		}
	}
	outcome, err := generator.Outcome(ctx)
	if err != nil {
		return err
	}
	found.Scheduled = outcome.Scheduled
	found.Count(outcome.Requests)
	return nil
}

// observe measures for the run's length.
func (r *run) observe(ctx context.Context, found *Run) error {
	found.Began = time.Now()
	if err := sandbox.Sleep(ctx, r.cell.Lead); err != nil {
		return err
	}
	before, err := r.read()
	if err != nil {
		return err
	}
	meter := measure.Meter{Source: r.Sandbox, Generator: r.generator}
	found.Window, err = meter.Seconds(ctx, r.doing(), r.seconds, func(w measure.Window) string {
		found.Seconds = append(found.Seconds, w)
		return fmt.Sprintf("pods use %.2f CPUs", w.CPUs())
	})
	if err != nil {
		return err
	}
	after, err := r.read()
	if err != nil {
		return err
	}
	found.Frames = (after.frames - before.frames) / after.at.Sub(before.at).Seconds()
	found.Waited = after.waited - before.waited
	for part, used := range after.nodeCPU {
		found.NodeCPU[part] = used - before.nodeCPU[part]
	}
	found.LoadAverage = measure.LoadAverage()
	return nil
}

// reading is what a meter does not read.
type reading struct {
	at      time.Time
	frames  float64
	waited  time.Duration            // for how long the server has waited for a CPU
	nodeCPU map[string]time.Duration // on a real node
}

func (r *run) read() (now reading, err error) {
	for _, frames := range r.frames {
		now.frames += frames.Count()
	}
	if r.cell.Online {
		server, err := measure.ReadSchedstat(r.server.PID())
		if err != nil {
			return now, err
		}
		now.waited = server.Waited
	}
	if r.node != nil {
		if now.nodeCPU, err = readNodeCPU("/proc"); err != nil {
			return now, err
		}
	}
	now.at = time.Now()
	return now, nil
}

func (r *run) doing() string {
	text := fmt.Sprintf("repeat %d, mode %s", r.cell.repeat+1, r.cell.Name)
	if r.cell.Online {
		text += fmt.Sprintf(", %.0f %% of a CPU", 100*r.cell.Load)
	}
	if r.cell.attempt > 0 {
		text += fmt.Sprintf(", attempt %d because the generator was late, or the CPU slow", r.cell.attempt+1)
	}
	return text
}
