package kernel_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/experiment"
)

// TestColocate runs experiment colocate in short. That batch works, that requests are answered and that the CPU time adds up
// holds on any machine. Latencies are compared only where the machine does nothing else and the generator is on time.
func TestColocate(t *testing.T) {
	newNode(t) // or skip
	if emulated() {
		t.Skip("the virtual machine has no ffmpeg, and its latencies mean nothing")
	}
	cfg := experiment.ColocateConfig{
		Config: experiment.Config{Seconds: 4, AgentPath: binary(t, "waterline-agent"), Helper: binary(t, "waterline")},
		Loads:  []float64{0.6}, Repeats: 1, Latest: 100 * time.Millisecond,
	}
	if soak() {
		cfg.Seconds, cfg.Loads, cfg.Repeats, cfg.Latest = 0, nil, 0, 0
	}
	// A neighbour of this virtual machine takes what it wants without being seen. What Waterline does wrong it does each time.
	const attempts = 3
	for attempt := range attempts {
		r, err := experiment.Colocate(t.Context(), cfg)
		if errors.Is(err, experiment.ErrUnusable) && os.Getenv("CI") == "" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s\n%s", r.Headline, r.Table)
		m := r.Metrics
		for _, mode := range []string{"alone_60_", "plain_60_", "unsuppressed_60_", "waterline_60_"} {
			answered(t, m, mode)
			if mode != "alone_60_" {
				fed(t, m, mode)
			}
		}
		fed(t, m, "batch_alone_")
		said := fmt.Sprintf("p99 to p99 alone: plain %.2f, waterline %.2f", m["p99_ratio_plain"], m["p99_ratio_waterline"])
		switch {
		case !comparable(t, m):
			return
		case m["p99_ratio_plain"] > 1 && m["p99_ratio_waterline"] <= 1.5 && m["p99_ratio_waterline"] <= m["p99_ratio_plain"]:
			return
		case attempt == attempts-1:
			t.Error(said)
		default:
			t.Log(said, "; once more")
		}
	}
}

// comparable reports whether the machine did nothing else, as far as that can be seen, and the generator was on time.
func comparable(t *testing.T, m map[string]float64) bool {
	t.Helper()
	const little, late = 0.1, 1 // CPUs, ms
	busy := 0.0
	for _, mode := range []string{"alone_60_", "plain_60_", "unsuppressed_60_", "waterline_60_"} {
		busy = max(busy, m[mode+"other_cpus"]+m[mode+"steal_percent"]/100*m["cpus_machine"])
	}
	if busy > little || m["generator_late_p99_ms"] > late {
		t.Logf("latencies are not compared: others took %.2f CPUs, the generator was %.2f ms late", busy, m["generator_late_p99_ms"])
		return false
	}
	return true
}

// answered checks that the server answered all that it was asked for what that costs.
func answered(t *testing.T, m map[string]float64, mode string) {
	t.Helper()
	if m[mode+"requests"] < 1000 || m[mode+"errors"] != 0 || m[mode+"p50_ms"] < 0.3 || m[mode+"p99_ms"] < m[mode+"p50_ms"] {
		t.Errorf("%s: %v requests, %v errors, p50 %v ms, p99 %v ms", mode, m[mode+"requests"], m[mode+"errors"], m[mode+"p50_ms"], m[mode+"p99_ms"])
	}
	if cost := m[mode+"cpu_ms_per_request"]; cost < 0.3 || cost > 10 {
		t.Errorf("%s: a request costs %v ms of CPU", mode, cost)
	}
	if g := m[mode+"generator_cpus"]; g <= 0 || g > 0.1 {
		t.Errorf("%s: the generator used %v CPUs", mode, g)
	}
	sum := m[mode+"online_cpus"] + m[mode+"batch_cpus"] + m[mode+"agent_cpus"] + m[mode+"generator_cpus"] + m[mode+"other_cpus"]
	if used := m[mode+"cpu_total_percent"] / 100 * m["cpus_machine"]; sum < 0.85*used-0.1 || sum > 1.05*used+0.1 {
		t.Errorf("%s: %.2f CPUs were used, by somebody %.2f", mode, used, sum)
	}
}

// fed checks that both batch programs worked.
func fed(t *testing.T, m map[string]float64, mode string) {
	t.Helper()
	if m[mode+"ffmpeg_frames_per_second"] <= 0 || m[mode+"stress_operations_per_second"] <= 0 || m[mode+"batch_cpus"] <= 0 {
		t.Errorf("%s: %v frames and %v operations a second with %v CPUs", mode, m[mode+"ffmpeg_frames_per_second"], m[mode+"stress_operations_per_second"], m[mode+"batch_cpus"])
	}
	if share := m[mode+"batch_share_of_free_cpu"]; share <= 0 || share > 1.001 {
		t.Errorf("%s: batch had %v of what was free", mode, share)
	}
}
