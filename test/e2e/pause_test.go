package e2e_test

import (
	"fmt"
	"io/fs"
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
)

// stillFiles returns the content of every file below the directory of pods that can be written, in all hierarchies,
// without lists of tasks and counters that can be reset.
func (f *fake) stillFiles() map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, hierarchy := range append(f.others(), f.Path) {
		err := filepath.WalkDir(filepath.Join(hierarchy, f.layout.Root), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			moves := slices.ContainsFunc([]string{"procs", "threads", "tasks", "usage", "failcnt", "pressure", "peak"},
				func(part string) bool { return strings.Contains(e.Name(), part) })
			if err != nil || info.Mode().Perm()&0o600 != 0o600 || moves {
				return err
			}
			content, err := os.ReadFile(path)
			all[path] = string(content)
			return err
		})
		if err != nil {
			f.t.Fatal(err)
		}
	}
	return all
}

// differences lists the files that differ from an earlier state.
func (f *fake) differences(before map[string]string) (all []string) {
	f.t.Helper()
	for path, now := range f.stillFiles() {
		if was := before[path]; now != was {
			all = append(all, fmt.Sprintf("%s is %q, was %q", path, now, was))
		}
	}
	slices.Sort(all)
	return all
}

// TestAPIPause pauses a node, and then its policy: while the agent runs, and while it is down. Each time, every file
// has the kubelet's value again, nothing is sold, and the pods stay; afterwards it goes on. An agent that was down
// enforces nothing before it knows of the pause.
func TestAPIPause(t *testing.T) {
	f := newFake(t)
	kubectl(t, "patch", "node", f.node, "--subresource=status", "--type=merge", "-p",
		`{"status":{"allocatable":{"memory":"16Gi"},"capacity":{"memory":"16Gi"}}}`)
	apply(t, `
apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: all}
spec:
  mode: Enforce
  weight: {max: 262144}
  cpu: {method: Static, ratio: 50%, suppression: Arithmetic, batchClass: Idle}
  memory: {method: Static, ratio: 30%}
`)
	a := f.pod("a", `waterline.io/cpu-share: "2048"`)
	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: b}
spec:
  nodeName: `+f.node+`
  containers:
  - name: c
    image: none
    resources:
      requests: {waterline.io/batch-cpu: 500, waterline.io/batch-memory: 64Mi}
      limits: {waterline.io/batch-cpu: 500, waterline.io/batch-memory: 64Mi}
`)
	b := f.layout.Pod(model.BestEffort, string(object[corev1.Pod](t, "pod", "b").UID))
	f.mkdir(b)
	f.set(t, b, model.Shares, model.MinShares)
	f.set(t, f.layout.Class(model.BestEffort), model.Shares, model.MinShares)
	f.set(t, f.layout.Class(model.Burstable), model.Shares, 512) // what pod a requests
	before := f.stillFiles()

	sells := func() string {
		return fmt.Sprint(object[corev1.Node](t, "node", f.node).Status.Capacity[v1alpha1.ResourceBatchCPU])
	}
	nothing := fmt.Sprint(corev1.ResourceList{}[v1alpha1.ResourceBatchCPU])
	enforcing := func() {
		t.Helper()
		f.expect(t, a, model.Shares, 2048)
		f.expect(t, f.layout.Class(model.Burstable), model.Shares, 2048)
		f.expect(t, b, model.MemoryMax, 64<<20)
		f.expect(t, b, model.Idle, 1)
		eventually(t, "the node sells", func() (bool, string) { is := sells(); return is != nothing, is })
	}
	restored := func() {
		t.Helper()
		eventually(t, "every file is as before", func() (bool, string) {
			wrong := f.differences(before)
			return len(wrong) == 0, strings.Join(wrong, "\n")
		})
		eventually(t, "the node sells nothing", func() (bool, string) { is := sells(); return is == nothing, is })
		for _, name := range []string{"a", "b"} {
			if p := object[corev1.Pod](t, "pod", name); p.DeletionTimestamp != nil || p.Spec.NodeName != f.node {
				t.Errorf("pod %s: deleted at %v, on node %s", name, p.DeletionTimestamp, p.Spec.NodeName)
			}
		}
	}

	agent := f.start()
	enforcing()
	if n := len(f.differences(before)); n < 5 {
		t.Errorf("only %d files differ before the pause", n)
	}
	for kind, name := range map[string]string{"node": f.node, "colocationpolicy": "all"} {
		t.Logf("a pause of the %s", kind)
		pause := func(how string) { kubectl(t, "annotate", kind, name, v1alpha1.AnnotationPause+how) }
		pause("=true")
		restored()
		pause("-")
		enforcing()

		t.Log("the same while the agent is down")
		agent.stop(os.Kill)
		pause("=true")
		began := time.Now()
		agent = f.start()
		restored()
		agent.stop(os.Kill)
		f.onlyRounds(model.ModeDisabled, began)
		pause("-")
		agent = f.start()
		enforcing()
	}
}

// onlyRounds checks that all rounds of the journal since a time that know the pods were decided in one mode, and that
// there are some.
func (f *fake) onlyRounds(mode model.Mode, since time.Time) {
	f.t.Helper()
	rounds := 0
	for r, err := range journal.Read(f.runDir) {
		if err != nil || r.Node.Now.Before(since) { // the kill of an agent may have torn a line
			continue
		}
		if !r.Node.PodsKnown {
			continue
		}
		if rounds++; r.Policy.Mode != mode {
			f.t.Errorf("a round in mode %s, by what the API showed an earlier agent: %v", r.Policy.Mode, r.Node.PodsKept)
		}
	}
	if rounds == 0 {
		f.t.Error("no round since the start")
	}
}
