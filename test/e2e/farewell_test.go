package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

// TestNodeFarewell uninstalls Waterline while pods run that it changed. Every file is as it was before the
// installation, and the agent's directories are empty.
func TestNodeFarewell(t *testing.T) {
	var n *node
	t.Run("Before", func(t *testing.T) { n = install(t) }) // to learn where the node's cgroups are
	n.t = t
	a := n.run("a", "", "requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 1, memory: 16Mi}", false)
	n.run("b", "", "requests: {cpu: 200m}", false)
	n.run("c", "", "requests: {cpu: 1, memory: 16Mi}, limits: {cpu: 1, memory: 16Mi}", false)
	files := func() map[string]string {
		all := map[string]string{}
		for _, name := range []string{"a", "b", "c"} {
			container, _ := n.container(name)
			for _, dir := range []string{n.dir(name), container} {
				for _, k := range []model.Knob{model.Shares, model.Quota, model.Burst, model.Cpuset} {
					content, err := n.readFile(n.path(dir, k))
					if k == model.Cpuset && len(strings.TrimSpace(string(content))) == 0 {
						continue // v2: what was written once stays a list, and is all CPUs then
					}
					all[dir+" "+k.String()] = strings.TrimSpace(fmt.Sprintf("%s %v", content, err))
				}
			}
		}
		return all
	}
	before := files()

	n = install(t, "--set-json", `policy.cpu={"method": "Static", "ratio": "50%"}`)
	kubectl(t, "annotate", "pod", "a", "waterline.io/cpu-share=512", "waterline.io/cpu-quota=unlimited")
	kubectl(t, "annotate", "pod", "c", "waterline.io/cpu-manager=share")
	n.expect(t, a, model.Shares, 512)
	n.expect(t, a, model.Quota, model.Unlimited)
	n.sold(false, "the node sells", func(is int64) bool { return is > 0 })
	eventually(t, "pod c has CPUs", func() (bool, string) {
		out := kubectl(t, "get", "pod", "c", "-o", `jsonpath={.status.conditions[?(@.type=="waterline.io/CPUSet")].status}`)
		return out == "True", out
	})

	out := helm(t, "uninstall", "waterline", "--namespace", "waterline-system", "--wait", "--timeout", "4m")
	t.Log(out)
	for k, now := range files() {
		if was, known := before[k]; known && was != now {
			t.Errorf("%s is %q, was %q", k, now, was)
		}
	}
	n.sold(false, "the node sells nothing", func(is int64) bool { return is == 0 })
	eventually(t, "the run directory is empty", func() (bool, string) {
		names, err := n.machine.run("ls", "-A", n.runDir())
		return err == nil && strings.TrimSpace(names) == "", fmt.Sprint(names, err)
	})
}
