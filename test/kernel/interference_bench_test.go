//go:build bench

package kernel_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/model"
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

// TestInterferenceFound checks the whole search from the beginning, which takes minutes. The other batch pods are
// bursty, and the interfering pod starts late.
func TestInterferenceFound(t *testing.T) {
	n := newInterferenceNode(t)
	n.on(0, n.web, busy)
	for i, dir := range n.others {
		n.swing(1, dir, time.Duration(7+4*i)*time.Second, time.Duration(5+6*i)*time.Second)
	}
	r := n.agentWith()
	time.Sleep(150 * time.Second)
	if n.notified("guilty") || n.notified("web") {
		t.Errorf("before the interference begins: %s", n.notices)
	}
	began := time.Now()
	n.on(0, n.job, busy)
	for _, want := range []string{"web SuspectNamed ", "guilty SuspectNamed ", "guilty ThrottleTried ",
		"guilty ThrottleKept "} {
		n.expectNotice(want)
		t.Logf("%s after %s", want, time.Since(began).Round(time.Second))
	}
	t.Log(n.explained("/explain?namespace=default&pod=web"))
	if quota := n.quotaOf(n.job); quota == model.Unlimited || quota > 40_000 {
		t.Errorf("the quota of the guilty pod is %d", quota)
	}
	r.stop()
}
