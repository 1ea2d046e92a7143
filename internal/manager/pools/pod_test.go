package pools

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/cluster/reach"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/manager/pools/hadoop"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/test/golden"
)

// TestPod shows the pod and the yarn-site.xml of the first worker of each pool of testdata. The first document of a
// case is the pool, and the test writes the others.
func TestPod(t *testing.T) { golden.Each(t, podCase, "testdata/*.yaml") }

func podCase(t *testing.T, content string) string {
	given, _, _ := strings.Cut(content, "---\n")
	p, made := podOf(t, given)
	pod, err := yaml.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	site := hadoop.Site(p.Spec.YARN)
	for d := xml.NewDecoder(strings.NewReader(site)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", site, err)
		}
	}
	return fmt.Sprintf("%s---\n%s---\n%s", given, pod, site)
}

// podOf returns a pool and the pod of its first worker.
func podOf(t *testing.T, given string) (*v1alpha1.WorkerPool, *corev1.Pod) {
	t.Helper()
	p, read, err := kube.ParseWorkerPool([]byte(given))
	if err != nil {
		t.Fatal(err)
	}
	scopes, err := reach.Scopes([]string{p.Namespace}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{
		Reach: scopes, ClusterDomain: "cluster.local", ExcludeDir: "/exclude", Namespaces: []string{p.Namespace},
		GuardImage: "waterline/guard:dev", Log: slog.New(slog.DiscardHandler),
		Batch: func(pod *corev1.Pod) (*corev1.Pod, bool) {
			batch, _ := admit.Rules{Ours: true}.Mutate(pod, nil)
			return batch, true
		},
	})
	r := &round{
		k: newKeeper(c, p.Namespace, p.Name), p: p, read: read, t: &problems{},
		nodes: map[string]Node{"node-1.example": {Labels: map[string]string{"pool": "web"}}},
	}
	r.k.status = &p.Status
	r.list()
	pl := r.places[0]
	r.fill(pl, nil)
	end := time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)
	made, _ := r.newPod(pl, pool.Marks{End: end})
	return p, made
}

// TestDocumentedPods renders the pods of the pools in the documents. Each directory of a NodeManager is on a volume,
// and only a worker with the Linux container executor can become root.
func TestDocumentedPods(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(apiVersion: .*?kind: WorkerPool.*?)```")
	for _, file := range []string{"yarn.md", "yarn-nodes.md", "yarn-path.md"} {
		content, err := os.ReadFile("../../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		all := block.FindAllStringSubmatch(string(content), -1)
		if len(all) == 0 {
			t.Errorf("%s has no worker pool", file)
		}
		for _, m := range all {
			p, pod := podOf(t, m[1])
			w := kube.Worker(&pod.Spec)
			for _, property := range []string{"yarn.nodemanager.local-dirs", "yarn.nodemanager.log-dirs"} {
				for dir := range strings.SplitSeq(cmp.Or(p.Spec.YARN.Properties[property], hadoop.WorkDir), ",") {
					mounted := slices.ContainsFunc(w.VolumeMounts, func(m corev1.VolumeMount) bool {
						return strings.HasPrefix(dir+"/", m.MountPath+"/")
					})
					if !mounted {
						t.Errorf("%s: pool %s: %s of %s is on no volume", file, p.Name, dir, property)
					}
				}
			}
			linux := p.Spec.YARN.ContainerExecutor == v1alpha1.ExecutorLinux
			if s := w.SecurityContext; *s.AllowPrivilegeEscalation != linux || linux != (len(s.Capabilities.Add) > 0) ||
				*pod.Spec.SecurityContext.RunAsUser == 0 {
				t.Errorf("%s: pool %s: %+v", file, p.Name, s)
			}
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				for _, m := range c.VolumeMounts {
					if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
						t.Errorf("%s: pool %s: container %s mounts %s, which is no volume", file, p.Name, c.Name, m.Name)
					}
				}
			}
		}
	}
}

// TestWorkerName checks that the workers of different nodes have different names that DNS allows.
func TestWorkerName(t *testing.T) {
	long := strings.Repeat("a", 60)
	seen := map[string]string{}
	for _, node := range []string{
		"n1", "n-1", "n.1", "n1.a.example", "n1-a-example", "n1.a-example", long, long + ".a", long + ".b",
	} {
		name := workerName("night", node)
		if other, found := seen[name]; found {
			t.Errorf("%s and %s have the name %s", node, other, name)
		}
		seen[name] = node
		if len(name) > 63 || strings.ContainsAny(name, "._") || strings.HasSuffix(name, "-") {
			t.Errorf("%s: %q", node, name)
		}
	}
	if name := workerName("night", "n1"); name != "night-n1" {
		t.Errorf("%q", name)
	}
}

// TestRow checks what is kept of a pod.
func TestRow(t *testing.T) {
	marks := pool.Marks{Registered: true, Until: time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)}
	for _, c := range []struct {
		about, pod string
		want       podRow
	}{
		{"waiting", `{status: {conditions: [{type: PodScheduled, status: "False", message: no node}]}}`, podRow{waits: "no node"}},
		{"no image", `{status: {containerStatuses: [{name: worker, state: {waiting: {reason: ErrImagePull, message: none}}}]}}`,
			podRow{waits: "ErrImagePull: none"}},
		{"starting", `{status: {containerStatuses: [{name: worker, state: {waiting: {reason: ContainerCreating}}}]}}`, podRow{}},
		{"over", `{status: {phase: Failed}}`, podRow{over: true}},
		{"drained beside a sidecar", `{spec: {containers: [{name: worker}, {name: logs}]}, status: {phase: Running, ` +
			`containerStatuses: [{name: worker, state: {terminated: {exitCode: 0, reason: Completed, finishedAt: ` +
			`"2026-11-25T09:00:00Z"}}}, {name: logs, state: {running: {}}}]}}`, podRow{crew: true, over: true,
			waits: "its process ended with code 0 Completed", ended: time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC).Local()}},
		{"marked", `{metadata: {annotations: {waterline.io/pool-marks: '` + encode(marks) + `'}}}`, podRow{marks: marks}},
		{"marked by somebody", `{metadata: {annotations: {waterline.io/pool-marks: "{"}}}`, podRow{}},
		{"guarded", `{metadata: {annotations: {waterline.io/pool-allowance: a}}, spec: {initContainers: [{name: guard}]}}`,
			podRow{guarded: true, allowance: "a"}},
		{"of a pool", `{metadata: {ownerReferences: [{kind: WorkerPool, uid: u, controller: true}]}}`, podRow{owner: "u"}},
		{"of somebody", `{metadata: {labels: {waterline.io/pool: night}, ownerReferences: [{kind: WorkerPool, uid: u}]}}`, podRow{}},
	} {
		p := &corev1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(c.pod), p); err != nil {
			t.Fatal(err)
		}
		if got := rowOf(p); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.about, got, c.want)
		}
	}
}
