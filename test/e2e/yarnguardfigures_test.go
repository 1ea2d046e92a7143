//go:build bench

package e2e_test

import (
	"testing"

	"github.com/waterline-io/waterline/lab/measure"
)

// TestYARNGuardFigures measures what is lost when the containers of a worker outgrow it, with a guard and without.
func TestYARNGuardFigures(t *testing.T) {
	metrics := map[string]float64{}
	withAndWithout(newNight(t), func(p *night, guarded bool, o outgrown) {
		key := "unguarded_"
		if guarded {
			key = "guarded_"
		}
		metrics[key+"oom_kills"], metrics[key+"restarts"] = float64(o.oomKills), float64(o.restarts)
		metrics[key+"containers_killed"] = float64(o.killed)
		metrics[key+"lost_container_seconds"] = measure.Round(o.lost, 1)
		if metrics[key+"failed_jobs"] = 0; o.err != nil {
			metrics[key+"failed_jobs"] = 1
		}
	})
	noCrowd(t).judge("yarn-guard", metrics, map[string]float64{"guarded_oom_kills": 0, "guarded_restarts": 0})
}
