package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestAPICoexist installs Waterline on a cluster that another system manages: its manager publishes batch resources
// on every Node, and its pods request them, one of them bound to this node. Waterline observes, sells on one labelled
// node, and is switched off again. Nothing of the other system changes meanwhile: no resource of a Node, no pod, and
// no label that it changes on a pod.
func TestAPICoexist(t *testing.T) {
	m := newManaged(t, "--set-json", `policy={"mode": "Observe", "cpu": {}, "memory": {}}`)
	m.manager()
	m.machine("shared", "team: batch")
	f := fakeAt(t, "shared")
	const cpu, memory = v1alpha1.ResourceKoordinatorBatchCPU, v1alpha1.ResourceKoordinatorBatchMemory
	offer := func(milli string) {
		t.Helper()
		list := fmt.Sprintf(`{"%s": %q, "%s": "16Gi"}`, cpu, milli, memory)
		m.patch(nodes+"shared/status", `{"status": {"capacity": `+list+`, "allocatable": `+list+`}}`)
	}
	stands := func(when, milli string) {
		t.Helper()
		time.Sleep(3 * time.Second) // whatever the agent would write, it had the time
		is, also := m.amount("shared", cpu), m.amount("shared", memory)
		record := object[corev1.Node](t, "node", "shared").Annotations[v1alpha1.AnnotationPublished]
		if is != milli || also != "16Gi" || record != "" {
			t.Errorf("%s: the Node has %q of %s, %q of %s, and the record %q", when, is, cpu, also, memory, record)
		}
	}
	apply(t, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: koord-batch}, value: 5000}`)
	m.namespace("theirs", "", "")
	pod := func(when string) {
		t.Helper()
		const resources = "{kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 1Gi}"
		got, out := m.try("theirs", `metadata: {generateName: p-, labels: {koordinator.sh/qosClass: BE}}, `+
			`spec: {priorityClassName: koord-batch, containers: [{name: c, image: none, `+
			`resources: {requests: `+resources+`, limits: `+resources+`}}]}`)
		if got == nil {
			t.Fatalf("%s: %s", when, out)
		}
		c := got.Spec.Containers[0].Resources
		if got.Spec.PriorityClassName != "koord-batch" || len(c.Requests) != 2 || c.Requests.Name(cpu, "").Value() != 1000 ||
			got.Annotations[v1alpha1.AnnotationBatchResources] != "" {
			t.Errorf("%s: their pod became %s, class %s", when, requestsOf(got), got.Spec.PriorityClassName)
		}
	}
	relabelled := func(label string) error {
		got, out := m.try("theirs", `metadata: {generateName: p-, labels: {`+label+`: BE}}, `+
			`spec: {containers: [{name: c, image: none}]}`)
		if got == nil {
			t.Fatal(out)
		}
		out, err := tryKubectl("label", "pod", "-n", "theirs", got.Name, "--overwrite", label+"=LS")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	offer("8000")
	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: bound, namespace: theirs, labels: {koordinator.sh/qosClass: BE}}
spec:
  nodeName: shared
  priorityClassName: koord-batch
  containers:
  - name: c
    image: none
    resources: {requests: {kubernetes.io/batch-cpu: 100}, limits: {kubernetes.io/batch-cpu: 100}}
`)
	f.start()
	eventually(t, "the node reports", func() (bool, string) {
		out, err := tryKubectl("get", "nodereport", "shared", "-o", "jsonpath={.status.policy}")
		return err == nil && out != "", out
	})
	stands("observing", "8k")
	pod("observing")
	if err := relabelled("koordinator.sh/qosClass"); err != nil {
		t.Errorf("observing, a label of theirs cannot be changed: %v", err)
	}

	// It sells on nodes with a label, which this one does not have yet.
	apply(t, `
apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: canary}
spec:
  mode: Enforce
  priority: 10
  nodeSelector: {matchLabels: {canary: "true"}}
  cpu: {method: Static, ratio: 50%}
  memory: {method: Static, ratio: 50%}
`)
	m.answering()
	stands("selling elsewhere", "8k")
	pod("selling elsewhere")
	eventually(t, "the label of a batch pod stays", func() (bool, string) {
		err := relabelled(v1alpha1.LabelQoS)
		return err != nil && strings.Contains(err.Error(), "cannot be changed"), fmt.Sprint(err)
	})

	// It sells here, beside the other system, which goes on.
	kubectl(t, "label", "node", "shared", "canary=true")
	eventually(t, "the node sells", func() (bool, string) { is := m.amount("shared", ours); return is != "", is })
	stands("selling here", "8k")
	offer("7000")
	pod("selling here")

	// A pause withdraws it, and its end restores it.
	kubectl(t, "annotate", "colocationpolicy", "canary", v1alpha1.AnnotationPause+"=true")
	eventually(t, "while paused, the node sells nothing", func() (bool, string) {
		is := m.amount("shared", ours)
		return is == "", is
	})
	stands("paused", "7k")
	kubectl(t, "annotate", "colocationpolicy", "canary", v1alpha1.AnnotationPause+"-")
	eventually(t, "the node sells again", func() (bool, string) { is := m.amount("shared", ours); return is != "", is })

	// It is switched off.
	kubectl(t, "patch", "colocationpolicy", "canary", "--type=merge", "-p", `{"spec": {"mode": "Disabled"}}`)
	eventually(t, "the node sells nothing", func() (bool, string) { is := m.amount("shared", ours); return is == "", is })
	stands("switched off", "7k")
	pod("switched off")
}
