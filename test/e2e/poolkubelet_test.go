package e2e_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/fakerm"
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
		if k.deleted.IsZero() {
			k.deleted, k.lastBusy = pod.DeletionTimestamp.Time, now
		}
		// The hook waits until no container ran for four seconds. When the pod is deleted once more with a shorter time,
		// it does not learn of that.
		if k.pool.Node(k.host).Containers > 0 {
			k.lastBusy = now
		}
		if k.started && now.Before(k.deleted) && now.Sub(k.lastBusy) < 4*time.Second {
			return
		}
		k.gone = true
		k.close()
		if k.started {
			y.stop(k, now)
		}
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
	case k.started && k.pool.as == nil && !k.pool.Up(k.host): // the container is started again
		k.pool.Start(fakerm.Worker{Host: k.host, Size: k.floor, Label: k.pool.label})
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

// start runs a pod: its NodeManager starts with what its yarn-site.xml says.
func (y *yard) start(ctx context.Context, k *yarnPod) error {
	pod := k.pod
	floor, err := y.floor(ctx, k.pool, metav1.GetControllerOf(pod).Name)
	if err != nil {
		return err
	}
	y.mu.Lock()
	k.floor = floor
	if k.pool.Hosts()[k.host] != k.pool.label {
		k.pool.unlabelled++
	}
	y.mu.Unlock()
	as := k.host
	if k.pool.as != nil {
		as = k.pool.as(k.host)
	}
	ip := fmt.Sprintf("10.77.%d.%d", pod.UID[0], pod.UID[1])
	if as != k.host {
		ip = bed.HostAddress()
		k.serve(ip, as)
	}
	if as == "" {
		k.pool.Start(fakerm.Worker{Host: k.host, Size: floor, Label: k.pool.label, Never: true})
	} else {
		k.pool.Start(fakerm.Worker{Host: as, Size: floor, Label: k.pool.label})
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

// floor reads the size in the yarn-site.xml of a pool's workers.
func (y *yard) floor(ctx context.Context, p *yarnPool, name string) (fakerm.Size, error) {
	var config corev1.ConfigMap
	err := y.core.Get().Namespace(poolNamespace).Resource("configmaps").Name(name + "-workers").Do(ctx).Into(&config)
	if err != nil {
		return fakerm.Size{}, err
	}
	content := config.Data["yarn-site.xml"]
	y.mu.Lock()
	defer y.mu.Unlock()
	if known, found := p.floors[content]; found {
		return known, nil
	}
	var text struct {
		Properties []struct {
			Name  string `xml:"name"`
			Value string `xml:"value"`
		} `xml:"property"`
	}
	if err := xml.Unmarshal([]byte(content), &text); err != nil {
		return fakerm.Size{}, err
	}
	var size fakerm.Size
	for _, property := range text.Properties {
		n, _ := strconv.ParseInt(property.Value, 10, 64)
		switch property.Name {
		case "yarn.nodemanager.resource.memory-mb":
			size.MemoryMiB = n
		case "yarn.nodemanager.resource.cpu-vcores":
			size.VCores = n
		}
	}
	p.floors[content] = size
	return size, nil
}

// serve serves the web services of a NodeManager that registers under another name.
func (k *yarnPod) serve(ip, as string) {
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "8042"))
	if err != nil {
		k.pool.complaints = append(k.pool.complaints, err.Error())
		return
	}
	name := as
	if name == "" {
		name = k.host
	}
	k.server = &http.Server{Handler: k.pool.NodeManager(name, as), ReadHeaderTimeout: time.Second}
	go func() {
		if err := k.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
}

func (k *yarnPod) close() {
	if k.server != nil {
		_ = k.server.Close()
	}
}

// stop ends a pod in order, and counts the containers that end before their time.
func (y *yard) stop(k *yarnPod, now time.Time) {
	n := k.pool.Stop(k.host)
	if n == 0 {
		return
	}
	k.pool.ended += n
	if by := k.end(); by.IsZero() || now.Before(by) {
		k.pool.early += n
		k.pool.complaints = append(k.pool.complaints, fmt.Sprintf("%s: %d containers ended with the pod before %s: %s",
			now.Format(time.StampMilli), n, by.Format(time.StampMilli), k.pod.Annotations[v1alpha1.AnnotationPoolMarks]))
	}
}

func (k *yarnPod) marks() (m pool.Marks) {
	_ = json.Unmarshal([]byte(k.pod.Annotations[v1alpha1.AnnotationPoolMarks]), &m) // none: nothing may end
	return m
}

// end returns when a worker's containers may end with its pod; zero: never. Nothing but the marks on the pod says so.
func (k *yarnPod) end() time.Time {
	m := k.marks()
	by := m.End
	earlier := func(t time.Time) {
		if by.IsZero() || t.Before(by) {
			by = t
		}
	}
	if !m.Leaving.IsZero() {
		earlier(m.Leaving.Add(k.pool.drain))
	}
	if !m.Until.IsZero() {
		earlier(m.Until)
	}
	return by
}
