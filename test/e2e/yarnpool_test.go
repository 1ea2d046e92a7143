package e2e_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/yarn"
	"github.com/waterline-io/waterline/test/bed/cluster"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// night is a pool of NodeManagers in pods of the real node.
type night struct {
	*node
	*yarnPods
	t          *testing.T
	firstSight *firstSight
}

// newNight installs Waterline with worker pools and an exclude file, and starts a ResourceManager, a NodeManager in the
// default partition and a pod for jobs' clients.
func newNight(t *testing.T) *night {
	t.Helper()
	makeNamespace(t, hadoopNamespace, "pod-security.kubernetes.io/enforce: restricted")
	apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: waterline-system}}") // another test may have left it
	apply(t, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: exclude}
spec: {capacity: {storage: 1Mi}, accessModes: [ReadWriteMany], hostPath: {path: %s},
  claimRef: {namespace: waterline-system, name: exclude}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: exclude, namespace: waterline-system}
spec: {accessModes: [ReadWriteMany], storageClassName: "", volumeName: exclude, resources: {requests: {storage: 1Mi}}}
`, bed.Shared()+"/exclude"))
	n := install(t, "--set", "manager.enabled=true,manager.replicas=2,manager.extraArgs={--back-after=5s}",
		"--set", "manager.pools.namespaces={"+hadoopNamespace+"}",
		"--set", "manager.pools.excludeVolume.persistentVolumeClaim.claimName=exclude")
	p := &night{node: n, t: t}
	// An offer grows by a tenth of what could be sold at once, and then not for a minute. The tests need one such step.
	n.policy(strings.Replace(selling("Enforce", "Static"), `"ratio": "100%"`, `"ratio": "1000%"`, 1))
	p.yarnPods = newYARN(t)
	if err := os.Chmod(p.ExcludeDir(), 0o777); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "rollout", "status", "deployment/waterline-manager", "-n", "waterline-system", ready)
	n.sold(false, "the node offers something", func(cpu int64) bool { return cpu >= 1500 })
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{
				{"get", "pods", "-n", hadoopNamespace, "-o", "yaml"},
				{"get", "events", "-n", hadoopNamespace},
				{"logs", "-n", "waterline-system", "-l", "app.kubernetes.io/name=waterline-manager", "--prefix", "--tail=60"},
			} {
				out, _ := tryKubectl(args...)
				t.Logf("kubectl %s:\n%s", strings.Join(args, " "), out)
			}
		}
	})
	return p
}

// sub runs a subtest.
func (p *night) sub(name string, f func(p *night)) {
	p.t.Run(name, func(t *testing.T) {
		of, y, n := *p, *p.yarnPods, *p.node
		of.t, y.t, n.t = t, t, t
		of.yarnPods, of.node = &y, &n
		f(&of)
	})
}

// pool applies a pool, which is deleted when the test ends. spec is the part beside yarn.
func (p *night) pool(spec string) {
	p.t.Helper()
	manifest := fmt.Sprintf(`
apiVersion: waterline.io/v1alpha1
kind: WorkerPool
metadata: {name: night, namespace: %s}
spec:
  yarn:
    resourceManagers: [%s]
    user: root
    label: {name: %s}
    configMap: {name: %s}
    vcoresPerCPU: "10"
    overhead: {cpu: 100m, memory: 512Mi}
    %s
  template:
    spec:
      containers:
        - name: worker
          image: %s
          env: [{name: YARN_NODEMANAGER_OPTS, value: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}]
          volumeMounts: [{name: shared, mountPath: /shared}]
      volumes: [{name: shared, persistentVolumeClaim: {claimName: shared}}]
`, hadoopNamespace, p.RMURL(), hadoop.Label, hadoop.ConfigMap, spec, hadoop.Image)
	if out, err := tryApply(manifest); err != nil {
		p.t.Fatalf("%s: %v", out, err)
	}
	p.t.Cleanup(func() {
		if p.t.Failed() { // this goes with the pool
			pool, _ := tryKubectl("get", "workerpools", "-n", hadoopNamespace, "-o", "yaml")
			logs, _ := tryKubectl("logs", "-n", hadoopNamespace, "-l", v1alpha1.LabelPool, "--all-containers", "--prefix",
				"--tail=200")
			p.t.Logf("the pool:\n%s\nthe logs of its workers:\n%s", pool, logs)
		}
		p.end()
	})
}

// end deletes the pool and waits until it is gone.
func (p *night) end() {
	p.t.Helper()
	kubectl(p.t, "delete", "workerpool", "night", "-n", hadoopNamespace, "--ignore-not-found", "--timeout=5m")
}

func (p *night) status() v1alpha1.WorkerPoolStatus {
	return object[v1alpha1.WorkerPool](p.t, "workerpool", "night", "-n", hadoopNamespace).Status
}

// until waits until the status of the pool is as wanted.
func (p *night) until(what string, ok func(s *v1alpha1.WorkerPoolStatus) bool) v1alpha1.WorkerPoolStatus {
	p.t.Helper()
	var s v1alpha1.WorkerPoolStatus
	eventually(p.t, what, func() (bool, string) {
		s = p.status()
		return ok(&s), fmt.Sprintf("%+v", s)
	})
	return s
}

// active waits until a number of workers is active, and no other is there.
func (p *night) active(count int32) v1alpha1.WorkerPoolStatus {
	p.t.Helper()
	return p.until(fmt.Sprintf("%d active workers", count), func(s *v1alpha1.WorkerPoolStatus) bool {
		return s.Active == count && s.Wanted == count && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
	})
}

// worker returns the host name of a worker.
func (p *night) worker(name string) string {
	return name + ".night." + hadoopNamespace + ".svc.cluster.local"
}

// manager returns the NodeManager of a worker as the ResourceManager shows it.
func (p *night) manager(name string) yarn.Node {
	p.t.Helper()
	n, err := p.rm.Node(p.t.Context(), p.worker(name)+":45454")
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// busy starts a job with as many maps on the pool, and waits until they are allocated.
func (p *night) busy(maps int, each time.Duration) *hadoop.Job {
	p.t.Helper()
	j, id := p.job(p.Sleep(p.t.Context(), maps, 1, each, onLabel...))
	p.until(fmt.Sprintf("%d maps of %s are allocated", maps, id), func(s *v1alpha1.WorkerPoolStatus) bool {
		return int(s.Containers) >= maps
	})
	return j
}

// mapsRun waits until a number of maps run on the node's worker.
func (p *night) mapsRun(maps int) {
	p.t.Helper()
	pod := object[corev1.Pod](p.t, "pod", "night-"+p.node.name, "-n", hadoopNamespace)
	eventually(p.t, fmt.Sprintf("%d maps run", maps), func() (bool, string) {
		lines := slices.DeleteFunc(p.processes(p.dirOf(&pod), "mapred.YarnChild"), func(line string) bool {
			return strings.HasPrefix(line, "/bin/bash") // its parent
		})
		return len(lines) == maps, strings.Join(lines, "\n")
	})
}

// unharmed waits until a job has succeeded, and checks that none of its tasks was killed or failed.
func (p *night) unharmed(j *hadoop.Job) {
	p.t.Helper()
	p.finish(j)
	for _, counter := range []string{"Killed map tasks", "Failed map tasks", "Killed reduce tasks", "Failed reduce tasks"} {
		if n := j.Counter(counter); n != 0 {
			p.t.Errorf("%s: %d: %s", counter, n, j.Output())
		}
	}
}

// TestYARNPool runs NodeManagers on slack of the real node: in number, size, drains and faults as a pool says. The
// short form leaves out what takes more minutes of real jobs: the end of a worker's pod, a sort beside a smaller pool,
// and faults, for which those of TestPoolHarm stand.
func TestYARNPool(t *testing.T) {
	p := newNight(t)
	p.firstSight = seeStarts(t, p.rm, "night")
	p.sub("FiveLines", (*night).fiveLines)
	p.sub("Allowance", (*night).allowances)
	p.sub("Drain", (*night).drains)
	if soak {
		p.sub("Excluded", (*night).excluded)
		p.sub("Faults", (*night).faults)
	}
	p.firstSight.check(t, 2)
}

// fiveLines makes a pool of one worker a node, which grows into the slack, runs a job, and goes.
func (p *night) fiveLines() {
	began := time.Now()
	p.pool(`
  size: {floor: {cpu: 500m, memory: 1Gi}, ceiling: {cpu: "1", memory: 1536Mi}, step: {cpu: 100m, memory: 256Mi},
    pause: 2s, follow: {window: 0s}}`)
	s := p.active(1)
	p.t.Logf("the worker is active after %.1f s", time.Since(began).Seconds())
	name := "night-" + p.node.name
	if w := s.Workers; len(w) != 1 || w[0].Name != name || w[0].Node != p.node.name {
		p.t.Errorf("the workers: %+v", w)
	}
	s = p.until("the worker grows to its ceiling", func(s *v1alpha1.WorkerPoolStatus) bool { return s.Total.VCores == 10 })
	n := p.manager(name)
	if n.Total != (yarn.Resource{MemoryMiB: 1536, VCores: 10}) {
		p.t.Errorf("the NodeManager: %+v", n)
	}
	pod := object[corev1.Pod](p.t, "pod", name, "-n", hadoopNamespace)
	p.expect(p.t, p.dirOf(&pod), model.Quota, 128_000) // ceiling, overhead, and what the guard may burst
	p.expect(p.t, p.dirOf(&pod), model.MemoryMax, 2<<30)
	j, id := p.job(p.Sleep(p.t.Context(), 3, 1, 3*time.Second, onLabel...))
	eventually(p.t, "maps run in the pod's cgroup", func() (bool, string) {
		maps := p.processes(p.dirOf(&pod), id)
		return len(maps) > 0, fmt.Sprint(maps)
	})
	p.unharmed(j)
	if app, err := hadoop.AppByID(p.t.Context(), p.rm, id); err != nil || app.MasterNode != p.NodeID(hadoop.FixedNode) {
		p.t.Errorf("the master: %+v, %v", app, err)
	}
	p.t.Logf("\n%s", kubectl(p.t, "get", "workerpools", "-n", hadoopNamespace))
	p.end()
	if labels, err := p.rm.NodeLabels(p.t.Context()); err != nil || len(labels) > 0 {
		p.t.Errorf("labels are left: %v, %v", labels, err)
	}
	if out := kubectl(p.t, "get", "pods,services,poddisruptionbudgets,configmaps", "-n", hadoopNamespace, "-l",
		v1alpha1.LabelPool); out != "" {
		eventually(p.t, "nothing of the pool is left", func() (bool, string) {
			out, _ := tryKubectl("get", "pods,services,poddisruptionbudgets,configmaps", "-n", hadoopNamespace, "-l",
				v1alpha1.LabelPool)
			return !strings.Contains(out, "/"), out
		})
	}
}

// allowances checks that the kubelet shows a container the annotation that a guard reads, whenever it changes.
func (p *night) allowances() {
	apply(p.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: reader, namespace: default, annotations: {%[1]s: "0"}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "%[2]s", imagePullPolicy: Never, command: [sleep, "3600"],
    volumeMounts: [{name: v, mountPath: /etc/waterline}]}]
  volumes: [{name: v, downwardAPI: {items: [{path: allowance, fieldRef: {
    fieldPath: "metadata.annotations['%[1]s']"}}]}}]
`, v1alpha1.AnnotationPoolAllowance, cluster.BusyboxImage))
	p.t.Cleanup(func() { kubectl(p.t, "delete", "pod", "reader", "--ignore-not-found", "--wait=false") })
	kubectl(p.t, "wait", "--for=condition=Ready", "pod/reader", ready)
	count := 3
	if soak {
		count = 20
	}
	for i := range count {
		want := fmt.Sprint(i + 1)
		kubectl(p.t, "annotate", "--overwrite", "pod/reader", v1alpha1.AnnotationPoolAllowance+"="+want)
		began := time.Now()
		eventually(p.t, "the file has the annotation", func() (bool, string) {
			out, err := tryKubectl("exec", "reader", "--", "cat", "/etc/waterline/allowance")
			return err == nil && out == want, out
		})
		p.figure(annotationSeen, time.Since(began).Seconds())
	}
}

// annotationSeen is how many seconds the kubelet takes to show a container an annotation of its pod.
const annotationSeen = "annotation_seen_seconds"

// drains drains the node, and deletes a pod, when maps have been allocated on the worker. They are waited for, also if
// none has started yet.
func (p *night) drains() {
	p.pool(`
    excludeFile: exclude.xml
  size: {floor: {cpu: 500m, memory: 1Gi}}
  identity: {coolDown: 1s}`)
	p.active(1)
	pod := "night-" + p.node.name
	ways := [][]string{
		{"drain", p.node.name, "--pod-selector=" + v1alpha1.LabelPool + "=night", "--delete-emptydir-data", "--force",
			"--timeout=4m"},
		{"delete", "pod", pod, "-n", hadoopNamespace, "--timeout=4m"},
	}
	if !soak {
		ways = ways[:1]
	}
	for _, how := range ways {
		before := object[corev1.Pod](p.t, "pod", pod, "-n", hadoopNamespace).UID
		j := p.busy(2, 15*time.Second)
		began := time.Now()
		kubectl(p.t, how...)
		p.t.Logf("kubectl %s took %.1f s", how[0], time.Since(began).Seconds())
		p.unharmed(j)
		if how[0] == "drain" {
			kubectl(p.t, "uncordon", p.node.name)
		}
		eventually(p.t, "the worker is back", func() (bool, string) {
			s := p.status()
			ok := s.Active == 1 && len(s.Workers) == 1 && s.Workers[0].Pod != string(before)
			return ok, fmt.Sprintf("%+v", s)
		})
	}
}

// excluded decommissions workers gracefully by the exclude file, while a sort runs whose map output they have.
func (p *night) excluded() {
	p.pool(`
    excludeFile: exclude.xml
  replicas: 2
  size: {floor: {cpu: 400m, memory: 1Gi}}
  identity: {coolDown: 1s}`)
	p.active(2)
	rows, err := p.NewRows("rows-"+fmt.Sprint(time.Now().Unix()), 20_000, 4)
	if err != nil {
		p.t.Fatal(err)
	}
	j, _ := p.job(p.Sort(p.t.Context(), rows, 1, onLabel...))
	p.until("maps run", func(s *v1alpha1.WorkerPoolStatus) bool { return s.Containers > 0 })
	kubectl(p.t, "patch", "workerpool", "night", "-n", hadoopNamespace, "--type=merge", "-p", `{"spec":{"replicas":1}}`)
	p.unharmed(j)
	if err := rows.Check(); err != nil {
		p.t.Error(err)
	}
	p.active(1)
	p.until("one worker is left", func(s *v1alpha1.WorkerPoolStatus) bool { return len(s.Workers) == 1 })
	content, err := os.ReadFile(p.ExcludeDir() + "/exclude.xml")
	if err != nil || strings.Contains(string(content), "night") {
		p.t.Errorf("the exclude file: %s, %v", content, err)
	}
}

// faults kills the managers and the ResourceManager while a job runs, which loses nothing, and then the NodeManager,
// whose maps run again.
func (p *night) faults() {
	p.pool(`
  size: {floor: {cpu: 500m, memory: 1Gi}, ceiling: {cpu: "1", memory: 1536Mi}, step: {cpu: 100m, memory: 256Mi}, pause: 2s,
    follow: {window: 0s}}
  identity: {coolDown: 1s}`)
	p.active(1)
	// A ResourceManager that is restarted kills containers which its predecessor allocated and which had not started.
	j := p.busy(2, 20*time.Second)
	p.mapsRun(2)
	kubectl(p.t, "delete", "pods", "-n", "waterline-system", "-l", "app.kubernetes.io/name=waterline-manager", "--force",
		"--grace-period=0")
	p.killContainer("rm")
	p.unharmed(j)
	j = p.busy(2, 10*time.Second)
	p.mapsRun(2)
	p.killContainer("night-" + p.node.name)
	p.finish(j)
	p.t.Logf("%d maps were killed with the NodeManager", j.Counter("Killed map tasks"))
	p.until("the worker is at its ceiling", func(s *v1alpha1.WorkerPoolStatus) bool {
		return s.Active == 1 && s.Total.VCores == 10 && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
	})
}
