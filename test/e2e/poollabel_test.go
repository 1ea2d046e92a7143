package e2e_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
)

// TestPoolLabel starts NodeManagers in every way, and looks ten times a second at how the ResourceManager shows them:
// each has the label at first sight. They start with a new pool and with one of the same name that follows at once on
// a deleted one. They register again after they were killed, and with a ResourceManager that was killed, while the
// manager is killed too.
func TestPoolLabel(t *testing.T) {
	if !soak {
		t.Skip("WATERLINE_SOAK is not set: TestYARNPool sees the label of NodeManagers that start, and TestAPIPoolKilled " +
			"that of an imitated ResourceManager while managers are killed")
	}
	const rounds, least = 50, 200
	y := liveYard(t)
	l := y.live(t, "label", 2, 10*time.Second, time.Minute)
	start := func() *process { return y.liveManager("--identity=label") }
	manager := start()
	sight := seeStarts(t, l.rm, "label")
	for range rounds {
		l.create("", ", identity: {coolDown: 1s}")
		y.active(t, "label", 2)
		l.grown(yarn.Resource{MemoryMiB: 4096, VCores: 4})
		l.live.killManager(t, "label-label-0")
		l.sleepers(3, 256, 8*time.Second)
		time.Sleep(rand.N(3 * time.Second))
		manager.stop(os.Kill)
		l.killRM(1)
		manager = start()
		y.active(t, "label", 2)
		l.end()
	}
	l.create("", ", identity: {coolDown: 1s}")
	y.active(t, "label", 2)

	// Its pod goes without a word, so the ResourceManager shows the NodeManager as running until it is lost.
	kubectl(t, "delete", "workerpool", "label", "-n", poolNamespace, "--wait=false")
	kubectl(t, "delete", "pod", "label-label-1", "-n", poolNamespace, "--grace-period=0", "--force")
	l.end()
	sight.check(t, least)
}
