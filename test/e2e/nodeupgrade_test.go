package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/pages"
)

// bothVersions is a policy, for the test's node, that the version before and this one read in the same way.
const bothVersions = `policy={"mode": "Enforce", "priority": -1000, ` + allowAll + `,
	"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": %q}},
	"cpu": {"method": "Static", "ratio": "50%%"}, "memory": {"method": "Static", "ratio": "30%%"},
	"protect": {"burst": true, "memory": true, "interference": true, "eviction": {}}}`

// upgradePage is the page whose commands are run.
const upgradePage = "docs/upgrade.md"

// stateDir is where agents keep what outlives a reboot.
const stateDir = "/var/lib/waterline"

// TestNodeUpgrade installs the version before on a real node, upgrades it by the commands of docs/upgrade.md, goes
// back by those of the same page, and uninstalls. Then it upgrades once more, by the deletion of the node's agent,
// and uninstalls. While agents are replaced, the settings of pods keep their values, and the Node its offer, which is
// not checked on the emulated node. Each version goes on with the undo record that the other left, and this version
// with the state of the version before. In the end every file of pods and classes is as it was before, and nothing is
// left. The emulated node does only the first part: an installation takes minutes there.
func TestNodeUpgrade(t *testing.T) {
	n := bedNode(t)
	if *on != "vm" { // there the guest had them at its start
		for _, image := range previousImages() {
			if err := bed.Import(t.Context(), image); err != nil {
				t.Fatal(err)
			}
		}
	}
	blocks, err := pages.RunBy("../../"+upgradePage, "TestNodeUpgrade")
	if err != nil || len(blocks) != 3 {
		t.Fatalf("%s has %d blocks of this test: %v", upgradePage, len(blocks), err)
	}
	u := &upgraded{node: n, blocks: blocks}
	u.clear()
	t.Cleanup(u.clear)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agent's log:\n%s", u.log())
			out, _ := tryKubectl("get", "pods,nodereports,colocationpolicies", "-A", "-o", "wide")
			t.Log(out)
		}
		helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--ignore-not-found", "--wait")
		kubectl(t, strings.Fields(applyDefinitions+"../../deploy/chart/crds")...) // which all other tests expect
	})

	u.a = n.run("a", "", "requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 1, memory: 32Mi}", false)
	n.run("c", "", "requests: {cpu: 1, memory: 16Mi}, limits: {cpu: 1, memory: 16Mi}", false)
	// No scheduler would bind a batch pod to a node that sells nothing.
	apply(t, strings.Replace(n.batch("b", false, 500, 64<<20), "nodeSelector: {kubernetes.io/hostname: "+n.name+"}",
		"nodeName: "+n.name, 1))
	kubectl(t, "wait", "--for=condition=Ready", "pod/b", ready)
	dirs := []string{n.layout.Root, n.layout.Class(model.Burstable), n.layout.Class(model.BestEffort)}
	for _, name := range []string{"a", "b", "c"} {
		container, _ := n.container(name)
		dirs = append(dirs, n.dir(name), container)
	}
	before := n.files(dirs)

	for _, back := range []bool{true, false} {
		if !back && !bothNodes() {
			break
		}
		t.Log("the version before")
		kubectl(t, "delete", "crd", "colocationpolicies.waterline.io", "nodereports.waterline.io", "workerpools.waterline.io",
			"--ignore-not-found")
		if _, err := tryApply(`{apiVersion: v1, kind: Namespace, metadata: {name: waterline-system, ` +
			`labels: {pod-security.kubernetes.io/enforce: privileged}}}`); err != nil {
			t.Fatal(err)
		}
		helm(t, "install", "waterline", previous("chart"), "--namespace", "waterline-system",
			"--set-json", fmt.Sprintf(bothVersions, n.name),
			"--set-json", `agent.nodeSelector={"kubernetes.io/hostname":"`+n.name+`"}`, // whose NodeReport is the only one
			"--set", "manager.replicas=1", "--wait", "--timeout", "4m")
		kubectl(t, "annotate", "pod", "a", "waterline.io/cpu-share=512", "waterline.io/cpu-quota=unlimited")
		kubectl(t, "annotate", "pod", "c", "waterline.io/cpu-manager=share")
		u.works("previous")

		// Exit code 1: some rounds are decided differently. With 2, none could be read.
		u.commands("waterline replay " + u.journal() + " || [ $? = 1 ]")

		t.Log("this version")
		u.replaced("dev", func() { u.upgrade(back) })
		out, err := program("waterline", "replay", u.journal(), "-o", "json", "--details=1")
		var replayed struct{ Journals []struct{ Unusable []string } }
		if json.NewDecoder(strings.NewReader(out)).Decode(&replayed) != nil || len(replayed.Journals) != 1 ||
			len(replayed.Journals[0].Unusable) > 1 { // the agent may be writing the last line
			t.Errorf("replaying the journal of both versions: %v: %.2000s", err, out)
		}
		if back {
			t.Log("the version before again")
			u.replaced("previous", func() { u.commands(u.blocks[2].Commands()) })
		}

		t.Log(helm(t, "uninstall", "waterline", "--namespace", "waterline-system", "--wait", "--timeout", "4m"))
		n.restored(dirs, before)
		n.sold(false, "the node sells nothing", func(is int64) bool { return is == 0 })
		eventually(t, "the agent's directories are empty", func() (bool, string) {
			left := u.left()
			return len(left) == 0, fmt.Sprint(left)
		})
		want := append(keptByHelm(), "nodereport.waterline.io/"+n.name) // of a kind that Helm keeps
		eventually(t, "no other object is left", func() (bool, string) {
			is := (&managed{t: t}).everything()
			return slices.Equal(is, want), fmt.Sprint(is)
		})
		if out := kubectl(t, "get", "node", n.name, "-o", "yaml"); strings.Contains(out, "waterline.io/") {
			t.Errorf("the Node still has something of Waterline:\n%s", out)
		}
		kubectl(t, "annotate", "pod", "a", "waterline.io/cpu-share-", "waterline.io/cpu-quota-")
		kubectl(t, "annotate", "pod", "c", "waterline.io/cpu-manager-")
	}
	for _, name := range []string{"a", "b", "c"} {
		if s := object[corev1.Pod](t, "pod", name).Status.ContainerStatuses; len(s) != 1 || s[0].RestartCount != 0 {
			t.Errorf("pod %s was restarted: %+v", name, s)
		}
	}
}

// upgraded is a node whose agent is replaced by one of another version.
type upgraded struct {
	*node
	a      string // cgroup of pod a
	blocks []pages.Block
}

// commands runs commands of the page.
func (u *upgraded) commands(script string) {
	u.t.Helper()
	p := &page{t: u.t, env: []string{"NODE=" + u.name}}
	p.script.WriteString(script)
	u.t.Log(strings.Join(p.run(), "\n"))
}

// upgrade runs the commands of an upgrade, on all nodes at once or on the test's node first.
func (u *upgraded) upgrade(all bool) {
	u.t.Helper()
	main, err := pages.RunBy("../../"+upgradePage, "TestAPIUpgrade")
	if err != nil || len(main) == 0 {
		u.t.Fatalf("%s has no upgrade: %v", upgradePage, err)
	}
	script := main[0].Commands()
	if all {
		u.commands(script)
		return
	}
	const whole = "helm upgrade waterline deploy/chart --namespace waterline-system --reset-values --values values.yaml\n"
	if strings.Count(script, whole) != 1 {
		u.t.Fatalf("%s does not have the command %q once:\n%s", upgradePage, whole, script)
	}
	strategy := func() string {
		return kubectl(u.t, "get", "daemonset", "waterline-agent", "-n", "waterline-system", "-o",
			"jsonpath={.spec.updateStrategy.type}")
	}
	u.commands(strings.Replace(script, whole, u.blocks[0].Commands(), 1))
	if is := strategy(); is != "OnDelete" {
		u.t.Errorf("agents are replaced by the strategy %s", is)
	}
	u.works("dev")
	u.commands(u.blocks[1].Commands())
	if is := strategy(); is != "RollingUpdate" {
		u.t.Errorf("at last, agents are replaced by the strategy %s", is)
	}
}

// clear removes what agents left in their directories.
func (u *upgraded) clear() {
	if out, err := u.machine.run(append([]string{"rm", "-rf"}, u.left()...)...); err != nil {
		u.t.Error(err, out)
	}
}

// left returns the files in the agent's directories.
func (u *upgraded) left() []string {
	const script = `for dir; do [ ! -d "$dir" ] || find "$dir" -mindepth 1 -maxdepth 1; done`
	out, err := u.machine.run("sh", "-c", script, "-", u.runDir(), stateDir)
	if err != nil {
		u.t.Error(err, out)
	}
	return strings.Fields(out)
}

// journal copies the agent's journal, and returns the directory of the copy.
func (u *upgraded) journal() string {
	u.t.Helper()
	dir := u.t.TempDir()
	for _, file := range u.left() {
		if !slices.Contains(journal.Files(), filepath.Base(file)) {
			continue
		}
		content, err := u.readFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), content, 0o600)
		}
		if err != nil {
			u.t.Fatal(err)
		}
	}
	return dir
}

// log returns what the agent logged.
func (u *upgraded) log() string {
	out, _ := tryKubectl("logs", "-n", "waterline-system", "-l", "app.kubernetes.io/name=waterline-agent", "--tail=200")
	return out
}

// works waits until the settings of all pods are right, by the agent of a version.
func (u *upgraded) works(version string) {
	u.t.Helper()
	eventually(u.t, "a ready agent of the version "+version, func() (bool, string) {
		agent := u.agent()
		image, status := agent.Spec.Containers[0].Image, agent.Status.ContainerStatuses
		return image == "waterline/agent:"+version && agent.DeletionTimestamp == nil && len(status) == 1 && status[0].Ready,
			fmt.Sprintf("%s %+v", image, status)
	})
	u.expect(u.t, u.a, model.Shares, 512)
	u.expect(u.t, u.a, model.Quota, model.Unlimited)
	u.sold(false, "the node sells", func(is int64) bool { return is > 0 })
	u.cpuCondition("c", corev1.ConditionTrue, model.CPUsShare)
	rounds := func() int {
		content, err := u.readFile(filepath.Join(u.runDir(), journal.Files()[0]))
		if err != nil {
			u.t.Fatal(err)
		}
		return bytes.Count(content, []byte("\n"))
	}
	before := rounds()
	eventually(u.t, "the agent decides five more rounds", func() (bool, string) {
		now := rounds()
		return now >= before+5, fmt.Sprintf("%d after %d", now, before)
	})
}

// replaced lets an action replace the agents by those of a version. Meanwhile no setting of a pod changes, and the Node
// keeps its offer.
func (u *upgraded) replaced(version string, do func()) {
	t := u.t
	t.Helper()
	container, _ := u.container("a")
	own, _ := u.container("c")
	var files []string
	for _, dir := range []string{u.a, container} {
		files = append(files, u.path(dir, model.Shares), u.path(dir, model.Quota))
	}
	files = append(files, u.path(own, model.Cpuset))
	was := map[string]string{}
	read := func(file string) string {
		content, err := u.readFile(file)
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(content))
	}
	for _, file := range files {
		was[file] = read(file)
	}
	stop, done := make(chan struct{}), make(chan map[string]string)
	go func() {
		foreign := map[string]string{}
		defer func() { done <- foreign }()
		for {
			for _, file := range files {
				if is := read(file); is != was[file] {
					foreign[file] = is
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	nodes := newUser(t, bed.Kubeconfig()).record(t, "/api/v1/nodes")
	func() {
		defer close(stop) // also where the test ends
		do()
		u.works(version)
	}()
	foreign := <-done
	for _, file := range slices.Sorted(maps.Keys(foreign)) {
		t.Errorf("while the agent was replaced, %s was %s for a moment, not %s", file, foreign[file], was[file])
	}
	offer := corev1.ResourceName(v1alpha1.SlackResource(string(model.TierBatch), false, false))
	for _, change := range nodes() {
		var is corev1.Node
		if err := json.Unmarshal(change.object, &is); err != nil {
			t.Fatal(err)
		}
		// The emulated CPUs can be so busy with the replacement that there is nothing to sell.
		if amount := is.Status.Allocatable[offer]; *on != "vm" && is.Name == u.name && amount.Value() <= 0 {
			t.Errorf("while the agent was replaced, the Node had the offer %s", amount.String())
		}
	}
	for _, file := range u.left() {
		// What the version before makes of a state that it cannot read is that version's matter: it decides anew.
		if older := version == "previous" && filepath.Base(file) == "state.damaged"; !older &&
			(strings.HasSuffix(file, ".damaged") || strings.Contains(filepath.Base(file), ".v")) {
			t.Errorf("the version %s set %s aside; it logs:\n%s", version, file, u.log())
		}
	}
	if log := u.log(); strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("the agent of the version %s logs an error:\n%s", version, log)
	}
}
