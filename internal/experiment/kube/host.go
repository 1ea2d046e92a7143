package kube

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/experiment"
)

// HostConfig says what [NewHost] needs. All fields but Node and Image must be set.
type HostConfig struct {
	Client rest.Interface // of the core API group
	Custom rest.Interface // of Waterline's
	Node   string         // the node that this machine is; "": the only one that takes pods
	Image  string         // with a shell; "": DefaultIdleImage

	Experiment string // that makes the pods, whose label says so
}

// DefaultIdleImage is that of the test bed.
const DefaultIdleImage = "wl.test/busybox:1"

const (
	policyName = "waterline-experiment"
	following  = time.Minute     // the longest until an agent goes by a policy
	selling    = 3 * time.Minute // the longest until a pod runs, what it asks for being sold before
	bootID     = "/proc/sys/kernel/random/boot_id"
	everyWhile = 100 * time.Millisecond
)

// Host is this machine as a node of a cluster. It implements [experiment.Node].
type Host struct {
	cfg       HostConfig
	node      *corev1.Node
	namespace string
	made      []string                               // names of pods that the next [Host.Clean] deletes
	lasting   map[experiment.NodePod]experiment.Made // that stay
	kept      []string                               // their names
	governs   bool                                   // the policy may be there
}

var _ experiment.Node = (*Host)(nil)

// NewHost finds the node that this machine is.
func NewHost(ctx context.Context, cfg HostConfig) (*Host, error) {
	var nodes corev1.NodeList
	if err := cfg.Client.Get().Resource("nodes").Do(ctx).Into(&nodes); err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	node, err := chooseNode(nodes.Items, cfg.Node)
	if err != nil {
		return nil, err
	}
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return nil, fmt.Errorf("asking which machine this is: %w", err)
	}
	if is := strings.TrimSpace(string(boot)); node.Status.NodeInfo.BootID != is {
		return nil, fmt.Errorf("node %s is not this machine, whose boot id is %s; run it on the node itself", node.Name, is)
	}
	if cfg.Image == "" {
		cfg.Image = DefaultIdleImage
	}
	return &Host{cfg: cfg, node: node, namespace: "default", lasting: map[experiment.NodePod]experiment.Made{}}, nil
}

// Describe implements [experiment.Node].
func (h *Host) Describe() string { return describeNode(h.node) }

// Govern implements [experiment.Node]. The policy goes before all others and holds on this node only.
func (h *Host) Govern(ctx context.Context, text string) error {
	policy := v1alpha1.ColocationPolicy{Spec: v1alpha1.ColocationPolicySpec{Mode: "Off"}}
	if text != "" {
		if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
			return fmt.Errorf("reading the policy: %w", err)
		}
	}
	policy.ObjectMeta = metav1.ObjectMeta{Name: policyName}
	policy.Spec.Priority = 1 << 30
	hostname := v1alpha1.LabelValue(h.node.Labels[corev1.LabelHostname])
	policy.Spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{corev1.LabelHostname: hostname}}
	h.governs = true
	var now v1alpha1.ColocationPolicy
	err := h.cfg.Custom.Get().Resource("colocationpolicies").Name(policyName).Do(ctx).Into(&now)
	switch {
	case apierrors.IsNotFound(err):
		err = h.cfg.Custom.Post().Resource("colocationpolicies").Body(&policy).Do(ctx).Into(&now)
	case err == nil:
		policy.ResourceVersion = now.ResourceVersion
		err = h.cfg.Custom.Put().Resource("colocationpolicies").Name(policyName).Body(&policy).Do(ctx).Into(&now)
	}
	if err != nil {
		return fmt.Errorf("writing policy %s: %w", policyName, err)
	}
	return wait(ctx, everyWhile, following, func() (string, bool, error) {
		var report v1alpha1.NodeReport
		err := h.cfg.Custom.Get().Resource("nodereports").Name(h.node.Name).Do(ctx).Into(&report)
		if err != nil && !apierrors.IsNotFound(err) {
			return "", false, fmt.Errorf("reading the report of node %s: %w", h.node.Name, err)
		}
		follows := report.Status.Policy == policyName && report.Status.PolicyGeneration == now.Generation
		return fmt.Sprintf("node %s goes by policy %q", h.node.Name, report.Status.Policy), follows, nil
	})
}

// Run implements [experiment.Node]. Pods that last stay until [Host.Close], and serve again who asks for the same.
func (h *Host) Run(ctx context.Context, p experiment.NodePod) (experiment.Made, error) {
	if made, found := h.lasting[p]; found {
		return made, nil
	}
	pod := h.idle(p)
	names := &h.made
	if p.Lasts {
		names = &h.kept
	}
	*names = append(*names, pod.Name)
	made, err := h.start(ctx, pod)
	if err == nil && p.Lasts {
		h.lasting[p] = made
	}
	return made, err
}

// start makes a pod, and returns once it runs.
func (h *Host) start(ctx context.Context, pod *corev1.Pod) (made experiment.Made, err error) {
	if err := h.cfg.Client.Post().Namespace(h.namespace).Resource("pods").Body(pod).Do(ctx).Error(); err != nil {
		return made, fmt.Errorf("making pod %s: %w", pod.Name, err)
	}
	err = wait(ctx, everyWhile, selling, func() (string, bool, error) {
		var is corev1.Pod
		if err := h.cfg.Client.Get().Namespace(h.namespace).Resource("pods").Name(pod.Name).Do(ctx).Into(&is); err != nil {
			return "", false, fmt.Errorf("looking at pod %s: %w", pod.Name, err)
		}
		if err := trouble(&is); err != nil {
			return "", false, err
		}
		made = madeOf(&is)
		return fmt.Sprintf("pod %s does not run: %s", pod.Name, pending(&is)), running(&is), nil
	})
	return made, err
}

func madeOf(p *corev1.Pod) experiment.Made {
	made := experiment.Made{UID: string(p.UID)}
	if len(p.Status.ContainerStatuses) > 0 {
		_, made.Container, _ = strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	}
	return made
}

// idle returns a pod in which nothing runs.
func (h *Host) idle(p experiment.NodePod) *corev1.Pod {
	no, now := false, int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("%s-%s", p.Name, strings.ToLower(rand.Text()[:6])),
			Labels: map[string]string{v1alpha1.LabelExperiment: h.cfg.Experiment},
		},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: h.node.Labels[corev1.LabelHostname]},
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &now,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			Containers: []corev1.Container{{
				Name: "main", Image: h.cfg.Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "1000000"},
			}},
		},
	}
	requests := corev1.ResourceList{}
	switch {
	case p.BatchMilli > 0:
		pod.Labels[v1alpha1.LabelQoS] = "BE"
		requests[v1alpha1.ResourceBatchCPU] = *resource.NewQuantity(p.BatchMilli, resource.DecimalSI)
		pod.Spec.Containers[0].Resources.Limits = requests
	case p.RequestMilli > 0:
		requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(p.RequestMilli, resource.DecimalSI)
	}
	pod.Spec.Containers[0].Resources.Requests = requests
	return pod
}

// Agent implements [experiment.Node].
func (h *Host) Agent(ctx context.Context) (experiment.Made, error) {
	var list corev1.PodList
	err := h.cfg.Client.Get().Resource("pods").Param("labelSelector", "app.kubernetes.io/name=waterline-agent").
		Param("fieldSelector", "status.phase=Running,spec.nodeName="+h.node.Name).Do(ctx).Into(&list)
	switch {
	case err != nil:
		return experiment.Made{}, fmt.Errorf("looking for the agent of node %s: %w", h.node.Name, err)
	case len(list.Items) != 1:
		return experiment.Made{}, fmt.Errorf("node %s has %d agents that run; install the chart there", h.node.Name, len(list.Items))
	}
	return madeOf(&list.Items[0]), nil
}

// Lost implements [experiment.Node].
func (h *Host) Lost(ctx context.Context) (int, error) {
	lost := 0
	for _, name := range slices.Concat(h.made, h.kept) {
		var pod corev1.Pod
		err := h.cfg.Client.Get().Namespace(h.namespace).Resource("pods").Name(name).Do(ctx).Into(&pod)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("looking at pod %s: %w", name, err)
		}
		if err != nil || !unharmed(&pod) {
			lost++
		}
	}
	return lost, nil
}

// unharmed reports whether a pod runs, nobody has it stop, and what is in it was started once.
func unharmed(p *corev1.Pod) bool {
	again := slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.RestartCount > 0 })
	return p.Status.Phase == corev1.PodRunning && running(p) && p.DeletionTimestamp == nil && !again
}

// Clean implements [experiment.Node]. It returns when the pods are gone.
func (h *Host) Clean(ctx context.Context) error {
	var errs []error
	for _, name := range h.made {
		errs = append(errs, h.remove(ctx, "pod "+name, h.cfg.Client, func(r *rest.Request) *rest.Request {
			return r.Namespace(h.namespace).Resource("pods").Name(name)
		}))
	}
	h.made = nil
	return errors.Join(errs...)
}

// Close deletes all that was made.
func (h *Host) Close(ctx context.Context) error {
	h.made = append(h.made, h.kept...)
	h.lasting, h.kept = nil, nil
	err := h.Clean(ctx)
	if h.governs {
		err = errors.Join(err, h.remove(ctx, "policy "+policyName, h.cfg.Custom, func(r *rest.Request) *rest.Request {
			return r.Resource("colocationpolicies").Name(policyName)
		}))
	}
	return err
}

// remove deletes an object and waits until it is gone.
func (h *Host) remove(ctx context.Context, what string, client rest.Interface, path func(*rest.Request) *rest.Request) error {
	err := path(client.Delete()).Do(ctx).Error()
	if err == nil {
		err = wait(ctx, everyWhile, ending, func() (string, bool, error) {
			return what + " is still there", apierrors.IsNotFound(path(client.Get()).Do(ctx).Error()), nil
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s, which must be done by hand: %w", what, err)
	}
	return nil
}
