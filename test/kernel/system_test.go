package kernel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/model"
)

// service starts a process of the node's own that runs a script: like a kubelet without a unit, it has that name,
// belongs to root and is in a group outside of kubepods.
func (n *suppressNode) service(script string) (cmd *exec.Cmd, group string) {
	n.t.Helper()
	group = filepath.Dir(n.layout.Root) + "/own"
	n.group(group)
	n.count(group)
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		n.t.Fatal(err)
	}
	program := filepath.Join(n.t.TempDir(), "kubelet")
	if err := os.WriteFile(program, shell, 0o700); err != nil {
		n.t.Fatal(err)
	}
	cmd = n.runIn(group, program, "-c", script)
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	return cmd, group
}

// TestSystemOnHarm lets batch have the whole machine beside a service of the node, then gives the service so little
// weight that it waits: batch makes room, and it is said for whom.
func TestSystemOnHarm(t *testing.T) {
	liveKernel(t, "the waits of emulated CPUs follow other programs")
	n := newSuppressNode(t)
	n.proc = ""
	kubelet, group := n.service("while :; do :; done")
	n.set(group, model.Shares, 64*model.SharesPerCPU)
	r := n.agentBy(model.SuppressOnHarm)
	for range runtime.NumCPU() {
		n.load(n.job)
	}
	var harm model.Harm
	look := func() bool {
		found := false
		_ = r.agent.View(t.Context(), func(v *agent.View) {
			if found = v.Plan.Harm != nil; found {
				harm = *v.Plan.Harm
			}
		})
		return found
	}
	unlimited := func() bool { return n.raw(n.job, model.Quota) == model.Unlimited }
	n.until("batch may use the whole machine, and the service is seen", func() bool {
		seen := false
		_ = r.agent.View(t.Context(), func(v *agent.View) {
			for _, p := range v.State.Contention.Pods {
				seen = seen || p.UID == model.SystemKubelet && p.Tasks && p.Ran > 0
			}
		})
		return seen && unlimited()
	})
	n.set(n.layout.Root, model.Shares, 64*model.SharesPerCPU)
	n.set(n.layout.Class(model.BestEffort), model.Shares, 40_000)
	n.set(group, model.Shares, model.MinShares)
	n.until("batch is pushed back for the service", func() bool {
		return look() && !unlimited() && harm.Worst.UID == model.SystemKubelet
	})
	said := func() bool {
		for _, why := range harm.Starved {
			if why.Code == model.SystemHarmed && why.Text == "kubelet" && strings.Contains(why.Fix, "batch") {
				return true
			}
		}
		return false
	}
	n.until("it is said for whom", func() bool { return look() && said() })
	end(kubelet)
	n.until("the service is gone, and batch has the whole machine again", unlimited)
}
