package experiment

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	culpritPods  = 4
	outsiderName = "outsider"

	// It pauses, so that the server catches up, and what is asked of it does not pile up.
	culpritRuns  = 3700 * time.Millisecond
	culpritPause = 300 * time.Millisecond
)

// neighbour is who runs beside the server, and when.
type neighbour struct {
	pod     *pod                        // a batch pod; one that asks for no batch CPU is a process outside of all pods
	cpu     int                         // that it stays on: 0 is the server's
	runs    func(at time.Duration) bool // whether it does at a time of the run
	load    *process
	running bool
}

// byTurns runs for some time and stands still for another.
func byTurns(runs, stands time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at%(runs+stands) < runs }
}

// direct has everybody run, or stand still, as is due, until the context ends.
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
	if err := unix.Kill(n.load.cmd.Process.Pid, signal); err != nil {
		return fmt.Errorf("directing %s: %w", n.load.name, err)
	}
	n.running = runs
	return nil
}

// neighbours returns who runs beside the server. Whoever is guilty has the server's CPU for all but a moment of four
// seconds, and does nothing before and after. Of the innocent ones one is always busy, weighs more and uses more than the guilty one, and two are bursty. The
// pod that is guilty in other runs is a bursty one where nobody is.
func neighbours(r *culpritRun) []*neighbour {
	var all []*neighbour
	add := func(number, cpu int, milli int64, runs func(time.Duration) bool) {
		p := &pod{name: fmt.Sprintf("batch-%d", number), qos: model.BestEffort, batchMilli: milli}
		all = append(all, &neighbour{pod: p, cpu: cpu, runs: runs})
	}
	bursts := byTurns(culpritRuns, culpritPause)
	guilty := func(at time.Duration) bool {
		return at >= r.begins() && at < r.ends() && bursts(at-r.begins())
	}
	if r.guilty < 0 {
		all = append(all, &neighbour{pod: &pod{name: outsiderName}, runs: guilty})
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
	for i := range culpritPods {
		if i == r.guilty {
			add(i, 0, 100, guilty)
			continue
		}
		add(i, 1, innocent[0].milli, innocent[0].runs)
		innocent = innocent[1:]
	}
	return all
}
