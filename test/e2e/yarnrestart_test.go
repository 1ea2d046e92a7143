package e2e_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestYARNRestarts kills the agent, a manager, the guard and the ResourceManager at random moments while jobs run on a
// worker of the real node. No job fails. Afterwards the worker is the same pod, as large as wanted, with its guard. In
// full form there are 200 kills.
func TestYARNRestarts(t *testing.T) {
	kills := 8
	if soak {
		kills = 200
	}
	p := newNight(t)
	p.pool(`
  size: {floor: {cpu: 500m, memory: 1Gi}, ceiling: {cpu: "1", memory: 1536Mi}, step: {cpu: 100m, memory: 256Mi},
    pause: 2s, follow: {window: 0s}}
  identity: {coolDown: 1s}`)
	p.active(1)
	worker := "night-" + p.node.name
	before := object[corev1.Pod](t, "pod", worker, "-n", hadoopNamespace)
	dir := p.workerDir(&before)

	ctx, stop := context.WithCancel(t.Context())
	jobs := make(chan []error)
	go func() {
		var all []error
		for ctx.Err() == nil {
			all = append(all, runJob(t.Context(), p.rm, p.Sleep(t.Context(), 2, 1, 8*time.Second, onLabel...)))
		}
		jobs <- all
	}()
	p.killParts(worker, kills)
	stop()
	all := <-jobs
	t.Logf("%d jobs ran", len(all))
	for _, err := range all {
		if err != nil {
			t.Errorf("a job failed: %v", err)
		}
	}

	p.until("the worker is at its ceiling", func(s *v1alpha1.WorkerPoolStatus) bool {
		return s.Active == 1 && s.Total.VCores == 10 && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
	})
	kubectl(t, "rollout", "status", "daemonset/waterline-agent", "-n", "waterline-system", ready)
	kubectl(t, "wait", "-n", hadoopNamespace, "--for=condition=Ready", "pod/"+worker, "--timeout=6m")
	after := object[corev1.Pod](t, "pod", worker, "-n", hadoopNamespace)
	if s := after.Status.ContainerStatuses; after.UID != before.UID || len(s) != 1 || s[0].RestartCount > 0 {
		t.Errorf("the worker was made anew: %s, then %s: %+v", before.UID, after.UID, s)
	}
	if n, _ := p.oomKills(dir, worker); n > 0 {
		t.Errorf("the kernel killed %d processes of the worker for memory", n)
	}
}

// part is a part of the system that can be killed.
type part struct {
	name, namespace string
	is              func(p *corev1.Pod) bool
	container       string // "": the pod has one
	kills           int
}

// killParts kills parts of the system a number of times. Of those that run, it is one that was killed the least.
func (p *night) killParts(worker string, kills int) {
	p.t.Helper()
	of := func(key, value string) func(p *corev1.Pod) bool {
		return func(p *corev1.Pod) bool { return p.Labels[key] == value }
	}
	const label = "app.kubernetes.io/name"
	parts := []*part{
		{name: "the agent", namespace: "waterline-system", is: of(label, "waterline-agent")},
		{name: "a manager", namespace: "waterline-system", is: of(label, "waterline-manager")},
		{name: "the guard", namespace: hadoopNamespace, container: "guard",
			is: func(p *corev1.Pod) bool { return p.Name == worker }},
		{name: "the ResourceManager", namespace: hadoopNamespace, is: of("app", "resourcemanager")},
	}
	seed := uint64(time.Now().UnixNano())
	p.t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range kills {
		time.Sleep(time.Duration(r.Int64N(int64(12 * time.Second))))
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		slices.SortStableFunc(parts, func(a, b *part) int { return cmp.Compare(a.kills, b.kills) })
		eventually(p.t, "a part runs that can be killed", func() (bool, string) {
			i := slices.IndexFunc(parts, p.kill)
			if i >= 0 {
				parts[i].kills++
			}
			return i >= 0, "none does"
		})
	}
	for _, part := range parts {
		if p.t.Logf("%s was killed %d times", part.name, part.kills); part.kills == 0 {
			p.t.Errorf("%s was never killed", part.name)
		}
	}
}

// kill ends a container of a part as the kernel does when memory is short, and reports whether one ran.
func (p *night) kill(part *part) bool {
	p.t.Helper()
	for _, pod := range object[corev1.PodList](p.t, "pods", "-n", part.namespace).Items {
		if !part.is(&pod) || pod.DeletionTimestamp != nil {
			continue
		}
		for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if c.State.Running == nil || part.container != "" && c.Name != part.container {
				continue
			}
			_, id, _ := strings.Cut(c.ContainerID, "://")
			if out, err := (here{}).ctr("task", "kill", "-s", "SIGKILL", id); err != nil {
				p.t.Logf("killing %s: %v: %s", part.name, err, out) // it has ended meanwhile
				continue
			}
			if soak && part.namespace == "waterline-system" { // or the kubelet waits longer each time, up to five minutes
				kubectl(p.t, "delete", "pod", pod.Name, "-n", part.namespace, "--force", "--grace-period=0")
			}
			return true
		}
	}
	return false
}
