package e2e_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// testSystemd causes all writes to weights and quotas that happen on a node with systemd. PID 1 applies the properties
// of its units again when it reloads, which reverts writes to their files. The kubelet writes the QoS class whenever
// pods come and go, and writes 1 into it for a minute after its start.
func (n *node) testSystemd() {
	want := n.reverted()
	for _, c := range n.reverts() {
		n.repaired(c, want)
	}
}

// reverted makes a pod with a weight and without a quota, and returns the files that other writers revert.
func (n *node) reverted() []wanted {
	n.t.Helper()
	const limited = "requests: {cpu: 100m}, limits: {cpu: 300m}"
	a := n.run("a", `waterline.io/cpu-share: "20000", waterline.io/cpu-quota: unlimited`, limited, false)
	container, _ := n.container("a")
	want := []wanted{
		{a, model.Shares, 20000}, {n.layout.Class(model.Burstable), model.Shares, n.classShares()},
		{a, model.Quota, model.Unlimited}, {container, model.Quota, model.Unlimited},
	}
	for _, w := range want {
		n.expect(n.t, w.dir, w.knob, w.value)
	}
	return want
}

// revert is something that makes another writer overwrite files.
type revert struct {
	what string
	do   func()
	over time.Duration
	// The minimum of weights and quotas that another writer must have overwritten, or the test proves nothing. The agent
	// counts them, because a reader may be too slow.
	weights, quotas float64
}

// reverts returns everything on a node with systemd that reverts writes.
func (n *node) reverts() []revert {
	systemctl := func(verb string) func() {
		return func() {
			if out, err := n.machine.(guest).run("systemctl", verb); err != nil {
				n.t.Fatalf("%v: %s", err, out)
			}
		}
	}
	added, afterRestart := 0, 20*time.Second
	if soak {
		afterRestart = 75 * time.Second
	}
	return []revert{
		{"systemctl daemon-reload", systemctl("daemon-reload"), 10 * time.Second, 2, 2},
		{"systemctl daemon-reexec", systemctl("daemon-reexec"), 10 * time.Second, 2, 2},
		// With a weight of its own, it does not bound that of the other pod.
		{"a pod is added", func() {
			added++
			n.run(fmt.Sprintf("added-%d", added), `iqiyi.com/cpu-share: "512"`, "requests: {cpu: 100m}", false)
		}, 20 * time.Second, 1, 0},
		{"the kubelet restarts", func() { n.mustRestart("kubelet") }, afterRestart, 1, 0},
	}
}

// repaired causes overwritten weights and quotas, and watches files for a time. All values are restored. It returns the
// foreign values that it saw.
func (n *node) repaired(c revert, want []wanted) []foreign {
	n.t.Helper()
	weightsBefore, quotasBefore := n.repairs(model.Shares), n.repairs(model.Quota)
	wrong := n.watchWhile(c.over, c.do, want...)
	var weights, quotas float64
	eventually(n.t, fmt.Sprintf("%s: %v weights and %v quotas are overwritten", c.what, c.weights, c.quotas),
		func() (bool, string) {
			weights, quotas = n.repairs(model.Shares)-weightsBefore, n.repairs(model.Quota)-quotasBefore
			return weights >= c.weights && quotas >= c.quotas, fmt.Sprintf("%v and %v", weights, quotas)
		})
	n.t.Logf("%s: %v weights and %v quotas repaired; foreign values seen in pod's weight, class's, pod's quota, "+
		"container's: %v", c.what, weights, quotas, wrong)
	for _, w := range want {
		n.expect(n.t, w.dir, w.knob, w.value)
	}
	return wrong
}

// repairs returns how often the node's agent has repaired such a file.
func (n *node) repairs(k model.Knob) float64 {
	n.t.Helper()
	agent := n.agent()
	metrics := string(n.metrics(&agent))
	for line := range strings.Lines(metrics) {
		if value, found := strings.CutPrefix(line, fmt.Sprintf("%s{file=\"%s\"} ", v1alpha1.MetricRepairs, k)); found {
			count, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				n.t.Fatal(err)
			}
			return count
		}
	}
	return 0 // none yet
}

// testFormulas checks on the kernel which weight each level gets for its shares. Pods and classes get it from the
// kubelet, by the linear formula. Containers get it from their runtime, by the linear formula up to runc 1.3.1 and the
// quadratic one since. The agent changes none of them here. When it restores a pod's weight, it must compute the
// kubelet's again.
func (n *node) testFormulas() {
	apply(n.t, `{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: runc-quadratic}, `+
		`handler: runc-quadratic}`)
	const shares = 512 // of 500m
	for name, c := range map[string]struct {
		runtime   string
		container int64
	}{
		"linear":    {"", cgroup.SharesToWeight(shares)},
		"quadratic": {"runtimeClassName: runc-quadratic", cgroup.ContainerWeight(shares)},
	} {
		apply(n.t, strings.Replace(n.manifest(name, "", "requests: {cpu: 500m}", false), "spec:\n",
			"spec:\n  "+c.runtime+"\n", 1))
		kubectl(n.t, "wait", "--for=condition=Ready", "pod/"+name, ready)
		dir := n.dir(name)
		container, _ := n.container(name)
		weights := func() string { return fmt.Sprint(n.get(dir, model.Shares), n.get(container, model.Shares)) }
		if got, want := weights(), fmt.Sprint(cgroup.SharesToWeight(shares), c.container); got != want {
			n.t.Errorf("%s: the weights of pod and container are %s, want %s", name, got, want)
		}
		before := weights()
		const weight = 1024 // the other pod keeps the CPU that it requests
		kubectl(n.t, "annotate", "pod", name, fmt.Sprint("waterline.io/cpu-share=", weight))
		n.expect(n.t, dir, model.Shares, weight)
		if got := n.get(container, model.Shares); got != c.container {
			n.t.Errorf("%s: the container's weight became %d", name, got)
		}
		kubectl(n.t, "annotate", "pod", name, "waterline.io/cpu-share-")
		n.expect(n.t, dir, model.Shares, shares)
		if got := weights(); got != before {
			n.t.Errorf("%s: after restoring, the weights are %s, and were %s", name, got, before)
		}
	}
}
