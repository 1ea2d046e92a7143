package e2e_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// step sets the clock of the virtual machine by an offset in the syntax of date.
func (n *node) step(by string) {
	n.t.Helper()
	out, err := n.machine.(guest).run("date", "-s", by)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Logf("the clock of the node is set by %s to %s", by, strings.TrimSpace(out))
}

// testClock sets the clock back by an hour and forward again, just after the offer has grown, when it may not grow
// again for a minute. The offer must stay, and measurements and repairs must continue.
func (n *node) testClock() {
	dir := n.run("weighted", `waterline.io/cpu-share: "3000"`, "requests: {cpu: 50m}", false)
	n.expect(n.t, dir, model.Shares, 3000)
	agent := n.agent()
	lives := n.living("weighted")
	before := n.published(false, model.TierBatch, false)
	// The offer grew after the last query that did not show it, which was sent after the answer before.
	offer := int64(0)
	grown, earlier, last := time.Now(), time.Now(), time.Now()
	n.sold(false, "the offer grows", func(is int64) bool {
		offer, grown, earlier, last = is, earlier, last, time.Now()
		return is > before
	})
	for _, by := range []string{"1 hour ago", "1 hour"} {
		n.step(by)
		for range 5 {
			time.Sleep(time.Second)
			is, since := n.published(false, model.TierBatch, false), time.Since(grown)
			again := is > offer && since < 55*time.Second // clock: the rule is a minute, and a slow machine only excuses
			if is < offer || again {
				n.t.Errorf("%s after it grew, the offer is %d, and was %d", since.Round(time.Second), is, offer)
			}
			n.set(n.t, dir, model.Shares, 99)
			n.expect(n.t, dir, model.Shares, 3000)
		}
		eventually(n.t, "the node is measured", func() (bool, string) {
			shown := n.metrics(&agent)
			age := shown.of(n.t, v1alpha1.MetricMeasurementAge, `resource="cpu"`)
			return age < 3 && strings.Contains(string(shown), v1alpha1.MetricCPUUsed+`{class="node",window="1s"}`),
				fmt.Sprint(age)
		})
		if is := n.agent(); is.UID != agent.UID || is.Status.ContainerStatuses[0].RestartCount > 0 {
			n.t.Errorf("the agent was restarted")
		}
		lives("the clock was set by " + by)
	}
	n.ready()
	kubectl(n.t, "delete", "pod", "weighted", "--grace-period=0", "--force", "--wait")
}

// testWindows sets the clock out of a window of the policy and into it again.
func (n *node) testWindows() {
	now := time.Now().UTC()
	window := fmt.Sprintf(`{"windows": [{"name": "now", "start": %q, "end": %q, "timeZone": "UTC"}], `,
		now.Add(-30*time.Minute).Format("15:04"), now.Add(30*time.Minute).Format("15:04"))
	n.policy(strings.Replace(selling("Enforce", "Static"), "{", window, 1))
	selling := func(state model.SellState) {
		n.t.Helper()
		started := time.Now()
		eventually(n.t, "the node reports "+string(state), func() (bool, string) {
			is := kubectl(n.t, "get", "nodereport", n.name, "-o", "jsonpath={.status.selling}")
			return is == string(state), is
		})
		n.t.Logf("%s after %s", state, time.Since(started).Round(100*time.Millisecond))
	}
	selling(model.SellOpen)
	n.step("1 hour ago")
	selling(model.SellClosed)
	n.step("1 hour")
	selling(model.SellOpen)
}
