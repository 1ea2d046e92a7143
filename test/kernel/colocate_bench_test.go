//go:build bench

package kernel_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/lab/colocate"
	"github.com/waterline-io/waterline/lab/redisbench"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// TestColocate runs lab colocate in short. On any machine, batch must work, the server must answer its requests, and
// the CPU times must add up. Latencies are compared only if the machine does nothing else and the generator is on time.
func TestColocate(t *testing.T) {
	newNode(t) // or skip
	if emulated() {
		t.Skip("the virtual machine has no ffmpeg, and its latencies mean nothing")
	}
	cfg := colocate.Config{
		Config: redisbench.Config{
			Config: sandboxConfig(t, "lab"), Seconds: 4, Repeats: 1, Latest: 100 * time.Millisecond,
		},
		Loads: []float64{0.6},
	}
	if soak() {
		cfg.Seconds, cfg.Loads, cfg.Repeats, cfg.Latest = 0, nil, 0, 0
	}
	// A neighbour of this virtual machine may take CPU invisibly. A CPU that became slower after the requests were
	// scheduled cannot answer all of them.
	retry(t, 3, func() (map[string]float64, string) {
		r, err := colocate.Run(t.Context(), cfg)
		if errors.Is(err, sandbox.ErrUnusable) && os.Getenv("CI") == "" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s\n%s", r.Headline, r.Table)
		m := r.Metrics
		wrong := fed(m, "batch_alone_")
		for _, mode := range []string{"alone_60_", "plain_60_", "unsuppressed_60_", "waterline_60_"} {
			wrong = append(wrong, answered(m, mode)...)
			if mode != "alone_60_" {
				wrong = append(wrong, fed(m, mode)...)
			}
		}
		if comparable(t, m) && !(m["p99_ratio_plain"] > 1 && m["p99_ratio_waterline"] <= 1.5 &&
			m["p99_ratio_waterline"] <= m["p99_ratio_plain"]) {
			wrong = append(wrong, fmt.Sprintf("p99 to p99 alone: plain %.2f, waterline %.2f", m["p99_ratio_plain"],
				m["p99_ratio_waterline"]))
		}
		return m, strings.Join(wrong, "; ")
	})
}

// comparable reports whether, as far as it can be measured, the machine did nothing else and the generator was on time.
func comparable(t *testing.T, m map[string]float64) bool {
	t.Helper()
	const little, late = 0.1, 1 // CPUs, ms
	busy := 0.0
	for _, mode := range []string{"alone_60_", "plain_60_", "unsuppressed_60_", "waterline_60_"} {
		busy = max(busy, m[mode+"other_cpus"]+m[mode+"steal_percent"]/100*m["cpus_machine"])
	}
	if busy > little || m["generator_late_p99_ms"] > late {
		t.Logf("latencies are not compared: others took %.2f CPUs, the generator was %.2f ms late", busy,
			m["generator_late_p99_ms"])
		return false
	}
	return true
}

// answered returns an error text unless the server answered all requests and used the CPU time that they cost.
func answered(m map[string]float64, mode string) (wrong []string) {
	if m[mode+"requests"] < 1000 || m[mode+"errors"] != 0 || m[mode+"p50_ms"] < 0.3 ||
		m[mode+"p99_ms"] < m[mode+"p50_ms"] {
		wrong = append(wrong, fmt.Sprintf("%s: %v requests, %v errors, p50 %v ms, p99 %v ms", mode, m[mode+"requests"],
			m[mode+"errors"], m[mode+"p50_ms"], m[mode+"p99_ms"]))
	}
	if cost := m[mode+"cpu_ms_per_request"]; cost < 0.3 || cost > 10 {
		wrong = append(wrong, fmt.Sprintf("%s: a request costs %v ms of CPU", mode, cost))
	}
	if g := m[mode+"generator_cpus"]; g <= 0 || g > 0.1 {
		wrong = append(wrong, fmt.Sprintf("%s: the generator used %v CPUs", mode, g))
	}
	sum := m[mode+"online_cpus"] + m[mode+"batch_cpus"] + m[mode+"agent_cpus"] + m[mode+"generator_cpus"] +
		m[mode+"other_cpus"]
	// The kernel may count stolen time as used by the pods, but not as used by the machine.
	stolen := m[mode+"steal_percent"] / 100 * m["cpus_machine"]
	if used := m[mode+"cpu_total_percent"] / 100 * (m["cpus_machine"] - stolen); sum < 0.85*used-0.1 ||
		sum > 1.05*(used+stolen)+0.1 {
		wrong = append(wrong, fmt.Sprintf("%s: %.2f CPUs were used and %.2f stolen; the parts add up to %.2f", mode, used,
			stolen,
			sum))
	}
	return wrong
}

// fed returns an error text unless both batch programs worked.
func fed(m map[string]float64, mode string) (wrong []string) {
	if m[mode+"ffmpeg_frames_per_second"] <= 0 || m[mode+"stress_operations_per_second"] <= 0 ||
		m[mode+"batch_cpus"] <= 0 {
		wrong = append(wrong, fmt.Sprintf("%s: %v frames and %v operations a second with %v CPUs", mode,
			m[mode+"ffmpeg_frames_per_second"], m[mode+"stress_operations_per_second"], m[mode+"batch_cpus"]))
	}
	if share := m[mode+"batch_share_of_free_cpu"]; share <= 0 || share > 1.001 {
		wrong = append(wrong, fmt.Sprintf("%s: batch had %v of the free CPU", mode, share))
	}
	return wrong
}
