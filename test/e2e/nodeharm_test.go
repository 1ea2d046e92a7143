package e2e_test

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// TestNodeHarm lets a batch pod fill a real node beside an online pod that hardly waits, and then gives the class of
// the batch pod a weight with which the online pod waits, as another program might: no pod can request that. The chart
// has its defaults: the agent finds the tasks of pods in containers through the host's procfs.
func TestNodeHarm(t *testing.T) {
	oneNode(t, "level 3 pushes batch back on cgroup v2")
	n := install(t, "--set-json", `policy={"mode": "Enforce", "priority": -1000, "cpu": {}}`)
	const burn = "for i in 1 2 3 4 5 6 7 8; do sh -c 'while :; do :; done' & done; wait"
	n.loaded("online", "", "while :; do :; done", "requests: {cpu: 200m}")
	n.loaded("batch", "BE", burn, "")
	job := n.dir("batch")
	quota := func() int64 { return n.get(job, model.Quota) }
	report := func() string {
		return object[v1alpha1.NodeReport](t, "nodereport", n.name).Status.HarmSignal
	}
	if *on == "vm" {
		// On emulated CPUs online pods wait for the node's own daemons all the time, so that batch is never free. How batch
		// is pushed back is tested there by TestSuppressOnHarm and TestCPUOnHarm, in machines that run nothing else.
		eventually(t, "the online pod's waiting is known", func() (bool, string) {
			signal := report()
			return signal == string(model.HarmByDelay), signal
		})
		return
	}
	eventually(t, "the online pod's waiting is known, and batch is not limited", func() (bool, string) {
		q, signal := quota(), report()
		return q == model.Unlimited && signal == string(model.HarmByDelay), fmt.Sprintf("%d, %q", q, signal)
	})
	began := time.Now()
	class := path.Dir(job)
	weigh := func(shares int64) {
		if err := n.writeFile(n.path(class, model.Shares), []byte(n.text(model.Shares, shares))); err != nil {
			t.Error(err)
		}
	}
	defer weigh(model.MinShares)
	eventually(t, "the online pod waits, and batch is limited", func() (bool, string) {
		weigh(2048) // each time: once a minute, the kubelet writes its own value
		q := quota()
		return q != model.Unlimited, fmt.Sprint(q)
	})
	t.Logf("batch is pushed back %.2f s after its weight was changed", time.Since(began).Seconds())
	if out, err := program("waterline", "explain", "node", n.name, "--kubeconfig", bed.Kubeconfig()); err != nil ||
		!strings.Contains(out, "by OnHarm") {
		t.Errorf("explain: %v:\n%s", err, out)
	}
	limited := quota()
	weigh(model.MinShares)
	eventually(t, "the online pod waits no more, and batch is not limited", func() (bool, string) {
		q := quota()
		return q == model.Unlimited || q > 2*limited, fmt.Sprintf("%d, was %d", q, limited)
	})
}
