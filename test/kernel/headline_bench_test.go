//go:build bench

package kernel_test

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/lab/dataset"
	"github.com/waterline-io/waterline/lab/headline"
	"github.com/waterline-io/waterline/lab/redisbench"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// TestHeadline runs lab headline in short. On any machine, requests must follow the curve of the day and be answered,
// and ffmpeg must work beside them.
func TestHeadline(t *testing.T) {
	newNode(t) // or skip
	if emulated() {
		t.Skip("the virtual machine has no ffmpeg, and its latencies mean nothing")
	}
	machine := dataset.Generate(trace.Online(1), 1)
	values, err := machine.Day(1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := headline.Config{
		Config: redisbench.Config{
			Config: sandboxConfig(t, "lab"), Seconds: 8, Repeats: 1, Latest: 100 * time.Millisecond,
		},
		Day: headline.Day{Name: "a test", Values: values}, Percent: headline.DefaultPercent,
	}
	if soak() {
		cfg.Seconds, cfg.Latest = 0, 0
	}
	r, err := headline.Run(t.Context(), cfg)
	if errors.Is(err, sandbox.ErrUnusable) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", r.Headline, r.Table)
	m := r.Metrics
	parts := len(r.Series["waterline_part_p99_ms"])
	for _, mode := range []string{"alone_", "waterline_"} {
		due := m["asked_percent"] / 100 * m["cpus_machine"] * m["day_seconds"] / 0.0015
		if math.Abs(m[mode+"requests"]-due) > 5*math.Sqrt(due) || m[mode+"errors"] != 0 {
			t.Errorf("%s: %v requests, %v errors; about %.0f are due", mode, m[mode+"requests"], m[mode+"errors"], due)
		}
		if m[mode+"p50_ms"] < 0.3 || m[mode+"p99_ms"] < m[mode+"p50_ms"] || m[mode+"online_percent"] <= 0 ||
			m[mode+"generator_percent"] <= 0 {
			t.Errorf("%s: p50 %v ms, p99 %v ms, online %v %%, generator %v %%", mode, m[mode+"p50_ms"], m[mode+"p99_ms"],
				m[mode+"online_percent"], m[mode+"generator_percent"])
		}
		online := r.Series[mode+"part_online_percent"]
		if len(online) != parts || online[parts/2] <= online[0] {
			t.Errorf("%s: over the day, Redis used %v %%", mode, online)
		}
	}
	if parts != min(20, int(m["day_seconds"])) || m["waterline_ffmpeg_frames_per_second"] <= 0 ||
		m["waterline_batch_percent"] <= 0 || m["pods_lost"] != 0 {
		t.Errorf("%d parts, %v frames a second with %v %% of the machine", parts, m["waterline_ffmpeg_frames_per_second"],
			m["waterline_batch_percent"])
	}
}
