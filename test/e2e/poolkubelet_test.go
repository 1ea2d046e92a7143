package e2e_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
)

func (y *yard) newPod(pod *corev1.Pod) *yarnPod {
	k := &yarnPod{pod: pod}
	if o := metav1.GetControllerOf(pod); o != nil && o.Kind == "WorkerPool" {
		k.pool = y.pools[o.Name]
	}
	for _, c := range pod.Spec.Containers {
		cpu, memory := c.Resources.Requests[v1alpha1.ResourceBatchCPU], c.Resources.Requests[v1alpha1.ResourceBatchMemory]
		k.requests = k.requests.Plus(model.Amount{CPU: cpu.Value(), Memory: memory.Value()})
		for _, e := range c.Env {
			if e.Name == "WATERLINE_HOST" {
				k.host = e.Value
			}
		}
	}
	return k
}

// attend does the next thing for a pod, beside the rounds.
func (y *yard) attend(ctx context.Context, k *yarnPod, now time.Time) {
	do := func(what func() error) {
		k.busy = true
		y.jobs.Go(func() {
			err := what()
			y.mu.Lock()
			defer y.mu.Unlock()
			if k.busy = false; err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				k.pool.complaints = append(k.pool.complaints, err.Error())
			}
		})
	}
	pod := k.pod
	switch {
	case k.gone:
	case pod.DeletionTimestamp != nil:
		if !k.pool.runtime.stops(k, now) {
			return
		}
		k.gone = true
		do(func() error {
			zero := int64(0)
			return y.core.Delete().Namespace(poolNamespace).Resource("pods").Name(pod.Name).Body(&metav1.DeleteOptions{
				GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID},
			}).Do(ctx).Error()
		})
	case pod.Spec.NodeName == "" && !k.bound:
		node := y.schedule(pod)
		if node == "" {
			return
		}
		k.bound = true
		do(func() error {
			return y.core.Post().Namespace(poolNamespace).Resource("pods").Name(pod.Name).SubResource("binding").
				Body(&corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node},
					ObjectMeta: metav1.ObjectMeta{Namespace: poolNamespace, Name: pod.Name}}).Do(ctx).Error()
		})
	case pod.Spec.NodeName != "" && !k.started:
		k.started = true
		do(func() error { return y.start(ctx, k) })
	case k.started && !k.pool.runtime.up(k): // the container is started again
		do(func() error { return y.start(ctx, k) })
	}
}

// schedule returns the node of a pod: the one that it names, or any of its pool that has no other worker.
func (y *yard) schedule(pod *corev1.Pod) string {
	affinity := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for _, term := range affinity.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField {
				return f.Values[0]
			}
		}
	}
	taken := map[string]bool{}
	for _, k := range y.pods {
		taken[k.pod.Spec.NodeName] = true
	}
	for _, name := range slices.Sorted(maps.Keys(y.nodes)) {
		if strings.HasPrefix(name, affinity.NodeSelectorTerms[0].MatchExpressions[0].Values[0]+"-") && !taken[name] {
			return name
		}
	}
	return ""
}

// start runs a pod, or runs it again.
func (y *yard) start(ctx context.Context, k *yarnPod) error {
	pod := k.pod
	ip, err := k.pool.runtime.start(ctx, k)
	if err != nil {
		return err
	}
	return y.patchPod(ctx, pod, corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
				StartedAt: metav1.NewTime(time.Now().Add(-k.pool.boot)),
			}},
		}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
		},
	})
}

func (y *yard) patchPod(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	return y.core.Patch(types.StrategicMergePatchType).Namespace(poolNamespace).Resource("pods").Name(pod.Name).
		SubResource("status").Body(body).Do(ctx).Error()
}

func (k *yarnPod) marks() pool.Marks { return marksOf(k.pod) }

func marksOf(pod *corev1.Pod) (m pool.Marks) {
	_ = json.Unmarshal([]byte(pod.Annotations[v1alpha1.AnnotationPoolMarks]), &m) // none: nothing may end
	return m
}

// ending returns when a worker's containers may end with its pod. Nothing but the marks on the pod says so, now or when
// it was deleted.
func (k *yarnPod) ending() ending {
	is, was := k.pool.end(k.marks()), k.pool.end(k.past.deleted)
	if !was.by.IsZero() && (is.by.IsZero() || was.by.Before(is.by)) {
		return was
	}
	return is
}

// end returns what marks say about the end of a pod.
func (p *yarnPool) end(m pool.Marks) ending {
	by := m.End
	earlier := func(t time.Time) {
		if by.IsZero() || t.Before(by) {
			by = t
		}
	}
	if !m.Leaving.IsZero() {
		earlier(m.Leaving.Add(p.drain))
	}
	if !m.Until.IsZero() {
		earlier(m.Until)
	}
	return ending{m.Leaving, by}
}
