package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/chart"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

const (
	burstLimit   = 400                   // CPU limit of the server, in milli-cores: 40 ms in 100 ms
	burstRequest = 20 * time.Millisecond // CPU time of a request
	burstLoad    = 0.33                  // part of the limit that all requests take together
	burstCools   = time.Minute           // until the node must have room
)

// ErrBusy is in the chain of an error that says that the machine is too busy for an experiment.
var ErrBusy = errors.New("the machine is busy")

// burstPolicy is a policy under which pods with a limit burst, or do not.
const burstPolicy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: burst}
spec:
  mode: Enforce
  weight: {max: 262144}
  privileges: [{namespaceSelector: {}, allow: [UnlimitedQuota]}]
  cpu: {waterline: 100%%, suppression: None}
  protect: {burst: %v}
`

// bursts lets a server with a CPU limit, which it stays far below, answer requests that come at random moments: first
// as the kubelet limits it, then while the agent lets it save up unused quota.
//
// Metrics: p99_change_percent, the change of the latency from without to with; taken_back_seconds, for how long the
// node was too hot for bursts while they were measured; and for each of with and without: throttled_percent, the part
// of the CFS periods with work in which the quota stopped the server, p50_ms, p99_ms, cpus, and late_p99_ms, of the
// client itself.
func bursts(ctx context.Context, r *run) error {
	b := &burstRun{run: r}
	if err := b.begin(ctx); err != nil {
		return err
	}
	without, err := b.trial(ctx, false)
	if err != nil {
		return err
	}
	with, err := b.trial(ctx, true)
	if err != nil {
		return err
	}
	b.report(&without, &with)
	return nil
}

// burstRun is experiment burst as it runs.
type burstRun struct {
	*run
	pod   *sandbox.Pod // of the server
	steps int          // of a request
	rate  float64      // requests a second
}

// burstTrial is what was measured of the server with bursts, or without.
type burstTrial struct {
	trial
	throttling cgroup.CPUStat
	takenBack  int // seconds at whose end the agent had taken the burst back, because the node was hot
}

func (t *burstTrial) throttledPercent() float64 {
	return 100 * float64(t.throttling.Throttled) / float64(max(t.throttling.Periods, 1))
}

// begin starts the agent and the server.
func (b *burstRun) begin(ctx context.Context) error {
	if err := b.allow(false); err != nil {
		return err
	}
	self := sandbox.AgentPod()
	if err := b.startAgent(self, "--config", b.policyFile()); err != nil {
		return err
	}
	if err := b.Await(ctx, self); err != nil {
		return err
	}
	b.pod = &sandbox.Pod{Name: "server", QoS: model.Burstable, RequestMilli: 100, LimitMilli: burstLimit}
	if err := b.Create(b.pod); err != nil {
		return err
	}
	if b.burst() == "" {
		return fmt.Errorf("%w: this kernel has no bursts, which came with 5.14", sandbox.ErrUnusable)
	}
	s, err := load.StartServer(ctx, b.Sandbox, b.pod)
	if err != nil {
		return err
	}
	b.steps = int(float64(max(s.Steps, 1)) * float64(burstRequest) / float64(load.RequestCost))
	b.rate = burstLoad * burstLimit / 1000 / burstRequest.Seconds()
	return nil
}

func (b *burstRun) policyFile() string { return filepath.Join(b.Dir(), "policy.yaml") }

// allow writes the policy: pods may burst, or may not.
func (b *burstRun) allow(with bool) error {
	text := fmt.Sprintf(burstPolicy, with)
	err := os.WriteFile(b.policyFile()+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(b.policyFile()+".new", b.policyFile())
	}
	if err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	return nil
}

// burst returns the content of the burst file of the server's container; "" if the kernel has no such file.
func (b *burstRun) burst() string {
	content, _ := os.ReadFile(b.KnobFile(b.ContainerGroup(b.pod), model.Burst))
	return strings.TrimSpace(string(content))
}

// switchTo waits until the server may burst, or may not. The agent lets no pod burst before the node had room for ten
// seconds.
func (b *burstRun) switchTo(ctx context.Context, with bool) error {
	if err := b.allow(with); err != nil {
		return err
	}
	want := "0"
	if with {
		want = fmt.Sprint(model.MilliCPUToQuota(burstLimit, model.DefaultQuotaPeriod))
	}
	for began := time.Now(); b.burst() != want; {
		if time.Since(began) > burstCools {
			return b.WithAgentLog(fmt.Errorf("%w: the agent does not let the server burst, because other processes use this "+
				"machine; try again later", ErrBusy))
		}
		b.Report(progress.Step{Doing: "waiting until the node has room", Elapsed: time.Since(began), Total: burstCools})
		if err := errors.Join(b.Running(), sandbox.Sleep(ctx, 100*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// trial measures the server with bursts, or without.
func (b *burstRun) trial(ctx context.Context, with bool) (t burstTrial, err error) {
	t.trial = trial{mode: map[bool]string{false: "without", true: "with"}[with], rate: b.rate}
	if err := b.switchTo(ctx, with); err != nil {
		return t, err
	}
	group := b.ContainerGroup(b.pod)
	var before cgroup.CPUStat
	requests := load.Requests{Line: fmt.Sprint(b.steps), CPU: runtime.NumCPU() - 1}
	err = t.run(ctx, b.Sandbox, requests, b.cfg.Seconds, func() (err error) {
		before, err = b.Throttling(group)
		return err
	}, func() error {
		after, err := b.Throttling(group)
		t.throttling = cgroup.CPUStat{
			Periods: after.Periods - before.Periods, Throttled: after.Throttled - before.Throttled,
		}
		if 4*t.takenBack > b.cfg.Seconds {
			return fmt.Errorf("%w: the agent took the burst back for %d of %d s, because other processes need the CPU; "+
				"try again later", ErrBusy, t.takenBack, b.cfg.Seconds)
		}
		return err
	}, func(w measure.Window) string {
		if with && b.burst() == "0" {
			t.takenBack++
		}
		return fmt.Sprintf("the server uses %.2f CPUs", w.CPUs())
	})
	return t, err
}

// report makes the result.
func (b *burstRun) report(without, with *burstTrial) {
	res := &b.result
	change := measure.PercentOff(with.p99(), without.p99())
	res.Metrics = map[string]float64{
		"p99_change_percent": measure.Round(change, 1), "requests": float64(len(with.latency)),
		"cpus_machine": float64(runtime.NumCPU()), "steal_percent": measure.Round(with.window.Steal, 2),
		"load_1m": measure.LoadAverage(), "taken_back_seconds": float64(with.takenBack),
	}
	res.Table.Head = []string{"server", "p50 ms", "p99 ms", "max ms", "throttled", "CPUs"}
	bars := chart.Bars{
		Title: "Latency of the server, p99", Caption: "p99 of the latency of a server that stays far below its CPU limit",
		Unit: "ms", Mark: "p50",
		Desc: "Bars: latency that 99 of 100 requests did not exceed. Marks: latency that half of them did not exceed.",
	}
	for _, t := range []*burstTrial{without, with} {
		p50, most := measure.Quantile(t.latency, 0.5), measure.Quantile(t.latency, 1)
		for name, value := range map[string]float64{
			"throttled_percent": t.throttledPercent(), "p50_ms": p50, "p99_ms": t.p99(), "cpus": t.window.CPUs(),
			"late_p99_ms": measure.Quantile(t.late, 0.99),
		} {
			res.Metrics[name+"_"+t.mode] = measure.Round(value, 3)
		}
		throttled := fmt.Sprintf("%.1f %%", t.throttledPercent())
		res.Table.Rows = append(res.Table.Rows, []string{
			t.mode + " burst", measure.MillisText(p50), measure.MillisText(t.p99()), measure.MillisText(most), throttled,
			fmt.Sprintf("%.2f", t.window.CPUs()),
		})
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: t.mode + " burst", Note: "throttled " + throttled, Value: t.p99(), Theory: p50, Strong: t == with,
		})
		if t.outside() > measure.TooBusy {
			b.note("Other processes on this machine used %.2f CPUs %s bursts: the server waited for them too.",
				t.outside(), t.mode)
		}
	}
	res.Chart = bars
	if with.takenBack > 0 {
		b.note("For %d s the agent had taken the burst back, because other processes on this machine left no room.",
			with.takenBack)
	}
	res.Headline = report.Headline{
		Value: fmt.Sprintf("p99 %+.0f %%, throttled %.1f %% → %.1f %%",
			change, without.throttledPercent(), with.throttledPercent()),
		Goal: "p99 −35 %, throttled ≤ 2 %", Met: change <= -35 && with.throttledPercent() <= 2,
	}
	b.note("The server has one thread and a CPU limit of %dm: 40 ms in each 100 ms. A request takes %v of CPU, and "+
		"%.1f come a "+
		"second, at random moments, in both trials the same: %.0f %% of the limit.",
		burstLimit, burstRequest, b.rate, 100*burstLoad)
	b.note("Throttled is the part of the CFS periods with work in which the quota stopped the server: %d of %d, then "+
		"%d of %d. "+
		"Over the whole time it used %.2f CPUs, then %.2f.", without.throttling.Throttled, without.throttling.Periods,
		with.throttling.Throttled, with.throttling.Periods, without.window.CPUs(), with.window.CPUs())
	b.note("Latency is counted from when a request was due until the client had its answer.")
}
