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
	"github.com/waterline-io/waterline/internal/model"
)

// HostConfig says what [NewHost] needs. Client, Custom and Experiment must be set.
type HostConfig struct {
	Client     rest.Interface // of the core API group
	Custom     rest.Interface // of Waterline's
	Node       string         // the node that this machine is; "": the only one that takes pods
	Image      string         // with sleep; "": DefaultIdleImage
	Experiment string         // value of the label on the pods
}

// DefaultIdleImage is an image of the test bed.
const DefaultIdleImage = "wl.test/busybox:1"

const (
	policyName     = "waterline-experiment"
	followTimeout  = time.Minute      // until an agent follows a policy
	runTimeout     = 3 * time.Minute  // until a pod runs: the node must first offer the batch CPU that it requests
	removeTimeout  = 30 * time.Second // until a deleted object is gone
	pollInterval   = 100 * time.Millisecond
	bootID         = "/proc/sys/kernel/random/boot_id"
	agentComponent = "app.kubernetes.io/name=waterline-agent"
)

// Host is this machine as a node of a cluster, with a real kubelet, a real agent and real pods. The pods are idle: an
// experiment starts processes in their cgroups itself, so that it can start, stop and count them like any other.
type Host struct {
	cfg       HostConfig
	node      *corev1.Node
	namespace string
	made      []string         // names of pods that the next Clean deletes
	lasting   map[Pod]Identity // pods that stay until Close
	kept      []string         // their names
	governs   bool             // the policy may exist
}

// Pod is a pod to make on a node. CPU is in milli-cores.
type Pod struct {
	Name         string
	RequestMilli int64
	BatchMilli   int64 // batch CPU request; above 0 the pod is a batch pod
	Lasts        bool  // it stays for further runs: for a minute an agent counts a new pod with all that it requests
}

// Identity is the UID of a pod and the id of its container.
type Identity struct{ UID, Container string }

// NewHost finds the node that this machine is.
func NewHost(ctx context.Context, cfg HostConfig) (*Host, error) {
	var nodes corev1.NodeList
	if err := cfg.Client.Get().Resource("nodes").Do(ctx).Into(&nodes); err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	node, err := ChooseNode(nodes.Items, cfg.Node)
	if err != nil {
		return nil, err
	}
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return nil, fmt.Errorf("reading the boot id of this machine: %w", err)
	}
	if is := strings.TrimSpace(string(boot)); node.Status.NodeInfo.BootID != is {
		return nil, fmt.Errorf("node %s is not this machine, whose boot id is %s; run it on the node itself", node.Name, is)
	}
	if cfg.Image == "" {
		cfg.Image = DefaultIdleImage
	}
	return &Host{cfg: cfg, node: node, namespace: "default", lasting: map[Pod]Identity{}}, nil
}

// Describe returns one line about the node.
func (h *Host) Describe() string { return DescribeNode(h.node) }

// Govern makes the node's agent follow a policy, the text of a ColocationPolicy, and returns once it does. "" stands
// for a policy that is disabled. The policy has precedence over all others, on this node only.
func (h *Host) Govern(ctx context.Context, text string) error {
	policy := v1alpha1.ColocationPolicy{Spec: v1alpha1.ColocationPolicySpec{Mode: v1alpha1.ModeDisabled}}
	if text != "" {
		if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
			return fmt.Errorf("reading the policy: %w", err)
		}
	}
	policy.ObjectMeta = metav1.ObjectMeta{Name: policyName}
	policy.Spec.Priority = 1 << 30
	hostname := v1alpha1.LabelValue(h.node.Labels[corev1.LabelHostname])
	policy.Spec.NodeSelector = &v1alpha1.LabelSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{corev1.LabelHostname: hostname},
	}
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
	return Wait(ctx, pollInterval, followTimeout, func() (string, bool, error) {
		var report v1alpha1.NodeReport
		err := h.cfg.Custom.Get().Resource("nodereports").Name(h.node.Name).Do(ctx).Into(&report)
		if err != nil && !apierrors.IsNotFound(err) {
			return "", false, fmt.Errorf("reading the report of node %s: %w", h.node.Name, err)
		}
		follows := report.Status.Policy == policyName && report.Status.PolicyGeneration == now.Generation
		return fmt.Sprintf("node %s follows policy %q", h.node.Name, report.Status.Policy), follows, nil
	})
}

// Run makes a pod, and returns once it runs. A pod that lasts is made once: a second call returns the same.
func (h *Host) Run(ctx context.Context, p Pod) (Identity, error) {
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
func (h *Host) start(ctx context.Context, pod *corev1.Pod) (made Identity, err error) {
	if err := h.cfg.Client.Post().Namespace(h.namespace).Resource("pods").Body(pod).Do(ctx).Error(); err != nil {
		return made, fmt.Errorf("making pod %s: %w", pod.Name, err)
	}
	err = Wait(ctx, pollInterval, runTimeout, func() (string, bool, error) {
		var is corev1.Pod
		err := h.cfg.Client.Get().Namespace(h.namespace).Resource("pods").Name(pod.Name).Do(ctx).Into(&is)
		if err != nil {
			return "", false, fmt.Errorf("reading pod %s: %w", pod.Name, err)
		}
		if err := Trouble(&is, "sleep"); err != nil {
			return "", false, err
		}
		made = identity(&is)
		return fmt.Sprintf("pod %s does not run: %s", pod.Name, Pending(&is)), Running(&is), nil
	})
	return made, err
}

func identity(p *corev1.Pod) Identity {
	id := Identity{UID: string(p.UID)}
	if len(p.Status.ContainerStatuses) > 0 {
		_, id.Container, _ = strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	}
	return id
}

// idle returns the manifest of an idle pod.
func (h *Host) idle(p Pod) *corev1.Pod {
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
				Name: "main", Image: h.cfg.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"sleep", "1000000"},
			}},
		},
	}
	requests := corev1.ResourceList{}
	switch {
	case p.BatchMilli > 0:
		pod.Labels[v1alpha1.LabelQoS] = string(model.ClassBE)
		requests[v1alpha1.ResourceBatchCPU] = *resource.NewQuantity(p.BatchMilli, resource.DecimalSI)
		pod.Spec.Containers[0].Resources.Limits = requests
	case p.RequestMilli > 0:
		requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(p.RequestMilli, resource.DecimalSI)
	}
	pod.Spec.Containers[0].Resources.Requests = requests
	return pod
}

// Agent returns the pod of the node's agent.
func (h *Host) Agent(ctx context.Context) (Identity, error) {
	var list corev1.PodList
	err := h.cfg.Client.Get().Resource("pods").Param("labelSelector", agentComponent).
		Param("fieldSelector", "status.phase=Running,spec.nodeName="+h.node.Name).Do(ctx).Into(&list)
	switch {
	case err != nil:
		return Identity{}, fmt.Errorf("listing the agents of node %s: %w", h.node.Name, err)
	case len(list.Items) != 1:
		return Identity{}, fmt.Errorf("%d agents run on node %s, not one; install the chart "+
			"there", len(list.Items), h.node.Name)
	}
	return identity(&list.Items[0]), nil
}

// Lost returns how many of the pods that were made no longer run, are being deleted, or were started again.
func (h *Host) Lost(ctx context.Context) (int, error) {
	lost := 0
	for _, name := range slices.Concat(h.made, h.kept) {
		var pod corev1.Pod
		err := h.cfg.Client.Get().Namespace(h.namespace).Resource("pods").Name(name).Do(ctx).Into(&pod)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("reading pod %s: %w", name, err)
		}
		if err != nil || !unharmed(&pod) {
			lost++
		}
	}
	return lost, nil
}

// unharmed reports whether a pod runs, is not being deleted, and was started once.
func unharmed(p *corev1.Pod) bool {
	restarted := slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.RestartCount > 0
	})
	return p.Status.Phase == corev1.PodRunning && Running(p) && p.DeletionTimestamp == nil && !restarted
}

// Clean deletes the pods that do not last, and returns when they are gone.
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
func (h *Host) remove(
	ctx context.Context, object string, client rest.Interface, path func(*rest.Request) *rest.Request,
) error {
	err := path(client.Delete()).Do(ctx).Error()
	if err == nil {
		err = Wait(ctx, pollInterval, removeTimeout, func() (string, bool, error) {
			return object + " still exists", apierrors.IsNotFound(path(client.Get()).Do(ctx).Error()), nil
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s, which must be done by hand: %w", object, err)
	}
	return nil
}
