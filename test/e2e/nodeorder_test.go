package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// smallDisk gives the kubelet a disk of its own of 256 MiB, in memory, on which it wants 100 MiB to be free, until the
// test ends. The machine's disks are not touched.
func smallDisk(t *testing.T) {
	t.Helper()
	const kubelet = "/var/lib/kubelet"
	size := func(size string) {
		if _, err := (here{}).run("mount", "-o", "remount,size="+size, kubelet); err != nil {
			t.Fatal(err)
		}
	}
	file := bed.KubeletConfig()
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	configure := func(content []byte) {
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		control(t, "restart", "kubelet")
	}
	t.Cleanup(func() {
		size("50%") // as it is by default
		configure(before)
	})
	size("256m")
	line := regexp.MustCompile(`(?m)^evictionHard: .*$`)
	if !line.Match(before) {
		t.Fatalf("no evictionHard in\n%s", before)
	}
	configure(line.ReplaceAll(before, []byte("evictionHard: {memory.available: 100Mi, nodefs.available: 100Mi, "+
		"imagefs.available: \"1%\"}\nevictionPressureTransitionPeriod: 30s")))
}

// TestNodeOrder brings a real kubelet into disk pressure. It evicts the batch pod, and no other. The online pod, which
// has no priority class, uses three times as much of the disk.
func TestNodeOrder(t *testing.T) {
	if *on != "host" {
		t.Skip("the kubelet is configured on this machine")
	}
	n := install(t)
	smallDisk(t)
	writes := func(name, labels, class string, mib int) {
		t.Helper()
		apply(t, strings.NewReplacer(
			"annotations: {}", "labels: {"+labels+"}",
			"spec:\n", fmt.Sprintf("spec:\n  priorityClassName: %q\n  volumes: [{name: d, emptyDir: {}}]\n", class),
			"sleep 1000000", fmt.Sprintf("head -c %dm /dev/zero >/d/f; sleep 1000000", mib),
			"resources: {}", "volumeMounts: [{name: d, mountPath: /d}]",
		).Replace(n.manifest(name, "", "", false)))
		kubectl(t, "wait", "--for=condition=Ready", "pod/"+name, ready)
	}
	pod := func(name string) corev1.Pod { return object[corev1.Pod](t, "pod", name) }
	pressure := func() (is corev1.ConditionStatus) {
		for _, c := range object[corev1.Node](t, "node", n.name).Status.Conditions {
			if c.Type == corev1.NodeDiskPressure {
				is = c.Status
			}
		}
		return is
	}
	writes("spill", v1alpha1.LabelQoS+": BE", v1alpha1.PriorityClassBatch, 40)
	writes("web", "", "", 120)
	eventually(t, "one of them is evicted", func() (bool, string) {
		spill, web := pod("spill"), pod("web")
		return spill.Status.Reason == "Evicted" || web.Status.Reason == "Evicted", string(pressure())
	})
	// The condition lasts until there was no pressure for half a minute. Then the kubelet has evicted all that it wanted.
	eventually(t, "the node reports disk pressure", func() (bool, string) {
		is := pressure()
		return is == corev1.ConditionTrue, string(is)
	})
	eventually(t, "disk pressure is over", func() (bool, string) {
		is := pressure()
		return is == corev1.ConditionFalse, string(is)
	})
	spill, web := pod("spill"), pod("web")
	if spill.Status.Reason != "Evicted" || web.Status.Phase != corev1.PodRunning {
		t.Errorf("the batch pod is %s %s: %s; the online pod is %s %s: %s", spill.Status.Phase, spill.Status.Reason,
			spill.Status.Message, web.Status.Phase, web.Status.Reason, web.Status.Message)
	}
	if t.Failed() {
		return
	}
	log, err := os.ReadFile(filepath.Join(filepath.Dir(bed.KubeletConfig()), "log/kubelet.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Log(regexp.MustCompile(`(?m)^.*pods ranked for eviction.*$`).FindString(string(log)))
}
