//go:build bench

package kernel_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/poll"
)

// swing starts a process that alternately runs and stands still.
func (n *interferenceNode) swing(cpu int, dir string, runs, stands time.Duration) {
	cmd := n.on(cpu, dir, busy)
	go func() {
		signal, other := unix.SIGSTOP, unix.SIGCONT
		for {
			select {
			case <-n.t.Context().Done():
				return
			case <-time.After(runs):
			}
			_ = cmd.Process.Signal(signal)
			signal, other, runs, stands = other, signal, stands, runs
		}
	}()
}

// expectNotice waits until an event of a pod begins with a text.
func (n *interferenceNode) expectNotice(text string) {
	n.t.Helper()
	waitFor(n.t, patience, text, func() bool { return n.notified(text) }, func() string {
		n.mu.Lock()
		defer n.mu.Unlock()
		return fmt.Sprint(n.notices, n.explained("/node"))
	})
}

// TestInterferenceOutcomes checks that throttling the suspect on the victim's CPU helps the victim, so the suspect
// stays throttled, and that throttling another pod does not help, so its quota is restored.
func TestInterferenceOutcomes(t *testing.T) {
	retry(t, 2, func() (outcomes map[string]float64, why string) {
		var kept map[string]bool
		t.Run("attempt", func(t *testing.T) {
			kept, outcomes = newLoadedInterferenceNode(t).trials(promise{500, 200}, promise{50, 200})
		})
		if !kept["guilty"] || kept["other-0"] || outcomes["undone"] != 1 {
			why = fmt.Sprintf("throttled: %v", kept)
		}
		return outcomes, why
	})
}

// TestInterferenceFigures measures whether and how soon the agent names the batch pod that takes an online pod's CPU,
// and whether it names a pod while a process outside of all pods does. The other batch pods are bursty, and nothing
// interferes before the agent has measured for long enough. A run takes minutes. With WATERLINE_BENCH=file, it makes as
// many runs as docs/results.md wants and writes their figures.
func TestInterferenceFigures(t *testing.T) {
	guilty, nobody := 1, 1
	if benchFile() != "" {
		guilty, nobody = 2, 4
	}
	retry(t, 2, func() (map[string]float64, string) {
		all := map[string]float64{"guilty_runs": float64(guilty), "nobody_runs": float64(nobody)}
		var version cgroup.Version
		for i := range guilty + nobody {
			t.Run(fmt.Sprintf("run %d", i+1), func(t *testing.T) {
				n := newInterferenceNode(t)
				version = n.mount.Version
				r := n.found(i < guilty)
				all["seconds_to_name_max"] = max(all["seconds_to_name_max"], r.named.Seconds())
				switch {
				case r.wrongly && i < guilty:
					all["named_wrongly_runs"]++
				case r.wrongly:
					all["false_alarm_runs"]++
				case r.named > 0:
					all["named_rightly_runs"]++
				}
			})
		}
		if all["named_rightly_runs"] != float64(guilty) || all["false_alarm_runs"] > 0 {
			return all, "the wrong pod, or none, was named"
		}
		writeFigures(t, version, "interference", all)
		return all, ""
	})
}

// foundRun is what became of a run.
type foundRun struct {
	named   time.Duration // until the guilty pod was named; 0: it was not
	wrongly bool          // another pod was named, or the guilty one too early
}

// found runs an agent beside pods of which one begins to interfere, or a process outside of all pods. A pod that is
// named must be throttled, and stay throttled.
func (n *interferenceNode) found(guilty bool) (r foundRun) {
	const lead, interferes = 150 * time.Second, 100 * time.Second
	t := n.t
	outside := filepath.Dir(n.layout.Root) + "/outsider"
	n.leaf(outside)
	n.on(0, n.web, busy)
	for i, dir := range n.others {
		n.swing(1, dir, time.Duration(7+4*i)*time.Second, time.Duration(5+6*i)*time.Second)
	}
	agent := n.agentWith()
	defer agent.stop()
	time.Sleep(lead)
	named := func(uid string) bool { return n.notified(uid + " SuspectNamed ") }
	if named("guilty") || named("web") {
		r.wrongly = true
		return r
	}
	began := time.Now()
	if guilty {
		n.on(0, n.job, busy)
		if poll.Until(interferes, time.Millisecond, func() bool { return named("guilty") }) {
			r.named = time.Since(began)
			for _, want := range []string{"guilty ThrottleTried ", "guilty ThrottleKept "} {
				n.expectNotice(want)
				t.Logf("%s after %s", want, time.Since(began).Round(time.Second))
			}
			if quota := n.quotaOf(n.job); quota == model.Unlimited || quota > 40_000 {
				t.Errorf("the quota of the guilty pod is %d", quota)
			}
		}
	} else {
		n.onIn(0, outside, busy)
		time.Sleep(interferes)
		r.wrongly = named("guilty")
	}
	for i := range n.others {
		r.wrongly = r.wrongly || named(fmt.Sprintf("other-%d", i))
	}
	t.Logf("guilty %v: %+v; %s", guilty, r, n.explained("/explain?namespace=default&pod=web"))
	return r
}
