// Package sweep searches for batch pods that were admitted without the webhook, and sums up what batch pods request.
package sweep

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/manager/cache"
	"github.com/waterline-io/waterline/internal/manager/fleet"
)

// page is the number of pods in one list call. None is kept, so this bounds the memory of a sweep.
const page = 500

// Sweeper searches for batch pods that were admitted without the webhook, and sums up what the others request. Watching
// all pods would cost more than a search every few minutes, and the only action is an event for the owner.
type Sweeper struct {
	core       rest.Interface
	policies   *fleet.Policies
	namespaces *cache.Table[map[string]string] // that opted in, with their labels
	identity   string
	published  map[string]time.Time // owners with an event, by UID
}

// New returns a sweeper. The namespaces are those that opted in, with their labels; the identity is that of events.
func New(
	core rest.Interface, policies *fleet.Policies, namespaces *cache.Table[map[string]string], identity string,
) *Sweeper {
	return &Sweeper{
		core: core, policies: policies, namespaces: namespaces, identity: identity, published: map[string]time.Time{},
	}
}

// Sweep returns the number of slipped pods on the nodes of each policy, and what batch pods request. It writes one
// event for each owner of slipped pods.
func (s *Sweeper) Sweep(ctx context.Context, governed map[string]string) (map[string]int32, Requests, error) {
	rules := s.policies.Rules()
	slipped, requested := map[string]int32{}, Requests{}
	look := func(pod *corev1.Pod, namespace *corev1.Namespace) error {
		requested.add(pod)
		if !s.slips(rules, pod, namespace) {
			return nil
		}
		if policy := governed[pod.Spec.NodeName]; policy != "" {
			slipped[policy]++
		}
		return s.report(ctx, pod)
	}
	for _, labels := range []string{
		v1alpha1.LabelQoS + "=BE", v1alpha1.LabelQoSAlias + "=BE," + v1alpha1.LabelQoS + "!=BE",
	} {
		err := s.each(ctx, "", labels, func(pod *corev1.Pod) error { return look(pod, nil) })
		if err != nil {
			return nil, nil, err
		}
	}
	if len(rules.Pods) == 0 {
		return slipped, requested, nil
	}
	namespaces, _ := s.namespaces.All()
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: namespaces[name]}}
		err := s.each(ctx, name, "!"+v1alpha1.LabelQoS+",!"+v1alpha1.LabelQoSAlias,
			func(pod *corev1.Pod) error { return look(pod, namespace) })
		if err != nil {
			return nil, nil, err
		}
	}
	return slipped, requested, nil
}

// slips reports whether a pod is batch and has native requests. A pod older than the policy that makes it batch does
// not count, because no policy applied to it. If the policy was changed since, earlier pods count as well, until they
// are recreated.
func (s *Sweeper) slips(rules admit.Rules, pod *corev1.Pod, namespace *corev1.Namespace) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	_, o := rules.Mutate(pod, namespace)
	if o.Why == admit.ByPolicy {
		if p, there := s.policies.Get(o.Policy); !there || pod.CreationTimestamp.Time.Before(p.Created) {
			return false
		}
	}
	return (o.Why == admit.ByLabel || o.Why == admit.ByPolicy) && admit.RequestsNative(pod)
}

// each calls f for the pods that a label selector matches, one page after another.
func (s *Sweeper) each(ctx context.Context, namespace, labels string, f func(*corev1.Pod) error) error {
	for next := ""; ; {
		var list corev1.PodList
		request := s.core.Get().Resource("pods").Param("labelSelector", labels).Param("limit", strconv.Itoa(page))
		if namespace != "" {
			request = request.Namespace(namespace)
		}
		if next != "" {
			request = request.Param("continue", next)
		}
		if err := request.Do(ctx).Into(&list); err != nil {
			return fmt.Errorf("listing pods with %s: %w", labels, err)
		}
		for i := range list.Items {
			if err := f(&list.Items[i]); err != nil {
				return err
			}
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// report writes an event for a slipped pod's owner, once, whichever replica leads.
func (s *Sweeper) report(ctx context.Context, pod *corev1.Pod) error {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	if by := metav1.GetControllerOfNoCopy(pod); by != nil {
		about = corev1.ObjectReference{
			APIVersion: by.APIVersion, Kind: by.Kind, Namespace: pod.Namespace, Name: by.Name, UID: by.UID,
		}
	}
	now := time.Now()
	maps.DeleteFunc(s.published, func(_ string, at time.Time) bool { return now.Sub(at) > 24*time.Hour })
	if _, published := s.published[string(about.UID)]; published {
		return nil
	}
	if err := actkube.Warn(ctx, s.core, actkube.Manager(s.identity), about, reasonSlipped, slippedText(pod.Name),
		string(about.UID)+reasonSlipped); err != nil {
		return err
	}
	s.published[string(about.UID)] = now
	return nil
}

// reasonSlipped is the reason of the event about slipped pods.
const reasonSlipped = "NotAdmitted"

// slippedText is the text of that event.
func slippedText(pod string) string {
	return fmt.Sprintf("Pod %s is batch and was admitted without batch requests, because nothing was sold when it was "+
		"created, Waterline's webhook was unreachable, or the pod was not batch yet. "+
		"The scheduler counts it as an online pod. Delete it, so that its owner creates it again.", pod)
}
