package e2e_test

import (
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/pages"
)

// cliPage is the page whose commands are run.
const cliPage = "docs/cli.md"

// TestNodeRestore runs the commands of docs/cli.md for a node without a shell: explanations in the agent's pod, and
// waterline doctor in a debugging pod. Then it removes Waterline. The values stay until waterline restore, as on that
// page, restores them from the record.
func TestNodeRestore(t *testing.T) {
	oneNode(t, "level 3 restores the files of cgroup v2")
	blocks, err := pages.RunBy("../../"+cliPage, t.Name())
	if err != nil || len(blocks) != 3 {
		t.Fatalf("%s has %d blocks of this test: %v", cliPage, len(blocks), err)
	}
	n := install(t, "--set", "profile=cpu-share-syncer")
	a := n.run("a", `iqiyi.com/cpu-share: "512"`, "requests: {cpu: 100m}, limits: {cpu: 200m}", false)
	n.expect(t, a, model.Shares, 512)
	n.expect(t, a, model.Quota, model.Unlimited) // by the profile
	container, _ := n.container("a")
	n.expect(t, container, model.Quota, model.Unlimited)
	all := n.cpus(container)
	n.cpuPod("alone", "exclusive", "1")
	alone, _ := n.container("alone")
	n.runsOn("alone", n.own("alone", model.CPUsExclusive))
	n.runsOn("a", all.Minus(n.cpus(alone)))

	says := func(block int, words ...string) {
		t.Helper()
		p := &page{t: t, env: []string{"NODE=" + n.name, "POD=a", "IMAGE=waterline/agent:dev"}}
		p.script.WriteString(blocks[block].Commands())
		out := strings.Join(p.run(), "")
		t.Log(out)
		for _, want := range words {
			if !strings.Contains(out, want) {
				t.Errorf("the commands do not say %q", want)
			}
		}
	}
	says(0, "node  policy Enforce", "pod default/a  Burstable", "default/alone/c")
	says(1, "an agent works on /host/run/waterline", "driver cgroupfs", "the container runtime serves NRI")

	// Uninstalling also deletes the policy, and an agent that still runs restores the files then.
	kubectl(t, "delete", "daemonset", "-n", "waterline-system", "waterline-agent")
	eventually(t, "the agent is gone", func() (bool, string) {
		out := kubectl(t, "get", "pods", "-n", "waterline-system", "-o", "name")
		return !strings.Contains(out, "waterline-agent"), out
	})
	if !n.is(a, model.Shares, 512) {
		t.Errorf("without the agent, the weight is %d, want the last one", n.get(a, model.Shares))
	}
	helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--wait")
	says(2)
	for _, want := range []wanted{{a, model.Shares, 102}, {a, model.Quota, 20_000}, {container, model.Quota, 20_000}} {
		if !n.is(want.dir, want.knob, want.value) {
			t.Errorf("restored, %s %s is %d, want %d", want.dir, want.knob, n.get(want.dir, want.knob), want.value)
		}
	}
	for _, dir := range []string{container, alone} {
		if is := n.cpus(dir); is != all {
			t.Errorf("restored, %s runs on %s, want %s", dir, is, all)
		}
	}
}
