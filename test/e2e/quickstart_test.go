package e2e_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/bed/cluster"
	"github.com/waterline-io/waterline/test/bed/pages"
)

// TestNodeQuickstart runs the commands of docs/quickstart.md as they are written, on a cluster that has nothing of
// Waterline: only the image of the pods comes from the environment. The Job uses what is idle, gives way to an online
// pod, and in the end nothing is left.
func TestNodeQuickstart(t *testing.T) {
	oneNode(t, "its commands are the same there")
	if !soak {
		t.Skip("WATERLINE_SOAK is not set: on two CPUs, the start of pods in the minute after the agent's own may count as " +
			"the online peak of an hour, and the batch pod then waits for that long")
	}
	const file = "docs/quickstart.md"
	kubectl(t, "delete", "crd", "colocationpolicies.waterline.io", "nodereports.waterline.io", "workerpools.waterline.io",
		"--ignore-not-found")
	kubectl(t, "delete", "namespace", "waterline-system", "--ignore-not-found") // of the test before
	// Nor does the node know what other tests used in the last hour.
	if err := os.RemoveAll("/var/lib/waterline"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := tryKubectl("get", "pods,nodereports,colocationpolicies,events", "-A", "-o", "wide")
			t.Log(out)
		}
		for _, args := range [][]string{{"delete", "job/burn", "pod/web", "--ignore-not-found", "--grace-period=1"},
			{"label", "nodes", "--all", "waterline.io/canary-"}} {
			if out, err := tryKubectl(args...); err != nil {
				t.Error(out)
			}
		}
		helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--ignore-not-found")
		kubectl(t, "apply", "-f", "../../deploy/chart/crds") // which all other tests expect
	})
	p := &page{t: t, env: []string{"IMAGE=" + cluster.BusyboxImage}}
	p.add(file)
	p.check("kubectl get crd,namespaces,clusterroles,priorityclasses,colocationpolicies -o name --ignore-not-found " +
		"2>/dev/null | grep waterline || true")
	p.check("kubectl get nodes -o yaml | grep waterline.io/ || true")
	started := time.Now()
	out := p.run()
	t.Logf("all commands took %s", time.Since(started).Round(time.Second))
	if len(out) != 9 {
		t.Fatalf("%d blocks, want 6 of the page, two of the test and an empty end:\n%s", len(out), strings.Join(out, "~~"))
	}
	alone, beside := batchUses(t, out[3]), batchUses(t, out[4])
	t.Logf("batch uses %.2f CPUs alone and %.2f beside an online pod that wants all", alone, beside)
	if alone < 0.5 {
		t.Errorf("a Job that requests 0.1 CPUs uses %.2f idle ones:\n%s", alone, out[3])
	}
	if beside > alone/2 {
		t.Errorf("it uses %.2f CPUs beside an online pod that wants all, and %.2f alone:\n%s", beside, alone, out[4])
	}
	if left := out[6] + out[7]; strings.TrimSpace(left) != "" {
		t.Errorf("the page leaves this behind:\n%s", left)
	}
	removal(t, file)
}

// batchUses returns the CPU that batch uses by waterline explain.
func batchUses(t *testing.T, explained string) float64 {
	t.Helper()
	m := regexp.MustCompile(`batch uses +([0-9.]+)`).FindStringSubmatch(explained)
	if m == nil {
		t.Fatalf("nothing says what batch uses:\n%s", explained)
	}
	cpus, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return cpus
}

// removal checks that the README removes Waterline by commands of the page that was run.
func removal(t *testing.T, page string) {
	t.Helper()
	readme, err := pages.RunBy("../../"+"README.md", t.Name())
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := pages.RunBy("../../"+page, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	var run strings.Builder
	for _, b := range blocks {
		run.WriteString(b.Commands())
	}
	for _, b := range readme {
		for line := range strings.Lines(b.Commands()) {
			if !strings.Contains(run.String(), line) {
				t.Errorf("README.md says %q, which %s does not", line, page)
			}
		}
	}
}
