package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/bed/trino"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
	"github.com/waterline-io/waterline/test/poll"
)

// trinoBed is the Trino cluster beside the API server; nil without -on=trino. It is set once, before any test.
var trinoBed *trino.Bed

// trinoRuntime runs real workers of Trino, which register at the real coordinator of this process's namespaces. It does
// what a kubelet and a container runtime do: it puts the pod's configuration together, runs its hook, keeps its times,
// and notes that a container that ended with code 0 is over.
type trinoRuntime struct {
	y    *yard
	pool *yarnPool

	mu      sync.Mutex
	workers map[types.UID]*trinoWorker
}

// trinoWorker is the container of a pod.
type trinoWorker struct {
	daemon   *hadoop.Daemon
	env      []string
	stopping chan struct{} // closed when the pod has stopped; nil: it is not to stop
}

// start implements [podRuntime].
func (r *trinoRuntime) start(ctx context.Context, k *yarnPod) (ip string, err error) {
	addresses, err := net.LookupHost(k.host)
	if err != nil {
		return "", fmt.Errorf("a worker's host has no name; the test names the hosts of its nodes: %w", err)
	}
	files, err := r.files(ctx, k.pod)
	if err != nil {
		return "", err
	}
	w := &trinoWorker{}
	for _, e := range k.pod.Spec.Containers[0].Env {
		w.env = append(w.env, e.Name+"="+e.Value)
	}
	if w.daemon, err = trinoBed.Pod(k.pod.Name, addresses[0], files, w.env); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers[k.pod.UID] = w
	if err := w.daemon.Start(); err != nil {
		return "", err
	}
	pod := k.pod
	r.y.jobs.Go(func() { r.await(ctx, pod, w) })
	return addresses[0], nil
}

// await notes the end of a container that ended by itself.
func (r *trinoRuntime) await(ctx context.Context, pod *corev1.Pod, w *trinoWorker) {
	select {
	case <-w.daemon.Done():
	case <-ctx.Done():
		return
	}
	phase := corev1.PodSucceeded
	if w.daemon.ExitCode() != 0 {
		phase = corev1.PodFailed
		r.y.complain(r.pool, fmt.Errorf("the worker of %s ended with code %d", pod.Name, w.daemon.ExitCode()))
	}
	r.y.note(r.pool, "the worker of %s ended with code %d", pod.Name, w.daemon.ExitCode())
	_ = r.y.patchPod(ctx, pod, corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(w.daemon.ExitCode()), FinishedAt: metav1.Now(),
		}},
	}}}) // the pod may be gone meanwhile
}

// files returns what the pod's projected volumes have, by the path in the container.
func (r *trinoRuntime) files(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	files := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		at := ""
		for _, m := range pod.Spec.Containers[0].VolumeMounts {
			if m.Name == v.Name {
				at = m.MountPath
			}
		}
		for _, source := range v.Projected.Sources {
			var config corev1.ConfigMap
			err := r.y.core.Get().Namespace(pod.Namespace).Resource("configmaps").Name(source.ConfigMap.Name).Do(ctx).
				Into(&config)
			if err != nil {
				return nil, err
			}
			for key, content := range config.Data {
				if len(source.ConfigMap.Items) == 0 {
					files[filepath.Join(at, key)] = content
				}
			}
			for _, item := range source.ConfigMap.Items {
				files[filepath.Join(at, item.Path)] = config.Data[item.Key]
			}
		}
	}
	return files, nil
}

// up implements [podRuntime]. A container that ended is not started again.
func (r *trinoRuntime) up(*yarnPod) bool { return true }

// stops implements [podRuntime].
func (r *trinoRuntime) stops(k *yarnPod, _ time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.workers[k.pod.UID]
	if w == nil {
		return true
	}
	if !r.y.ended(&w.stopping, func() { r.terminate(k, w) }) {
		return false
	}
	delete(r.workers, k.pod.UID)
	return true
}

// terminate runs the pod's hook until the worker has ended or the pod's time is over, and then ends the worker.
func (r *trinoRuntime) terminate(k *yarnPod, w *trinoWorker) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	command := k.pod.Spec.Containers[0].Lifecycle.PreStop.Exec.Command
	hook := exec.CommandContext(ctx, command[0], command[1:]...)
	hook.Env = append(os.Environ(), w.env...)
	go func() { _ = hook.Run() }() // it is killed with the container
	for {
		r.y.mu.Lock()
		// A second deletion may have made the time shorter.
		over := !time.Now().Before(k.pod.DeletionTimestamp.Time) // clock: a kubelet ends a pod when its time is over
		r.y.mu.Unlock()
		select {
		case <-w.daemon.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
		if !over {
			continue
		}
		r.y.note(r.pool, "the time of %s is over", k.pod.Name)
		within, stop := context.WithTimeout(context.Background(), 2*time.Second)
		_ = w.daemon.Stop(within) // else it is killed
		stop()
		r.end(w)
		return
	}
}

func (r *trinoRuntime) end(w *trinoWorker) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.daemon.Kill(ctx); err != nil {
		r.y.complain(r.pool, err)
	}
}

// kill implements [podRuntime].
func (r *trinoRuntime) kill(k *yarnPod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.workers[k.pod.UID]; w != nil && w.stopping == nil {
		delete(r.workers, k.pod.UID)
		r.y.jobs.Go(func() { r.end(w) })
	}
}

// TestTrinoPool runs a pool of real workers of Trino, which come and go while queries run: somebody deletes a pod, a
// node offers less for minutes, and the pool is deleted. No query fails, and every worker ends by itself.
func TestTrinoPool(t *testing.T) {
	if *on != "trino" {
		t.Skip("there is no coordinator; -on=trino starts one")
	}
	y := newYard(t)
	p := &yarnPool{}
	r := &trinoRuntime{y: y, pool: p, workers: map[types.UID]*trinoWorker{}}
	p.runtime = r
	y.mu.Lock()
	y.pools["olap"] = p
	y.mu.Unlock()
	var names hadoop.Bed
	for _, node := range []string{"olap-0", "olap-1"} {
		if _, err := names.NameHost(poolHost("olap", node)); err != nil {
			t.Fatal(err)
		}
		y.offer(t, node, "olap", cpuMemory(3, 6))
	}
	catalogs := &corev1.ConfigMap{Data: map[string]string{"tpch.properties": "connector.name=tpch\n"}}
	catalogs.Name = "catalogs"
	err := y.core.Post().Namespace(poolNamespace).Resource("configmaps").Body(catalogs).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	y.manager("--pools=" + poolNamespace)
	defer func() {
		if t.Failed() {
			y.mu.Lock()
			t.Logf("%s\n%s", strings.Join(p.notes, "\n"), trinoBed.LogTails())
			y.mu.Unlock()
		}
	}()
	y.create(t, fmt.Sprintf(`
apiVersion: waterline.io/v1alpha1
kind: WorkerPool
metadata: {name: olap, namespace: %s}
spec:
  trino: {coordinator: %q, environment: bed, catalogs: {name: catalogs}, gracePeriod: 15s}
  nodeSelector: {matchLabels: {pool: olap}}
  size: {floor: {cpu: "2", memory: 4Gi}}
  identity: {coolDown: 1s}
  template: {spec: {containers: [{name: worker, image: trino}]}}
`, poolNamespace, trino.Coordinator))
	slowly(t, y, "two active workers", func(p *v1alpha1.WorkerPool) bool { return p.Status.Active == 2 })

	raining, stop := context.WithCancel(t.Context())
	var fallen trino.Storm
	done := make(chan struct{})
	go func() {
		defer close(done)
		fallen = trino.Rain(raining, 2*time.Second)
	}()
	defer func() { stop(); <-done }()

	t.Log("somebody deletes a pod, and its hook waits")
	if status := y.request(http.MethodDelete, "/api/v1/namespaces/"+poolNamespace+"/pods/olap-olap-0", ""); status != 200 {
		t.Fatalf("status %d", status)
	}
	slowly(t, y, "one leaves", func(p *v1alpha1.WorkerPool) bool { return p.Status.Leaving == 1 })
	slowly(t, y, "two are active again", func(p *v1alpha1.WorkerPool) bool {
		return p.Status.Active == 2 && p.Status.Leaving == 0
	})

	t.Log("a node offers less than its worker requests, for longer than a minute")
	y.offer(t, "olap-1", "olap", cpuMemory(1, 2))
	slowly(t, y, "its worker drains for that", func(p *v1alpha1.WorkerPool) bool {
		for _, w := range p.Status.Workers {
			if w.Name == "olap-olap-1" && w.Phase == "Draining" && w.Reason == "LessSlack" {
				return true
			}
		}
		return false
	})
	slowly(t, y, "one worker", func(p *v1alpha1.WorkerPool) bool {
		return p.Status.Wanted == 1 && p.Status.Active == 1 && p.Status.Leaving == 0
	})

	stop()
	<-done
	t.Logf("%s", fallen)
	if fallen.Queries < 50 {
		t.Errorf("only %d queries", fallen.Queries)
	}
	for _, err := range fallen.Failed {
		t.Error(err)
	}

	t.Log("the pool is deleted, and its workers drain")
	if status := y.request(http.MethodDelete, poolPath+"olap", ""); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	slowly(t, y, "the pool is gone", func(p *v1alpha1.WorkerPool) bool { return p.Name == "" })
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(p.complaints) > 0 {
		t.Errorf("%q", p.complaints)
	}
	for _, note := range p.notes {
		if strings.Contains(note, "is over") {
			t.Error(note)
		}
	}
}

// slowly waits until the pool of Trino has a state. A worker takes minutes to start on a busy machine.
func slowly(t *testing.T, y *yard, what string, is func(p *v1alpha1.WorkerPool) bool) {
	t.Helper()
	start := time.Now()
	var status v1alpha1.WorkerPoolStatus
	held := poll.Until(8*time.Minute, time.Second, func() bool {
		p := y.poolOf(t, "olap")
		status = p.Status
		return is(&p)
	})
	if !held {
		t.Fatalf("not within eight minutes: %s; instead %+v", what, status)
	}
	t.Logf("%s after %.1f s", what, time.Since(start).Seconds())
}
