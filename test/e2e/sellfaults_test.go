package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Faults around a node that sells. They are part of TestNodeSell.

// signal is a bash script that sends a signal to the agent's own process on a node. $0 is the cgroup of its pod.
const signal = `for file in "$0"/*/cgroup.procs; do
	while read -r pid; do
		if [ "$(cat /proc/$pid/comm)" = waterline-agent ]; then kill -%s $pid; fi
	done <$file
done`

// testLost removes the agent from the node until the manager withdraws the offer, and then the Node from the API. A
// bound batch pod must run through all of it.
func (n *node) testLost() {
	const cpu, memory = 100, 64 << 20
	if soak { // else only the bound amount would be withdrawn, without a wait
		n.sold(false, "the node offers something", func(is int64) bool { return is >= 2*cpu })
	}
	// The pod skips the scheduler, so that it need not wait for an offer.
	apply(n.t, strings.Replace(n.batch("kept", false, cpu, memory), "spec:\n", "spec:\n  nodeName: "+n.name+"\n", 1))
	kubectl(n.t, "wait", "--for=condition=Ready", "pod/kept", ready)
	lives := n.living("kept")
	n.sold(false, "the bound amount is sold", func(is int64) bool { return is >= cpu })

	n.t.Log("the agent is killed and kept from coming back")
	agent := n.agent()
	n.signal(&agent, "KILL")
	elsewhere := fmt.Sprintf(`[{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", `+
		`"values": [%q]}]}]`, n.name)
	n.agents(`{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": ` + elsewhere +
		`}}}`)
	kubectl(n.t, "delete", "pod", agent.Name, "-n", "waterline-system", "--grace-period=0", "--force",
		"--ignore-not-found")
	gone := time.Now()
	n.expectWithdrawn("AgentNotThere", func() time.Time { return gone })
	lives("the offer is withdrawn")

	n.t.Log("the agent is back")
	n.agents("null")
	back := n.agent()
	eventually(n.t, "the offer is published again", func() (bool, string) {
		is := n.published(false, model.TierBatch, false)
		return is >= cpu, fmt.Sprint(is)
	})
	if back.UID == agent.UID {
		n.t.Error("it is the same agent")
	}
	lives("the offer is published again")
	if soak {
		n.testAgentStopped(lives)
	}
	n.testNodeAnew(cpu, lives)
	lives("the Node was replaced")
	kubectl(n.t, "delete", "pod", "kept", "--grace-period=0", "--force", "--wait")
}

// testAgentStopped stops the agent's process, again after each restart by the kubelet. The agent then exists and is not
// ready. A restarted agent may answer its probe once before it is stopped. This counts: it has measured its node and
// published its offer.
func (n *node) testAgentStopped(lives func(string)) {
	n.t.Log("the agent stands still")
	stop := make(chan struct{})
	var stopper sync.WaitGroup
	began := time.Now()
	stopper.Go(func() {
		for {
			agent := n.agent()
			n.signal(&agent, "STOP")
			select {
			case <-stop:
				n.signal(&agent, "CONT")
				return
			case <-time.After(time.Second):
			}
		}
	})
	n.expectWithdrawn("AgentNotReady", func() time.Time {
		agent := n.agent()
		for _, c := range agent.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
				return c.LastTransitionTime.Time
			}
		}
		n.t.Error("the agent is ready")
		return began
	})
	n.t.Logf("in all, this took %s", time.Since(began).Round(time.Second))
	lives("the agent stands still")
	close(stop)
	stopper.Wait()
	n.sold(false, "the offer is published again", func(is int64) bool { return is > 0 })
}

// expectWithdrawn waits until the manager has withdrawn the offer for a reason, and the Node has no offer. It notes how
// long that took from the cause, whose time is queried afterwards.
func (n *node) expectWithdrawn(reason string, began func() time.Time) {
	n.t.Helper()
	eventually(n.t, "the manager withdraws the offer", func() (bool, string) {
		why := n.withdrawn()
		return why == reason, why
	})
	withdrawn, since := time.Now(), began()
	n.sold(false, "the Node has no offer", func(is int64) bool { return is == 0 })
	took := time.Since(since)
	n.t.Logf("the offer was withdrawn after %s, and removed from the Node after %s",
		withdrawn.Sub(since).Round(time.Second),
		took.Round(time.Second))
	n.figure(withdrawnAfter, took.Seconds())
}

// What the parts of TestNodeSell measure.
const (
	withdrawnAfter   = "withdrawn_after_seconds"
	fallsAfterOutage = "falls_after_outage_seconds"
	beyondPerFall    = "bound_beyond_per_fall"
	refusedPerFall   = "refused_per_fall"
)

// withdrawn returns the reason for which the manager has withdrawn the offer, "" if it has not.
func (n *node) withdrawn() string {
	n.t.Helper()
	out, err := tryKubectl("get", "nodereport", n.name, "-o",
		`jsonpath={range .status.conditions[?(@.type=="`+v1alpha1.ConditionWithdrawn+`")]}{.status} {.reason}{end}`)
	reason, is := strings.CutPrefix(out, "True ")
	if err != nil || !is {
		return "" // a report is deleted with its Node, and made again with the next
	}
	return reason
}

// signal sends a signal to the agent's own process.
func (n *node) signal(agent *corev1.Pod, name string) {
	if out, err := n.machine.run("bash", "-c", fmt.Sprintf(signal, name), n.Path+"/"+n.dirOf(agent)); err != nil {
		n.t.Logf("the signal %s: %v: %s", name, err, out) // it may have ended meanwhile
	}
}

// agents sets where agents may run, by the affinity of their pods.
func (n *node) agents(affinity string) {
	n.t.Helper()
	kubectl(n.t, "patch", "daemonset", "waterline-agent", "-n", "waterline-system", "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"affinity":`+affinity+`}}}}`)
}

// living returns a check that pods run unchanged: none was replaced, and none of their containers restarted.
func (n *node) living(names ...string) func(when string) {
	n.t.Helper()
	all := func() map[string]corev1.Pod {
		n.t.Helper()
		pods := map[string]corev1.Pod{}
		for _, name := range names {
			pods[name] = object[corev1.Pod](n.t, "pod", name)
		}
		return pods
	}
	before := all()
	return func(when string) {
		n.t.Helper()
		for name, now := range all() {
			s := now.Status
			if now.UID != before[name].UID || s.Phase != corev1.PodRunning || len(s.ContainerStatuses) == 0 ||
				s.ContainerStatuses[0].RestartCount > 0 {
				n.t.Fatalf("%s: pod %s is %s: %s %s", when, name, s.Phase, s.Reason, s.Message)
			}
		}
	}
}

// testNodeAnew deletes the Node. Its kubelet makes it again when it restarts, without the Node's previous resources.
func (n *node) testNodeAnew(bound int64, lives func(string)) {
	n.t.Log("the Node is deleted and made again")
	old := object[corev1.Node](n.t, "node", n.name)
	kubectl(n.t, "delete", "node", n.name)
	deleted := time.Now()
	n.mustRestart("kubelet")
	var uid string
	eventually(n.t, "another Node", func() (bool, string) {
		out, err := tryKubectl("get", "node", n.name, "-o", "jsonpath={.metadata.uid}")
		uid = out
		return err == nil && uid != "" && uid != string(old.UID), out
	})
	made := time.Now()
	n.sold(false, "the bound amount is sold again", func(is int64) bool { return is >= bound })
	sold := time.Now()
	eventually(n.t, "a report of this Node", func() (bool, string) {
		out, err := tryKubectl("get", "nodereport", n.name, "-o",
			"jsonpath={.metadata.ownerReferences[*].uid} {.status.policy} {.status.selling} {.status.cpu.bound.batch}")
		return err == nil && out == fmt.Sprintf("%s test Open %dm", uid, bound), out
	})
	n.t.Logf("after %s there was a Node, %s later all was sold again, and %s later the Node had its own report",
		made.Sub(deleted).Round(time.Second), sold.Sub(made).Round(100*time.Millisecond), time.Since(made).Round(time.Second))
	n.ready()
	lives("the Node is made again")
}

// fallAway starts CPU usage of an online pod while the API server is down. The cgroups stay right and the agent
// measures the usage. As soon as the API server is back, the offer on the Node falls to the bound amount.
func (n *node) fallAway(koordinator bool, bound int64) {
	// Other load on this machine must not matter, because the offer would be gone before.
	n.quiet()
	n.policy(strings.ReplaceAll(selling("Enforce", "Realtime"), `"waterline": "100%"`, `"waterline": "30%"`))
	apply(n.t, strings.Replace(n.manifest("online", `waterline.io/cpu-share: "2048"`, "requests: {cpu: 50m}", true),
		"n=$(nproc);", "trap go=1 USR1; until [ $go ]; do sleep 0.2; done; n=$(nproc);", 1))
	kubectl(n.t, "wait", "--for=condition=Ready", "pod/online", ready)
	online, id := n.container("online")
	online = filepath.Dir(online)
	n.expect(n.t, online, model.Shares, 2048)
	batch := n.dir("batch")
	weight := n.get(batch, model.Shares)
	agent := n.agent()
	lives := n.living("online", "batch")
	n.sold(koordinator, "more than the bound amount", func(sold int64) bool { return sold > bound })

	writes := 10 // with pauses of five seconds: a minute
	if soak {
		writes = 120
	}
	n.t.Log("the API server is down")
	control(n.t, "kill", "apiserver")
	if out, err := n.ctr("task", "kill", "-s", "SIGUSR1", id); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	began := time.Now()
	eventually(n.t, "the agent measures it", func() (bool, string) {
		shown := n.metrics(&agent)
		used, offer := shown.of(n.t, v1alpha1.MetricCPUUsed, `class="LS",window="1s"`),
			shown.of(n.t, v1alpha1.MetricCPUOffer, `tier="batch"`)
		return used > 0.3 && 1000*offer <= float64(bound), fmt.Sprintf("%v used, %v offered", used, offer)
	})
	n.t.Logf("%s after the pod began, the agent offers no more than the bound amount",
		time.Since(began).Round(100*time.Millisecond))
	for range writes {
		time.Sleep(5 * time.Second)
		n.set(n.t, online, model.Shares, 77)
		n.set(n.t, batch, model.Shares, 77)
		n.expect(n.t, online, model.Shares, 2048)
		eventually(n.t, "the weight of the batch pod", func() (bool, string) {
			is := n.get(batch, model.Shares)
			return is == weight, fmt.Sprint(is)
		})
	}
	startAPI(n.t)
	back := time.Now()
	n.sold(koordinator, "only the bound amount", func(sold int64) bool { return sold == bound })
	took := time.Since(back)
	n.t.Logf("%s after the API server was back, the Node had no more than the bound amount",
		took.Round(100*time.Millisecond))
	n.figure(fallsAfterOutage, took.Seconds())
	if why := n.withdrawn(); why != "" {
		n.t.Errorf("the manager withdrew the offer: %s", why)
	}
	lives("the API server is back")
}

// quiet shows the agent, until the test ends, a machine on which only pods use CPU, from the test's own files instead
// of /proc. It needs the node of this machine.
func (n *node) quiet() {
	n.t.Helper()
	dir := filepath.Join(bed.RunWaterline(), "proc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	for _, name := range []string{"meminfo", "zoneinfo"} {
		content, err := os.ReadFile("/proc/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o644)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
	stat, err := os.Create(filepath.Join(dir, "stat"))
	if err != nil {
		n.t.Fatal(err)
	}
	// Idle time passes far faster than real time, so a delay of this write does not matter. The length of the text never
	// changes, so a reader sees the old or the new text.
	write := func(idle int) {
		content := fmt.Appendf(nil, "cpu  0 0 0 %012d 0 0 0 0 0 0\n", idle)
		for i := range runtime.NumCPU() {
			content = fmt.Appendf(content, "cpu%d\n", i)
		}
		if _, err := stat.WriteAt(append(content, "procs_running 1\n"...), 0); err != nil {
			n.t.Error(err)
		}
	}
	write(0)
	ctx, cancel := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	writer.Go(func() {
		for idle := 0; ctx.Err() == nil; idle += 100_000 {
			write(idle)
			time.Sleep(50 * time.Millisecond)
		}
	})
	n.t.Cleanup(func() {
		cancel()
		writer.Wait()
		_ = stat.Close()
	})
	helm(n.t, "upgrade", "waterline", "../../deploy/chart", "--namespace", "waterline-system", "--reuse-values",
		"--set", "agent.extraArgs={--proc-root=/run/waterline/proc}")
	kubectl(n.t, "rollout", "status", "daemonset/waterline-agent", "-n", "waterline-system", ready)
}
