package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// previous is the directory of the version before: its programs and its chart. make bed builds it.
func previous(name string) string { return filepath.Join(built, "bed/previous", name) }

// previousImages returns the archives of that version's images.
func previousImages() []string {
	return []string{previous("images/agent-previous.tar"), previous("images/manager-previous.tar")}
}

// As the documentation does it: a later installation by Helm, which has the same name, finds no conflict.
const applyDefinitions = "apply --server-side --force-conflicts --field-manager=helm -f "

// TestAPIUpgrade installs the version before, upgrades it by the commands of docs/upgrade.md as they are written, and
// goes back. Values that were set are kept, the definitions have their new fields, and policies stay what they were.
// Priority classes have their new values, and pods the priority that they had.
func TestAPIUpgrade(t *testing.T) {
	t.Cleanup(func() {
		kubectl(t, strings.Fields(applyDefinitions+"../../deploy/chart/crds")...)
		helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--ignore-not-found", "--wait")
	})
	definition := func() string { return kubectl(t, "get", "crd", "nodereports.waterline.io", "-o", "json") }
	release := func(verb string, values ...string) {
		t.Helper()
		helm(t, append([]string{verb, "waterline", previous("chart"), "--namespace", "waterline-system"}, values...)...)
	}
	kubectl(t, strings.Fields(applyDefinitions+previous("chart/crds"))...)
	// Once the version before has them too, only the way there and back is tested.
	const newField, newFlag = `"learning"`, "--metrics=lean"
	if strings.Contains(definition(), newField) {
		t.Logf("the version before has the field %s too", newField)
	}
	if _, err := tryApply(`{apiVersion: v1, kind: Namespace, metadata: {name: waterline-system, ` +
		`labels: {pod-security.kubernetes.io/enforce: privileged}}}`); err != nil {
		t.Fatal(err)
	}
	release("install", "--set", "policy.mode=Enforce,policy.cpu.waterline=50%,manager.replicas=1")
	own := `{apiVersion: waterline.io/v1alpha1, kind: ColocationPolicy, metadata: {name: own}, ` +
		`spec: {mode: Enforce, priority: 3, nodeSelector: {matchLabels: {pool: web}}, memory: {method: Realtime}}}`
	apply(t, own)
	spec := func(policy string) string {
		return kubectl(t, "get", "colocationpolicy", policy, "-o", "jsonpath={.spec}")
	}
	agent := func() string {
		return kubectl(t, "get", "daemonset", "waterline-agent", "-n", "waterline-system", "-o",
			"jsonpath={.spec.template.spec.containers[0].args}")
	}
	batch := func(pod string) int32 {
		apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: `+pod+`, labels: {waterline.io/qos: BE}}, `+
			`spec: {priorityClassName: waterline-batch, `+
			`nodeSelector: {nowhere: "true"}, containers: [{name: c, image: none}]}}`)
		return *object[corev1.Pod](t, "pod", pod).Spec.Priority
	}
	class := func() schedulingv1.PriorityClass {
		return object[schedulingv1.PriorityClass](t, "priorityclass", v1alpha1.PriorityClassBatch)
	}
	oldPriority := batch("old")
	if oldPriority == v1alpha1.PriorityBatch {
		t.Log("the version before has this priority of batch too")
	}
	before, beforeOwn, beforeAgent := spec("default"), spec("own"), agent()
	// The new definitions add defaults to what is read. They cannot change what was set.
	kept := func(policy, before string) bool {
		t.Helper()
		now := []byte(spec(policy))
		merged, err := jsonpatch.MergePatch(now, []byte(before))
		if err != nil {
			t.Fatal(err)
		}
		return jsonpatch.Equal(merged, now)
	}
	if strings.Contains(beforeAgent, newFlag) {
		t.Logf("the version before has the flag %s too", newFlag)
	}

	p := &page{t: t, env: nil}
	p.add("docs/upgrade.md")
	p.check("cat policies.yaml")
	out := p.run()
	if !strings.Contains(out[0], "nothing has another name now") ||
		!strings.Contains(strings.Join(strings.Fields(out[1]), " "), fmt.Sprintf("default old %d", oldPriority)) ||
		!strings.Contains(out[2], "name: own") {
		t.Errorf("the commands say:\n%s", strings.Join(out, "\n"))
	}
	if !strings.Contains(definition(), newField) {
		t.Error("the definitions were not upgraded")
	}
	if !kept("default", before) || !kept("own", beforeOwn) {
		t.Errorf("the policies were %s and %s, and are %s and %s", before, beforeOwn, spec("default"), spec("own"))
	}
	if !strings.Contains(agent(), newFlag) {
		t.Errorf("the new chart's default is missing: %s", agent())
	}
	if n := kubectl(t, "get", "deployment", "waterline-manager", "-n", "waterline-system", "-o",
		"jsonpath={.spec.replicas}"); n != "1" {
		t.Errorf("the manager has %s replicas, not the value that was set", n)
	}

	upgraded := class()
	if upgraded.Value != v1alpha1.PriorityBatch || batch("new") != v1alpha1.PriorityBatch {
		t.Errorf("the class has the value %d", upgraded.Value)
	}
	kubectl(t, "label", "pod", "old", "changed=true")
	if now := *object[corev1.Pod](t, "pod", "old").Spec.Priority; now != oldPriority {
		t.Errorf("the old pod's priority was %d and is %d", oldPriority, now)
	}
	helm(t, "upgrade", "waterline", "../../deploy/chart", "--namespace", "waterline-system", "--reuse-values")
	if again := class(); again.UID != upgraded.UID || again.Annotations["helm.sh/hook"] != "" ||
		again.Annotations["meta.helm.sh/release-name"] != "waterline" {
		t.Errorf("one more upgrade made the class anew, or it is not the release's: %+v", again.ObjectMeta)
	}

	kubectl(t, "delete", "priorityclass", v1alpha1.PriorityClassBatch, v1alpha1.PriorityClassMid)
	release("upgrade", "--reset-then-reuse-values")
	if value := class().Value; value != oldPriority {
		t.Errorf("after the way back, the class has the value %d, not %d", value, oldPriority)
	}
	if agent() != beforeAgent || !kept("default", before) || !kept("own", beforeOwn) {
		t.Errorf("after the way back, the policies are %s and %s, and the agent has %s, not %s", spec("default"),
			spec("own"), agent(), beforeAgent)
	}
}

// TestAPISkew runs agents and managers of this version and of the version before side by side, both ways: the agent
// follows the policy, keeps weights and sells, and the manager counts it, withdraws its offer when it is lost, and
// lifts that again. In short form, only an old agent is lost.
func TestAPISkew(t *testing.T) {
	const agentName, managerName = "bin/waterline-agent", "bin/waterline-manager"
	this := func(name string) string { return filepath.Join(built, name) }
	for _, c := range []struct{ name, agent, manager, crds string }{
		{"OldAgent", previous(agentName), this(managerName), "../../deploy/chart/crds"},
		{"OldManager", "", previous(managerName), "../../deploy/chart/crds"},
		{"OldDefinitions", "", this(managerName), previous("chart/crds")},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newManaged(t)
			kubectl(t, strings.Fields(applyDefinitions+c.crds)...)
			t.Cleanup(func() { kubectl(t, strings.Fields(applyDefinitions+"../../deploy/chart/crds")...) })
			m.machine(fakeNode, "pool: web")
			f := fakeAt(t, fakeNode)
			f.program = c.agent
			apply(t, `
apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: skew}
spec: {mode: Enforce, priority: 10, nodeSelector: {matchLabels: {pool: web}}, cpu: {method: Static, ratio: 50%}}
`)
			m.program = c.manager
			m.manager()
			a := f.start()
			follows := func() {
				t.Helper()
				eventually(t, "the node enforces the policy", func() (bool, string) {
					s := object[v1alpha1.ColocationPolicy](t, "colocationpolicy", "skew").Status
					ready := meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
					return ready && s.Nodes.Governed == 1 && s.Nodes.Enforcing == 1, fmt.Sprintf("%+v", s)
				})
			}
			follows()
			pod := f.pod("a", `waterline.io/cpu-share: "300"`)
			f.expect(t, pod, model.Shares, 300)
			sells := func() {
				t.Helper()
				eventually(t, "the node sells", func() (bool, string) {
					is := m.amount(fakeNode, ours)
					return is != "" && is != "uneven", is
				})
			}
			sells()
			if c.name != "OldAgent" && !soak { // the rest takes a minute
				return
			}
			m.ready(fakeNode, false)
			a.stop(os.Kill)
			eventually(t, "the offer is withdrawn", func() (bool, string) {
				is := m.withdrawn(fakeNode)
				return is != "" && m.amount(fakeNode, ours) == "", is
			})
			f.start()
			m.ready(fakeNode, true)
			m.expectWithdrawn(fakeNode, "")
			sells()
			follows()
		})
	}
}
