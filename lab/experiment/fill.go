package experiment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/chart"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// grows is how long the agent has until it is measured: it must have seen the server's tasks, and let batch have the
// whole machine.
const grows = 9 * time.Second

// fillThreads is how many threads batch has for each CPU: each is busy for two thirds of the time.
const fillThreads = 3

// The goals of fill.
const (
	fillCPU   = 95  // percent of the machine's CPU that is used
	fillRatio = 1.2 // p99 to p99 alone; of some seconds, which is less exact than the long experiments
)

// fillPolicy sells batch what online pods do not use now. How much batch may use follows harm, which is the default.
const fillPolicy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: experiment}
spec:
  mode: Enforce
  weight: {max: 262144}
  cpu: {method: Realtime}
`

// fill lets a server answer requests alone, then beside batch in plain cgroups, then beside batch pods with an agent.
//
// Metrics, each for alone, plain and waterline: p50_ms, p99_ms, cpu_percent, the part of the machine's CPU that is
// used, and batch_cpus; p99_ratio_plain and p99_ratio_waterline, to p99 alone; and late_p99_ms of the client.
func fill(ctx context.Context, r *run) error {
	f := &fillRun{run: r, pod: &sandbox.Pod{Name: "server", QoS: model.Burstable, RequestMilli: 1000}}
	if err := r.Create(f.pod); err != nil {
		return err
	}
	awake, err := load.Awake() // where no batch runs, as where it does
	if err != nil {
		return err
	}
	defer awake.Close()
	if f.server, err = load.StartServer(ctx, r.Sandbox, f.pod); err != nil {
		return err
	}
	for _, mode := range []struct {
		name  string
		begin func(context.Context) error
	}{{"alone", func(context.Context) error { return nil }}, {"plain", f.plain}, {"waterline", f.waterline}} {
		for _, loop := range f.loops {
			if err := loop.Kill(); err != nil {
				return err
			}
		}
		if err := mode.begin(ctx); err != nil {
			return err
		}
		t := trial{mode: mode.name, rate: serverLoad / max(f.server.Cost, load.RequestCost).Seconds()}
		requests := load.Requests{Line: fmt.Sprint(f.server.Steps), CPU: -1, Prioritize: true}
		nothing := func() error { return nil }
		err := t.run(ctx, r.Sandbox, requests, r.cfg.Seconds, nothing, nothing, func(w measure.Window) string {
			return fmt.Sprintf("%.0f %% of the CPU is used", usedPercent(w))
		})
		if err != nil {
			return err
		}
		f.trials = append(f.trials, t)
	}
	f.report()
	return nil
}

// fillRun is experiment fill as it runs.
type fillRun struct {
	*run
	pod    *sandbox.Pod // of the server
	server load.Server
	loops  []*sandbox.Process // of batch
	trials []trial
}

// plain starts batch as plain Kubernetes runs it: it requests what the server leaves of the node.
func (f *fillRun) plain(ctx context.Context) error {
	rest := max(1000*int64(runtime.NumCPU())-f.pod.RequestMilli-200, 100)
	return f.burn(ctx, &sandbox.Pod{Name: "plain-batch", QoS: model.Burstable, RequestMilli: rest})
}

// waterline starts the agent and a batch pod.
func (f *fillRun) waterline(ctx context.Context) error {
	policy := filepath.Join(f.Dir(), "fill-policy.yaml")
	if err := os.WriteFile(policy, []byte(fillPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}
	if err := f.startAgent(sandbox.AgentPod(), "--config", policy); err != nil {
		return err
	}
	batch := &sandbox.Pod{Name: "batch", QoS: model.BestEffort, BatchMilli: 500 * int64(runtime.NumCPU())}
	if err := f.burn(ctx, batch); err != nil {
		return err
	}
	weighted := *batch
	weighted.Shares = model.MilliCPUToShares(batch.BatchMilli)
	if err := f.Await(ctx, &weighted); err != nil {
		return err
	}
	f.Report(progress.Step{Doing: "waiting until batch has the machine"})
	return sandbox.Sleep(ctx, grows)
}

// burn makes a batch pod and starts its loops.
func (f *fillRun) burn(ctx context.Context, p *sandbox.Pod) error {
	p.Threads, p.Unbound, p.Wakes = fillThreads*runtime.NumCPU(), true, true
	if err := f.Create(p); err != nil {
		return err
	}
	f.Report(progress.Step{Doing: "starting the load"})
	var err error
	if f.loops, err = load.Burn(ctx, f.Sandbox, p); err != nil {
		return err
	}
	return load.Settle(ctx)
}

// usedPercent returns the part of the machine's CPU that was used.
func usedPercent(w measure.Window) float64 {
	cpus := float64(runtime.NumCPU()) * (1 - w.Steal/100)
	return 100 * min(max(w.Busy-float64(runtime.NumCPU())+cpus, 0)/cpus, 1)
}

func (f *fillRun) report() {
	res, alone := &f.result, &f.trials[0]
	names := map[string]string{
		"alone": "alone", "plain": "beside batch, plain cgroups", "waterline": "beside batch, Waterline",
	}
	res.Table.Head = []string{"server", "CPU used", "p50 ms", "p99 ms", "× alone", "batch CPUs"}
	bars := chart.Bars{
		Title: "Latency of the server, p99", Caption: "p99 of the server's latency, beside a pod that burns all CPUs",
		Unit: "ms", Mark: "alone",
		Desc: "Bars: latency that 99 of 100 requests did not exceed, beside a pod that would take the whole machine. " +
			"Marks: without that pod.",
	}
	late := 0.0
	for i := range f.trials {
		t := &f.trials[i]
		late = max(late, measure.Quantile(t.late, 0.99))
		batch := t.window.CPUsOf("batch") + t.window.CPUsOf("plain-batch")
		ratio := t.p99() / alone.p99()
		for name, value := range map[string]float64{
			"p50_ms": measure.Quantile(t.latency, 0.5), "p99_ms": t.p99(), "cpu_percent": usedPercent(t.window),
			"batch_cpus": batch,
		} {
			res.Metrics[t.mode+"_"+name] = measure.Round(value, 3)
		}
		res.Table.Rows = append(res.Table.Rows, []string{
			names[t.mode], fmt.Sprintf("%.0f %%", usedPercent(t.window)), measure.MillisText(measure.Quantile(t.latency, 0.5)),
			measure.MillisText(t.p99()), fmt.Sprintf("%.2f", ratio), fmt.Sprintf("%.2f", batch),
		})
		if t == alone {
			continue
		}
		res.Metrics["p99_ratio_"+t.mode] = measure.Round(ratio, 3)
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: strings.TrimPrefix(names[t.mode], "beside batch, "), Note: fmt.Sprintf("CPU %.0f %% used",
				usedPercent(t.window)), Value: t.p99(), Theory: alone.p99(), Strong: t.mode == "waterline",
		})
	}
	res.Chart = bars
	last := &f.trials[2]
	res.Metrics["late_p99_ms"] = measure.Round(late, 3)
	f.circumstances(last.window)
	res.Headline = report.Headline{
		Value: fmt.Sprintf("CPU %.1f %% used, p99 %.2f × alone; plain cgroups: %.2f ×", usedPercent(last.window),
			res.Metrics["p99_ratio_waterline"], res.Metrics["p99_ratio_plain"]),
		Goal: fmt.Sprintf("CPU ≥ %d %% used, p99 ≤ %.1f × alone", fillCPU, fillRatio),
		Met:  usedPercent(last.window) >= fillCPU && res.Metrics["p99_ratio_waterline"] <= fillRatio,
	}
	f.note("The server has one thread, requests one CPU, and gets %.0f requests a second of %.1f ms of CPU each, at "+
		"random moments, in every mode the same: p99 is of %d requests. Batch is a pod of %d threads that sleep and wake "+
		"all the time, as an encoder's do: in plain cgroups it requests what the server leaves of the node, with Waterline "+
		"it requests half of the node as batch CPU. Alone, loops of the least priority keep the CPUs from sleeping.",
		last.rate, 1000*serverLoad/last.rate, len(last.latency), fillThreads*runtime.NumCPU())
	if late > measure.Millis(load.LateLimit) {
		f.note("The client sent %s ms late, p99 of the worst mode: the figures are partly its own.", measure.MillisText(late))
	}
}
