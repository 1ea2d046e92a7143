//go:build bench

package e2e_test

import (
	"testing"

	"github.com/waterline-io/waterline/lab/measure"
)

// TestPoolPressureFigures measures how long workers use more than they may have, and compares that with workers of a
// fixed size, whose pods are deleted when they use more than is left, as agents do that know pods only: fewer
// containers are killed than with whole pods.
func TestPoolPressureFigures(t *testing.T) {
	p, small, more := underPressure(t)
	l := p.livePool
	l.end()
	// The ResourceManager kills with a heartbeat after the deadline, and the guard 10 s later.
	if late := measure.Quantile(small.late, 1); late > 20 {
		t.Errorf("a worker was over its allowance for %.1f s after the deadline", late)
	}
	l.floor = "{cpu: 4, memory: 4Gi}"
	l.create("", more)
	l.y.active(t, "press", 3)
	l.grown(full)
	whole := p.part(p.evict, 0)
	l.end()

	t.Logf("evicting whole pods: %s", whole)
	kills := small.killsPerCoreHour() / whole.killsPerCoreHour()
	if kills > 0.2 {
		t.Errorf("%.0f containers were killed in a core-hour, and %.0f with whole pods", small.killsPerCoreHour(),
			whole.killsPerCoreHour())
	}
	l.figures(map[string]float64{
		"kill_ratio": measure.Round(kills, 4),
		"jobs":       float64(small.jobs), "failed_jobs": float64(len(small.failed)),
		"whole_failed_jobs":           float64(len(whole.failed)),
		"kills_per_core_hour":         small.killsPerCoreHour(),
		"whole_kills_per_core_hour":   whole.killsPerCoreHour(),
		"lost_percent":                small.lostPercent(),
		"whole_lost_percent":          whole.lostPercent(),
		"late_p99_seconds":            measure.Quantile(small.late, 0.99),
		"guard_signals":               float64(small.signals),
		"lower_allowances":            float64(len(small.took)),
		"restarts":                    float64(small.restarts),
		"whole_evictions":             float64(whole.evicted),
		"below_allowance_p99_seconds": measure.Quantile(small.took, 0.99),
		"below_allowance_p50_seconds": measure.Quantile(small.took, 0.5),
		"containers_core_hours":       small.coreHours,
		"whole_containers_core_hours": whole.coreHours,
		"killed_containers":           float64(small.killed),
		"whole_killed_containers":     float64(whole.killed),
	})
}

// evict lowers what a node offers. A worker that uses more is deleted at once.
func (p *pressure) evict(node int, left int64) {
	p.y.offer(p.t, p.nodes[node], p.name, cpuMemory(left, left))
	used, err := p.used(p.t.Context(), node)
	if err != nil || used.VCores <= left && used.MemoryMiB <= left<<10 {
		return // it is gone, or fits
	}
	out, err := tryKubectl("delete", "pod", p.name+"-"+p.nodes[node], "-n", poolNamespace, "--grace-period=1",
		"--wait=false")
	if err != nil {
		p.t.Logf("%v: %s", err, out)
		return
	}
	p.evicted++
}
