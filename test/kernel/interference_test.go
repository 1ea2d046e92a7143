package kernel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/agent/store"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/checkpoint"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/interference"
	"github.com/waterline-io/waterline/internal/model"
)

// interferenceNode is a node with an online pod and four batch pods. One of them runs on the CPU of the online pod.
type interferenceNode struct {
	*suppressNode
	others  []string // directories of the batch pods on the other CPU
	cpus    [2]int
	mu      sync.Mutex
	notices []string
}

func newInterferenceNode(t *testing.T) *interferenceNode {
	n := &interferenceNode{suppressNode: &suppressNode{meterNode: newMeterNode(t), source: newPods()}}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil || allowed.Count() < 2 {
		t.Skipf("needs two CPUs, has %d: %v", allowed.Count(), err)
	}
	for cpu, found := 0, 0; found < 2; cpu++ {
		if allowed.IsSet(cpu) {
			n.cpus[found] = cpu
			found++
		}
	}
	n.outweigh()
	n.web, n.job = n.add("web"), n.addBatch("guilty")
	for _, class := range []model.QoSClass{model.Burstable, model.BestEffort} {
		n.set(n.layout.Class(class), model.Shares, 1024) // otherwise the online pod would hardly wait
	}
	web := burstable("web", 500, 0)
	web.Class = model.ClassLS
	n.source.set(web)
	for i, uid := range []string{"guilty", "other-0", "other-1", "other-2"} {
		if i > 0 {
			n.others = append(n.others, n.addBatch(uid))
		}
		n.source.set(batch(uid, model.Grant{RequestMilli: 500}, "0123456789aa"))
	}
	return n
}

// on starts a shell script in a pod, on one CPU.
func (n *interferenceNode) on(cpu int, dir, script string) *exec.Cmd {
	n.t.Helper()
	return n.onIn(cpu, dir+"/0123456789aa", script)
}

// onIn starts a shell script in a group, on one CPU.
func (n *interferenceNode) onIn(cpu int, dir, script string) *exec.Cmd {
	n.t.Helper()
	cmd := n.runIn(dir, "sh", "-c", script)
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	// Before Linux 6.2, entering a cgroup resets a process's affinity.
	var is []byte
	within(n.t, "the script runs in its cgroup", func() bool {
		is, _ = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
		return strings.HasPrefix(string(is), "sh\x00-c\x00"+script)
	}, func() string { return string(is) })
	var set unix.CPUSet
	set.Set(n.cpus[cpu])
	if err := unix.SchedSetaffinity(cmd.Process.Pid, &set); err != nil {
		n.t.Fatal(err)
	}
	return cmd
}

const busy = "while :; do :; done"

func (n *interferenceNode) quotaOf(dir string) int64 {
	text, err := os.ReadFile(filepath.Join(n.mount.Path, dir, cgroup.FileName(n.mount.Version, model.Quota)))
	if err != nil || strings.HasPrefix(string(text), "max") {
		return model.Unlimited
	}
	var quota int64
	_, _ = fmt.Sscan(string(text), &quota)
	return quota
}

// agentWith starts an agent whose predecessor throttled these pods on trial.
func (n *interferenceNode) agentWith(tried ...interference.Throttled) *run {
	n.t.Helper()
	dir := n.t.TempDir()
	if len(tried) > 0 {
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			n.t.Fatal(err)
		}
		body, err := json.Marshal(struct {
			Boot  string
			State node.State
		}{strings.TrimSpace(string(boot)), node.State{Interference: &interference.State{Throttled: tried}}})
		if err == nil {
			err = checkpoint.Kind("waterline-state 1").Write(filepath.Join(dir, store.StateFile), body)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
	known := make(chan struct{})
	n.run = n.start(n.source, func(c *agent.Config) {
		c.RunDir = dir
		policies := c.Policies
		c.Policies = func() ([]model.ClusterPolicy, error) {
			<-known // under the default policy, which searches for no interference, a round would end the trials
			return policies()
		}
		c.API.Notify = func(_ context.Context, notice model.Notice) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.notices = append(n.notices, notice.Name+" "+notice.Reason.String())
			return nil
		}
	})
	n.run.set(func(p *model.Policy) { p.Protect.Interference = true })
	close(known)
	return n.run
}

// notified reports whether an event of a pod begins with this text.
func (n *interferenceNode) notified(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.notices, func(s string) bool { return strings.HasPrefix(s, text) })
}

func (n *interferenceNode) explained(path string) string {
	answer := httptest.NewRecorder()
	serve.Handler(n.run.agent.View, "").ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	return answer.Body.String()
}

// TestInterference checks that an agent continues the trials of its predecessor and ends them as it must, and that
// quotas, events, the metric and the explanation agree with the outcomes. What the trials promise leaves one outcome
// each, however fast the machine is: for the one pod, the victim waited all the time before, so that its trial helped;
// for the other, the victim did not wait at all before, so that its trial did not. The bench TestInterferenceOutcomes
// shows what real waiting leads to.
//
// A trial is unclear if some seconds were not measured, or if the suspect got little of its throttle. Then the quota is
// restored, and another agent continues the same trials, until the machine let both be measured.
func TestInterference(t *testing.T) {
	n := newLoadedInterferenceNode(t)
	for range 10 {
		kept, outcomes := n.trials(promise{before: 1000, expect: 1}, promise{before: 0, expect: 200})
		if kept["other-0"] || outcomes["helped"] > 1 || outcomes["undone"] > 1 || !kept["guilty"] && outcomes["helped"] > 0 {
			t.Fatalf("throttled: %v, outcomes: %v", kept, outcomes)
		}
		if outcomes["unclear"] == 0 {
			return
		}
	}
	t.Error("no trial has an outcome")
}

// newLoadedInterferenceNode returns a node on which the online pod shares its CPU with the guilty pod, and another
// batch pod runs on the other CPU.
func newLoadedInterferenceNode(t *testing.T) *interferenceNode {
	t.Helper()
	n := newInterferenceNode(t)
	n.on(0, n.job, busy)
	n.on(1, n.others[0], busy)
	n.on(0, n.web, busy)
	return n
}

// promise is how long the victim waited before a trial, and how much less it is to wait, in thousandths of the time.
type promise struct{ before, expect int64 }

// trials lets an agent continue a trial of the guilty pod and one of another pod. It returns which pods stay throttled,
// and how many trials had which outcome.
func (n *interferenceNode) trials(guilty, other promise) (kept map[string]bool, outcomes map[string]float64) {
	t := n.t
	t.Helper()
	n.mu.Lock()
	n.notices = nil
	n.mu.Unlock()
	trial := func(uid string, p promise) interference.Throttled {
		return interference.Throttled{
			Throttle: model.Throttle{
				UID: uid, Victim: "web", Milli: 100, Times: 500, Code: model.ThrottleTried, Expect: p.expect,
			},
			Used: 200, Before: p.before, Was: model.Throttle{UID: uid, Times: 1000},
			Spans: -1, // the first span is incomplete
		}
	}
	r := n.agentWith(trial("guilty", guilty), trial("other-0", other))
	defer r.stop()
	within(t, "both suspects are limited to a tenth of a CPU", func() bool {
		return n.quotaOf(n.job) == 10_000 && n.quotaOf(n.others[0]) == 10_000
	}, func() string { return n.explained("/node") })
	if n.quotaOf(n.others[1]) != model.Unlimited {
		t.Error("a pod without a trial has a quota")
	}
	of := func(outcome string) float64 {
		return metric(t, r.agent, v1alpha1.MetricInterferenceTrials, "outcome", outcome)
	}
	// At least half a minute, and longer if spans were not measured.
	waitFor(t, patience, "both trials end", func() bool { return of("helped")+of("undone")+of("unclear") == 2 },
		func() string { return n.explained("/node") })
	kept, outcomes = map[string]bool{}, map[string]float64{}
	for _, outcome := range []string{"helped", "undone", "unclear"} {
		outcomes[outcome] = of(outcome)
	}
	for uid, dir := range map[string]string{"guilty": n.job, "other-0": n.others[0]} {
		within(t, "the quota of "+uid+" is as its trial ended", func() bool {
			kept[uid] = n.notified(uid + " ThrottleKept ")
			return kept[uid] && n.quotaOf(dir) == 10_000 || !kept[uid] && n.quotaOf(dir) == model.Unlimited
		}, func() string { return fmt.Sprint(n.quotaOf(dir), n.explained("/node")) })
		if text := n.explained("/explain?namespace=default&pod=web"); kept[uid] != strings.Contains(text,
			"default/"+uid+" may use 0.10 CPU, for default/web: ThrottleKept") {
			t.Errorf("%s stays throttled: %v; explained: %s", uid, kept[uid], text)
		}
	}
	for outcome, notice := range map[string]string{"helped": " ThrottleKept ", "undone": " ThrottleUndone "} {
		events := 0.0
		within(t, "an event for each trial that is "+outcome, func() bool { // the agent sends them after it counts
			events = 0
			for _, uid := range []string{"guilty", "other-0"} {
				if n.notified(uid + notice) {
					events++
				}
			}
			return events == outcomes[outcome]
		}, func() string { return fmt.Sprintf("%v events, %v trials", events, outcomes[outcome]) })
	}
	t.Logf("%v; %v", outcomes, kept)
	r.set(func(p *model.Policy) { p.Protect.Interference = false })
	n.expect(n.job, model.Quota, model.Unlimited)
	return kept, outcomes
}
