//go:build bench

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestNodeTranscodeFigures runs lab transcode to its end: jobs with a weight take less time for a second of media.
func TestNodeTranscodeFigures(t *testing.T) {
	transcode, nothingLeft := transcoder(t)
	// On a machine that stands still for some seconds, jobs get their start signal too late, or do not run side by side.
	// An error of Waterline occurs every time.
	wrong := repeat(t, 3, func(int) (map[string]float64, string) {
		file := filepath.Join(t.TempDir(), "transcode.json")
		start := time.Now()
		out, err := transcode("--seconds", "50", "--json", file).CombinedOutput()
		t.Logf("in %.0f s: %v\n%s", time.Since(start).Seconds(), err, out)
		nothingLeft("a result")
		if err != nil {
			return nil, fmt.Sprint(err)
		}
		return nil, transcoded(t, file)
	})
	if wrong != "" {
		t.Error(wrong)
	}
}

// transcoded returns the error in a result of lab transcode; "": none.
func transcoded(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var result struct{ Metrics map[string]float64 }
	if err := json.Unmarshal(content, &result); err != nil {
		t.Fatal(err)
	}
	m := result.Metrics
	weighted, plain := m["time_per_media_second_weighted"], m["time_per_media_second_plain"]
	if weighted <= 0 || weighted > 0.84*plain {
		return fmt.Sprintf("a second of media took weighted jobs %v s and the others %v s, want at least 16 %% less",
			weighted, plain)
	}
	if m["weight_seen_shares"] != 262144 {
		return fmt.Sprintf("the kernel had %v shares", m["weight_seen_shares"])
	}
	return ""
}
