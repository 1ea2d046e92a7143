package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// TestAPIPoolKilled kills the manager with -9 at random moments while slack, containers, the ResourceManager and
// windows change. Afterwards every worker is as wanted, no container ended before its time, and no pod is left over.
// The restarted manager has the same identity, as a restarted container of its pod has, so it leads at once.
func TestAPIPoolKilled(t *testing.T) {
	kills := 10
	if soak {
		kills = 200
	}
	const count = 5
	y := newYard(t)
	p := y.rm(t, "kill", "elastic", quick, 5*time.Second, 15*time.Second)
	for i := range count {
		y.offer(t, fmt.Sprintf("kill-%d", i), "kill", cpuMemory(9, 20))
	}
	y.create(t, specOf("kill", p.address, `, size: {ceiling: {cpu: 8, memory: 16Gi}, pause: 1s, follow: {window: 0s}}, `+
		`drain: {grace: 5s, timeout: 15s}, identity: {coolDown: 1s}`))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	start := func() *process { return y.manager("--pools="+poolNamespace, "--identity=kill") }
	manager := start()
	y.becomes(t, "kill", "its workers start", func(p *v1alpha1.WorkerPool) bool { return len(p.Status.Workers) == count })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for r := rand.New(rand.NewPCG(seed, 1)); ctx.Err() == nil; {
			y.disturb(ctx, t, p, r, count)
		}
	}()
	for range kills {
		time.Sleep(4*time.Second + time.Duration(r.Int64N(int64(2*time.Second)))) // for 3.5 s it only watches
		manager.stop(os.Kill)
		manager = start()
	}
	cancel()
	<-done

	p.Break(fakerm.Faults{})
	p.Ask("jobs", fakerm.Demand{})
	p.Ask("others", fakerm.Demand{})
	for i := range count {
		y.offer(t, fmt.Sprintf("kill-%d", i), "kill", cpuMemory(9, 20))
		y.others(fmt.Sprintf("kill-%d", i), cpuMemory(0, 0))
	}
	y.window(`null`)
	y.active(t, "kill", count)
	for i := range count {
		p.offers(t, poolHost("kill", fmt.Sprintf("kill-%d", i)), fakerm.Size{MemoryMiB: 16384, VCores: 8})
	}
	eventually(t, "as many pods as workers", func() (bool, string) {
		n := y.podsOf("kill")
		return n == count, fmt.Sprint(n)
	})
	y.mu.Lock()
	p.unlabelled = 0 // the label may be lost between the last look and the start of a pod; see Misplaced
	y.mu.Unlock()
	y.check(t, p)
	if out := manager.log.String(); strings.Contains(out, "panic") {
		t.Error(out)
	}
}

// disturb waits a moment and changes something.
func (y *yard) disturb(ctx context.Context, t testing.TB, p *yarnPool, r *rand.Rand, count int) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(time.Duration(r.Int64N(int64(600 * time.Millisecond)))):
	}
	node := fmt.Sprintf("kill-%d", r.IntN(count))
	size := fakerm.Size{MemoryMiB: 1024 * (1 + r.Int64N(2)), VCores: 1}
	switch r.IntN(16) {
	case 0, 1, 2, 3:
		y.offer(t, node, "kill", cpuMemory(1+r.Int64N(10), 2+r.Int64N(18)))
	case 4:
		y.others(node, cpuMemory(r.Int64N(4), r.Int64N(8)))
	case 5, 6, 7:
		p.Ask("jobs", fakerm.Demand{Label: "elastic", Size: size, PerNode: r.IntN(8),
			For: time.Duration(1+r.IntN(20)) * time.Second})
	case 8:
		p.Ask("others", fakerm.Demand{Size: size, PerNode: r.IntN(3), For: 5 * time.Second})
	case 9:
		p.Restart()
	case 10:
		p.Break(fakerm.Faults{Silent: r.IntN(2) == 0})
	case 11:
		p.Break(fakerm.Faults{})
	case 12:
		p.LoseLabels()
	case 13:
		p.Die(poolHost("kill", node)) // its kubelet starts it again
	case 14:
		y.window(`null`)
	case 15:
		now := time.Now().UTC()
		y.window(fmt.Sprintf(`[{"name":"w","start":%q,"end":%q,"timeZone":"UTC","drainBefore":"15s"}]`,
			now.Add(-time.Hour).Format("15:04"), now.Add(time.Minute).Format("15:04")))
	}
}

// window sets the windows of the pool that is disturbed.
func (y *yard) window(windows string) {
	y.request(http.MethodPatch, poolPath+"kill", `{"spec":{"windows":`+windows+`}}`)
}
