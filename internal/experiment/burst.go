package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/model"
)

const (
	burstLimit   = 400                   // CPU limit of the server, in milli-cores: 40 ms in 100 ms
	burstRequest = 20 * time.Millisecond // of CPU that it spends on a request
	burstLoad    = 0.33                  // of its limit, which all requests take together
	burstCools   = time.Minute           // until the node must have room
)

// policyFile is a policy under which pods with a limit burst, or do not.
const policyFile = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: burst}
spec:
  mode: Enforce
  cpu: {waterline: 100%%, suppression: None}
  protect: {burst: %v}
`

// Bursts lets a server with a CPU limit, which it stays far below, answer requests that come at random moments: first as the
// kubelet limits it, then while the agent lets it save up what it does not use.
//
// Metrics: p99_change_percent, by how much the latency of with differs from that of without; taken_back_seconds, for how long
// the node was too hot for bursts while they were measured; and for each of with and without
// throttled_percent, of the CFS periods in which the server ran those in which it was stopped, p50_ms, p99_ms, cpus, and
// late_p99_ms, what the client itself was late.
func Bursts(ctx context.Context, cfg Config) (r Result, err error) {
	l, err := newLab("burst", cfg)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	r = begin("burst", l)
	b := &bursts{lab: l, length: time.Duration(cfg.seconds(30)) * time.Second}
	if err := b.begin(ctx); err != nil {
		return r, err
	}
	trials := make([]burstTrial, 0, 2)
	for _, with := range []bool{false, true} {
		t, err := b.trial(ctx, with)
		if err != nil {
			return r, err
		}
		trials = append(trials, t)
	}
	b.report(&r, &trials[0], &trials[1])
	return r, nil
}

// bursts is one run of the experiment.
type bursts struct {
	*lab
	length time.Duration // of measuring with and without
	server *pod
	steps  int     // of a request
	rate   float64 // of requests, a second
}

// burstTrial is what was measured of the server with bursts, or without.
type burstTrial struct {
	trial
	throttle cgroup.CPUStat
	back     int // seconds at whose end the agent had taken the burst back, because the node was hot
}

func (t *burstTrial) throttled() float64 {
	return 100 * float64(t.throttle.Throttled) / float64(max(t.throttle.Periods, 1))
}

// begin starts the agent and the server.
func (b *bursts) begin(ctx context.Context) error {
	b.tell(Progress{Doing: "starting the agent"})
	if err := b.allow(false); err != nil {
		return err
	}
	self := agentPod()
	if err := b.startAgent(ctx, self, "--config", b.policy()); err != nil {
		return err
	}
	if err := b.await(ctx, self); err != nil {
		return err
	}
	b.server = &pod{name: "server", qos: model.Burstable, requestMilli: 100, limitMilli: burstLimit}
	if err := b.create(ctx, b.server); err != nil {
		return err
	}
	if b.knob(b.server) == "" {
		return fmt.Errorf("%w: this kernel has no bursts, which came with 5.14", ErrUnusable)
	}
	s, err := b.startServer(ctx, b.server)
	if err != nil {
		return err
	}
	b.steps = int(float64(max(s.steps, 1)) * float64(burstRequest) / float64(request))
	b.rate = burstLoad * burstLimit / 1000 / burstRequest.Seconds()
	return nil
}

func (b *bursts) policy() string { return filepath.Join(b.dir, "policy.yaml") }

// allow tells the agent whether pods may burst.
func (b *bursts) allow(with bool) error {
	text := fmt.Sprintf(policyFile, with)
	err := os.WriteFile(b.policy()+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(b.policy()+".new", b.policy())
	}
	if err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	return nil
}

// knob returns what the server's container may save up, as the kernel writes it; "" if the kernel has no such file.
func (b *bursts) knob(p *pod) string {
	content, _ := os.ReadFile(filepath.Join(b.box.mount.Path, b.kubelet.containerDir(p), cgroup.FileName(b.box.mount.Version, model.Burst)))
	return strings.TrimSpace(string(content))
}

// switchTo waits until the server may burst, or may not. The agent lets nobody burst before it has seen for ten seconds that the
// node has room.
func (b *bursts) switchTo(ctx context.Context, with bool) error {
	if err := b.allow(with); err != nil {
		return err
	}
	want := "0"
	if with {
		want = fmt.Sprint(model.MilliCPUToQuota(burstLimit, model.DefaultQuotaPeriod))
	}
	for began := time.Now(); b.knob(b.server) != want; {
		if time.Since(began) > burstCools {
			return fmt.Errorf("%w: the agent does not let the server burst, because others keep this machine busy; try again later; the agent's log: %s", ErrBusy, b.log())
		}
		b.tell(Progress{Doing: "waiting until the node is seen to have room", Elapsed: time.Since(began), Total: burstCools})
		if err := errors.Join(b.running(), Sleep(ctx, 100*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// ErrBusy is in the chain of an error that says that the machine is too busy for an experiment.
var ErrBusy = errors.New("the machine is busy")

// trial measures the server with bursts, or without.
func (b *bursts) trial(ctx context.Context, with bool) (t burstTrial, err error) {
	t.mode = map[bool]string{false: "without", true: "with"}[with]
	t.rate = b.rate
	if err := b.switchTo(ctx, with); err != nil {
		return t, err
	}
	var out strings.Builder
	client, err := b.startHere("the client", &out, "ask", "--dir", b.dir, "--line", fmt.Sprint(b.steps),
		"--rate", fmt.Sprint(b.rate), "--for", (warm + b.length).String(), "--cpu", fmt.Sprint(runtime.NumCPU()-1))
	if err != nil {
		return t, err
	}
	b.procs = slices.DeleteFunc(b.procs, func(p *process) bool { return p == client }) // it will end
	defer func() { err = errors.Join(err, client.kill()) }()
	if err := Sleep(ctx, warm); err != nil {
		return t, err
	}
	before, err := b.box.throttle(b.kubelet.containerDir(b.server))
	if err != nil {
		return t, err
	}
	t.window, err = b.measure(ctx, t.mode+" bursts", int(b.length.Seconds()), func(w window) string {
		if with && b.knob(b.server) == "0" {
			t.back++
		}
		return fmt.Sprintf("the server uses %.2f CPUs", w.cpus())
	})
	if err != nil {
		return t, err
	}
	after, err := b.box.throttle(b.kubelet.containerDir(b.server))
	if err != nil {
		return t, err
	}
	t.throttle = cgroup.CPUStat{Periods: after.Periods - before.Periods, Throttled: after.Throttled - before.Throttled}
	if 4*t.back > int(b.length.Seconds()) {
		return t, fmt.Errorf("%w: the agent took the burst back for %d of %v, because others need the CPU; try again later", ErrBusy, t.back, b.length)
	}
	select {
	case <-client.done:
	case <-ctx.Done():
		return t, context.Cause(ctx)
	}
	if client.err != nil {
		return t, fmt.Errorf("the client: %w: %s", client.err, client.stderr.String())
	}
	_, all, err := parseAsked(out.String())
	if err != nil {
		return t, err
	}
	return t, t.count(all, b.length)
}

// report makes the result.
func (b *bursts) report(r *Result, without, with *burstTrial) {
	change := off(with.p99(), without.p99())
	r.Metrics = map[string]float64{
		"p99_change_percent": round(change, 1), "requests": float64(len(with.latency)),
		"cpus_machine": float64(runtime.NumCPU()), "steal_percent": round(with.window.steal, 2), "load_1m": loadAverage(),
	}
	r.Table.Head = []string{"server", "p50 ms", "p99 ms", "max ms", "throttled", "CPUs"}
	bars := chart.Bars{
		Title: "Latency of the server, p99", Caption: "p99 of the latency of a server that stays far below its CPU limit", Unit: "ms", Mark: "p50",
		Desc: "Bars: what 99 of 100 requests did not exceed. Marks: what half of them did not exceed.",
	}
	for _, t := range []*burstTrial{without, with} {
		p50, most := quantile(t.latency, 0.5), quantile(t.latency, 1)
		for name, value := range map[string]float64{
			"throttled_percent": t.throttled(), "p50_ms": p50, "p99_ms": t.p99(), "cpus": t.window.cpus(), "late_p99_ms": quantile(t.late, 0.99),
		} {
			r.Metrics[name+"_"+t.mode] = round(value, 3)
		}
		r.Table.Rows = append(r.Table.Rows, []string{
			t.mode + " burst", millis(p50), millis(t.p99()), millis(most), fmt.Sprintf("%.1f %%", t.throttled()), fmt.Sprintf("%.2f", t.window.cpus()),
		})
		bars.Bars = append(bars.Bars, chart.Bar{Label: t.mode + " burst", Note: fmt.Sprintf("throttled %.1f %%", t.throttled()), Value: t.p99(), Theory: p50, Strong: t == with})
		if t.outsiders() > tooBusy {
			r.Notes = append(r.Notes, fmt.Sprintf("Others on this machine used %.2f CPUs %s bursts: the server waited for them too.", t.outsiders(), t.mode))
		}
	}
	r.Chart = bars
	if r.Metrics["taken_back_seconds"] = float64(with.back); with.back > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("For %d s the agent had taken the burst back, because others on this machine left no room.", with.back))
	}
	r.Headline = Headline{
		Value: fmt.Sprintf("p99 %+.0f %%, throttled %.1f %% → %.1f %%", change, without.throttled(), with.throttled()),
		Goal:  "p99 −35 %, throttled ≤ 2 %", Met: change <= -35 && with.throttled() <= 2,
	}
	r.Notes = append(r.Notes,
		fmt.Sprintf("The server has one thread and a CPU limit of %dm: 40 ms in each 100 ms. A request takes %v of CPU, and %.1f come a second, at random moments, both times the same: %.0f %% of the limit.",
			burstLimit, burstRequest, b.rate, 100*burstLoad),
		fmt.Sprintf("Throttled is the part of the CFS periods with work in which the server was stopped: %d of %d, then %d of %d. Over the whole time it used %.2f CPUs, then %.2f.",
			without.throttle.Throttled, without.throttle.Periods, with.throttle.Throttled, with.throttle.Periods, without.window.cpus(), with.window.cpus()),
		"Latency is counted from when a request was due until the client had its answer.")
}
