package interference

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/sandbox"
)

const (
	batchPods    = 4
	outsiderName = "outsider"

	// The guilty pod runs and pauses in turn, so that the server catches up and requests do not pile up.
	guiltyRuns   = 3700 * time.Millisecond
	guiltyPauses = 300 * time.Millisecond
)

// neighbour is a batch pod beside the server; without a batch CPU request, a process outside of all pods.
type neighbour struct {
	pod     *sandbox.Pod
	cpu     int                         // index of the CPU that it stays on: 0 is the server's
	runs    func(at time.Duration) bool // whether it runs at a time of the run
	load    *sandbox.Process
	running bool
}

// byTurns returns when load runs that runs for some time and stops for another.
func byTurns(runs, stops time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at%(runs+stops) < runs }
}

// direct starts and stops all load when it is due, until the context ends.
func direct(ctx context.Context, all []*neighbour) error {
	const often = 20 * time.Millisecond
	began, next := time.Now(), time.NewTicker(often)
	defer next.Stop()
	for {
		for _, n := range all {
			if err := n.direct(time.Since(began)); err != nil {
				return err
			}
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *neighbour) direct(at time.Duration) error {
	runs := n.runs(at)
	if runs == n.running {
		return nil
	}
	signal := unix.SIGSTOP
	if runs {
		signal = unix.SIGCONT
	}
	if err := unix.Kill(n.load.PID(), signal); err != nil {
		return fmt.Errorf("sending %s to %s: %w", unix.SignalName(signal), n.load.Name(), err)
	}
	n.running = runs
	return nil
}

// neighbours returns what runs beside the server. The guilty pod takes the server's CPU for all but a moment of each
// four seconds, and does nothing before and after. The innocent pods run on another CPU. One of them is always busy,
// weighs more and uses more than the guilty pod; the rest are bursty. Where no pod is guilty, all but the busy one are
// bursty.
func neighbours(r *run) []*neighbour {
	var all []*neighbour
	add := func(number, cpu int, milli int64, runs func(time.Duration) bool) {
		p := &sandbox.Pod{Name: fmt.Sprintf("batch-%d", number), QoS: model.BestEffort, BatchMilli: milli}
		all = append(all, &neighbour{pod: p, cpu: cpu, runs: runs})
	}
	turns := byTurns(guiltyRuns, guiltyPauses)
	guilty := func(at time.Duration) bool {
		return at >= r.begins() && at < r.ends() && turns(at-r.begins())
	}
	if r.guilty == noPod {
		all = append(all, &neighbour{pod: &sandbox.Pod{Name: outsiderName}, runs: guilty})
	}
	innocent := []struct {
		milli int64
		runs  func(time.Duration) bool
	}{
		{1000, func(time.Duration) bool { return true }},
		{100, byTurns(7*time.Second, 5*time.Second)},
		{100, byTurns(11*time.Second, 8*time.Second)},
		{100, byTurns(9*time.Second, 14*time.Second)},
	}
	for i := range batchPods {
		if i == r.guilty {
			add(i, 0, 100, guilty)
			continue
		}
		add(i, 1, innocent[0].milli, innocent[0].runs)
		innocent = innocent[1:]
	}
	return all
}
