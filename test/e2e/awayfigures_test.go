//go:build bench

package e2e_test

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestAPIAwayFigures measures how long an agent takes to hear of a change when the API server is back.
func TestAPIAwayFigures(t *testing.T) {
	f, dir := away(t)
	back := time.Now()
	kubectl(t, "annotate", "pod", "a", "--overwrite", "waterline.io/cpu-share=4096")
	f.expect(t, dir, model.Shares, 4096)
	took := time.Since(back).Round(100 * time.Millisecond)
	t.Logf("%s after the API server was back, the agent received a change", took)
	if took > 30*time.Second { // the agent tries again after 16 s at most; with client-go's default, after a minute
		t.Errorf("the agent received a change after %s", took)
	}
}
