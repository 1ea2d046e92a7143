package journal

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// busy returns rounds of a node with 110 pods, a second apart. Each second every pod's usage and waiting changes, and
// one pod's weight.
func busy(seconds int) []*node.Round {
	n := fixture.Node(model.Amount{CPU: 64_000, Memory: 256 << 30})
	var pods []*model.Pod
	for i := range 110 {
		p := fixture.Pod(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), model.Burstable)
		p.Namespace, p.Name = "shop", fmt.Sprintf("web-%d", i)
		p.Annotations.Shares = 2048
		pods = append(pods, p)
	}
	for _, p := range pods {
		fixture.Run(&n, p)
	}
	r := node.Round{Policy: fixture.Policy()}
	r.Policy.Suppress.By = model.SuppressOnHarm
	waits := make([]model.PodWait, len(pods))
	var rounds []*node.Round
	random := rand.New(rand.NewPCG(1, 1))
	for second := range seconds {
		now := time.Duration(second+1)*time.Second + time.Duration(random.IntN(1e6))
		n.Now = n.Now.Add(time.Second)
		load := &model.Load{Clock: now, CPUMilli: 64_000, Memory: 256 << 30}
		for i, p := range pods {
			load.Pods = append(load.Pods, model.PodUsage{UID: p.UID, Usage: model.Usage{
				CPU: model.CPUUsage{At: now, Milli: int64(100 + random.IntN(400))},
				Memory: model.MemoryUsage{At: now, WorkingSet: int64(i)<<24 + random.Int64N(256)<<12, Anon: int64(i) << 23,
					ActiveFile: 1 << 20},
				Pressure: model.Pressure{At: now, CPU: model.Stall{Some: int64(random.IntN(9))}},
			}})
		}
		n.Load = load
		n.Waits = slices.Clone(waits)
		for i := range n.Waits {
			w := &n.Waits[i]
			w.UID, w.At, w.Times = pods[i].UID, now, w.Times+random.Int64N(90)
			w.Ran, w.Waited = w.Ran+time.Duration(random.IntN(4e8)), w.Waited+time.Duration(random.IntN(5e6))
		}
		waits = n.Waits
		pod := *pods[second%len(pods)]
		pod.Annotations.Shares = int64(1024 + second)
		n.Pods = append([]*model.Pod(nil), n.Pods...)
		n.Pods[second%len(pods)] = &pod
		r.Node = n
		round := r
		round.Plan, r.State = node.Decide(r.Node, r.Policy, r.State)
		rounds = append(rounds, &round)
	}
	return rounds
}

// held returns the size of a journal and the number of its rounds.
func held(t testing.TB, dir string) (size int64, rounds int) {
	t.Helper()
	for _, name := range Files() {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			size += info.Size()
		}
	}
	for _, err := range Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		rounds++
	}
	return size, rounds
}
