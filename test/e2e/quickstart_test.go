package e2e_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/bed/cluster"
	"github.com/waterline-io/waterline/test/bed/oci"
	"github.com/waterline-io/waterline/test/bed/pages"
)

// TestNodeQuickstart runs the commands of docs/quickstart.md as they are written, on a cluster that has nothing of
// Waterline: only the image of the pods comes from the environment. The Job runs beside an online pod, and in the end
// nothing is left.
func TestNodeQuickstart(t *testing.T) {
	oneNode(t, "its commands are the same there")
	quickstart(t, "")
	removal(t, quickstartPage)
}

// TestNodeQuickstartPulled makes images and pushes them as the page says, and runs the page with a node that has none
// of them and pulls them. Twice: what the first time leaves on the node must not be in the way of the second.
func TestNodeQuickstartPulled(t *testing.T) {
	if *on == "vm" {
		t.Skip("the virtual machine has no way to the registry of this test")
	}
	if _, err := exec.LookPath(oci.Program); err != nil {
		t.Fatal(err)
	}
	r := oci.Start(t)
	inside, err := bed.Inside(t.Context(), append([]string{"setpriv", "--pdeathsig", "KILL", oci.Program}, r.Args()...)...)
	if err != nil {
		t.Fatal(err)
	}
	end := r.Serve(t, inside) // at the same address in the node's network
	t.Cleanup(func() { _ = inside.Process.Kill(); end() })
	path := r.Address + "/mirror"
	made := exec.CommandContext(t.Context(), "make", "--no-print-directory", "images", "VERSION=0.1.0", "REGISTRY="+path,
		"PLAIN_HTTP=1")
	made.Dir = "../.."
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("making the images: %v: %s", err, out)
	}
	for range 2 {
		if found := images(t, path); len(found) > 0 {
			t.Fatalf("the node has images before it pulls them: %q", found)
		}
		quickstart(t, path)
		found := images(t, path)
		for _, name := range []string{"agent", "manager"} {
			if !slices.Contains(found, path+"/waterline/"+name+":0.1.0") {
				t.Errorf("the node did not pull the image of the %s; it has %q", name, found)
			}
		}
		containerd(t, append([]string{"images", "rm", "--sync"}, found...)...)
	}
}

// images returns the names of the node's images from a registry.
func images(t *testing.T, path string) (names []string) {
	t.Helper()
	for name := range strings.FieldsSeq(containerd(t, "images", "ls", "-q")) {
		if strings.HasPrefix(name, path+"/") {
			names = append(names, name)
		}
	}
	return names
}

// containerd runs a command of the client of the node's containerd.
func containerd(t *testing.T, args ...string) string {
	t.Helper()
	c, err := bed.Inside(t.Context(), append([]string{filepath.Join(built, "bed/bin/ctr"), "--address",
		"/run/containerd/containerd.sock", "-n", "k8s.io"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("ctr %q: %v: %s", args, err, out)
	}
	return string(out)
}

const quickstartPage = "docs/quickstart.md"

// quickstart runs the page, and checks that it leaves nothing behind. With a registry, images come from there, by the
// value of the chart that the page names. It returns what waterline explain says of the node while the Job runs alone,
// and beside the online pod.
func quickstart(t *testing.T, registry string) (alone, beside string) {
	t.Helper()
	n := bedNode(t)
	if *on == "vm" { // The page takes the first node that is no control plane. That is to be the virtual machine's.
		const label = "node-role.kubernetes.io/control-plane"
		kubectl(t, "label", "node", cluster.NodeName, label+"=")
		t.Cleanup(func() { kubectl(t, "label", "node", cluster.NodeName, label+"-") })
	}
	kubectl(t, "delete", "crd", "colocationpolicies.waterline.io", "nodereports.waterline.io", "workerpools.waterline.io",
		"--ignore-not-found")
	kubectl(t, "delete", "namespace", "waterline-system", "--ignore-not-found") // of the test before
	// Nor does the node know what other tests used in the last hour.
	const empty = `[ ! -d "$1" ] || find "$1" -mindepth 1 -delete` // it may be a mount
	if out, err := n.machine.run("sh", "-c", empty, "-", stateDir); err != nil {
		t.Fatal(err, out)
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
	p := &page{
		t: t, as: "TestNodeQuickstart", released: registry != "", env: []string{"IMAGE=" + cluster.BusyboxImage},
	}
	p.add(quickstartPage)
	if registry != "" {
		const install = "--set profile=sell"
		commands := p.script.String()
		if strings.Count(commands, install) != 1 {
			t.Fatalf("%s has another installation than the test expects:\n%s", quickstartPage, commands)
		}
		p.script.Reset()
		p.script.WriteString(strings.Replace(commands, install, install+" --set image.registry="+registry, 1))
	}
	p.check("kubectl get crd,namespaces,clusterroles,priorityclasses,colocationpolicies -o name --ignore-not-found " +
		"2>/dev/null | grep waterline || true")
	p.check("kubectl get nodes -o yaml | grep waterline.io/ || true")
	started := time.Now()
	out := p.run()
	t.Logf("all commands took %s", time.Since(started).Round(time.Second))
	if len(out) != 9 {
		t.Fatalf("%d blocks, want 6 of the page, two of the test and an empty end:\n%s", len(out), strings.Join(out, "~~"))
	}
	for _, explained := range out[3:5] {
		if !strings.Contains(explained, "node "+n.name+" ") || !batchUses.MatchString(explained) {
			t.Errorf("nothing says what batch uses on node %s:\n%s", n.name, explained)
		}
	}
	if left := out[6] + out[7]; strings.TrimSpace(left) != "" {
		t.Errorf("the page leaves this behind:\n%s", left)
	}
	return out[3], out[4]
}

// batchUses finds the CPUs that batch uses in the output of waterline explain.
var batchUses = regexp.MustCompile(`batch uses +([0-9.]+)`)

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
