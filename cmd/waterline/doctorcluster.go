package main

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	semver "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

func doctorClusterCommand() *cobra.Command {
	var cluster reach
	var o output
	agents := 10
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Check the cluster: troubles, versions, other agents, what keeps batch pods from running or scaling",
		Long: `Check the cluster through the API, without root:

  * the troubles that "waterline status" lists
  * versions of kubelets, kernels and container runtimes that Waterline does not support
  * what agents cannot do, such as read the settings of their kubelets, and the value that helps
  * other agents that write the same cgroup files: their DaemonSets, and files that agents fight over
  * namespaces in which the API server refuses every batch pod, because a LimitRange or a ResourceQuota requires pods to
    ask for CPU or memory, for which batch pods do not ask. It looks at namespaces labelled
    waterline.io/colocation=enabled, and at those that have pods labelled waterline.io/qos=BE or
    koordinator.sh/qosClass=BE
  * autoscalers that scale batch pods by a percentage of the CPU or memory that they request, which is none, and
    vertical ones that evict them for such requests

It runs anywhere. It needs the rights to list what "waterline status" needs, and namespaces, pods, limitranges,
resourcequotas, daemonsets, horizontalpodautoscalers and verticalpodautoscalers; to ask agents, also to create
pods/portforward in Waterline's namespace. It says what it could not check. The exit code is 1 if something is bad, or could not be checked.`,
		Args: noArguments,
		RunE: cluster.connected(func(c *cobra.Command, a *apis) error {
			d := doctor{out: c.OutOrStdout(), output: &o}
			d.cluster(c.Context(), a, agents)
			return d.result()
		}),
	}
	cluster.flags(c)
	o.flag(c, formWide)
	c.Flags().IntVar(&agents, "agents", agents, "how many agents to ask which files others fight over; 0: none")
	return c
}

// cluster checks what the API shows. A check that RBAC denies counts as bad, so that the command never reports a
// cluster as well that it could not read.
func (d *doctor) cluster(ctx context.Context, a *apis, agents int) {
	if r, err := readInventory(ctx, a); err != nil {
		d.unchecked("troubles and versions", err)
	} else {
		troubles := r.troubles(r.each(), time.Now())
		for _, t := range troubles {
			d.bad(t.Fix, "%s", t.What)
		}
		if len(troubles) == 0 {
			d.ok("status has no troubles")
		}
		d.versions(r.nodes)
		d.fought(ctx, a, r.pods, agents)
	}
	d.unchecked("other agents", d.daemonSets(ctx, a))
	d.unchecked("namespaces", d.namespaces(ctx, a.core))
	d.unchecked("autoscalers", d.scalers(ctx, a.core))
}

// unchecked adds a check that failed with an error; nil: it did not.
func (d *doctor) unchecked(what string, err error) {
	if err != nil {
		d.bad("run this as somebody who may read that", "%s could not be checked: %v", what, err)
	}
}

// The oldest and the newest minor version of Kubernetes that are supported, and the oldest kernel.
const oldestMinor, newestMinor, oldestKernel = 32, 36, "4.19"

// versions checks what nodes run, alike nodes together.
func (d *doctor) versions(nodes []corev1.Node) {
	strange := map[string][]string{}
	for _, n := range nodes {
		if policyNode(&n).OptedOut != "" {
			continue
		}
		for _, what := range strangeVersions(&n.Status.NodeInfo) {
			strange[what] = append(strange[what], n.Name)
		}
	}
	inOrder(strange, func(what string, names []string) {
		d.bad("use a version that docs/runtimes.md lists, or opt the node out: label it "+v1alpha1.LabelOptOut,
			"%s: %s (%s)", what, count(len(names), "node"), some(names))
	})
	if len(strange) == 0 {
		d.ok("%s: kubelet, kernel and container runtime are supported", count(len(nodes), "node"))
	}
}

// strangeVersions returns the versions of a node's programs that are not supported.
func strangeVersions(info *corev1.NodeSystemInfo) (all []string) {
	if v, err := semver.ParseGeneric(info.KubeletVersion); err == nil &&
		(v.Major() != 1 || v.Minor() < oldestMinor || v.Minor() > newestMinor) {
		all = append(all, fmt.Sprintf("kubelet %s is not between 1.%d and 1.%d", info.KubeletVersion, oldestMinor,
			newestMinor))
	}
	kernel, _, _ := strings.Cut(info.KernelVersion, "-")
	if v, err := semver.ParseGeneric(kernel); err == nil && v.LessThan(semver.MustParseGeneric(oldestKernel)) {
		all = append(all, fmt.Sprintf("kernel %s is older than %s", info.KernelVersion, oldestKernel))
	}
	engine, number, _ := strings.Cut(info.ContainerRuntimeVersion, "://")
	if v, err := semver.ParseGeneric(number); err == nil && engine == "containerd" &&
		v.LessThan(semver.MustParseGeneric("1.7")) {
		all = append(all, fmt.Sprintf("containerd %s is older than 1.7", number))
	}
	if info.OperatingSystem != "" && info.OperatingSystem != "linux" {
		all = append(all, "operating system "+info.OperatingSystem)
	}
	return all
}

// daemonSets finds DaemonSets of other agents that write the same files.
func (d *doctor) daemonSets(ctx context.Context, a *apis) error {
	var all appsv1.DaemonSetList
	if err := listPath(ctx, a.core, "/apis/apps/v1/daemonsets", &all); err != nil {
		return err
	}
	found := false
	for _, s := range all.Items {
		name := rival(&s)
		if name == "" || s.Status.DesiredNumberScheduled == 0 {
			continue
		}
		found = true
		d.bad(rivals[name], "DaemonSet %s/%s runs %s on %s, which sets the same files", s.Namespace, s.Name, name,
			count(int(s.Status.DesiredNumberScheduled), "node"))
	}
	if !found {
		d.ok("no DaemonSet of another agent that sets the same files")
	}
	return nil
}

// rival returns the agent that a DaemonSet runs, by its name or an image; "": none that is known.
func rival(s *appsv1.DaemonSet) string {
	words := []string{s.Name}
	for i := range s.Spec.Template.Spec.Containers {
		image := path.Base(s.Spec.Template.Spec.Containers[i].Image)
		image, _, _ = strings.Cut(image, "@")
		image, _, _ = strings.Cut(image, ":")
		words = append(words, image)
	}
	for _, word := range words {
		if rivals[word] != "" {
			return word
		}
	}
	return ""
}

// fought asks agents what fails, and which files another program fights over.
func (d *doctor) fought(ctx context.Context, a *apis, pods []corev1.Pod, most int) {
	asked, peace := 0, true
	for _, p := range pods {
		if asked == most || p.Labels[appLabel] != agentName || !kube.Ready(&p) {
			continue
		}
		asked++
		n, err := askNode(ctx, a, p.Spec.NodeName)
		if err != nil {
			d.unchecked("what agents see", err)
			return // the others would answer alike
		}
		d.fails(p.Spec.NodeName, n)
		peace = d.peace(p.Spec.NodeName, n) && peace
	}
	if asked > 0 && peace {
		d.ok("%s of nodes: no other program fights for a file", count(asked, "agent"))
	}
}

// fails checks what an agent cannot do.
func (d *doctor) fails(node string, n *serve.NodeExplanation) {
	inOrder(n.Troubles, func(what, err string) {
		fix := "see the agent's log"
		if what == "kubelet" {
			fix = cmp.Or(kube.KubeletFix(err), fix)
		}
		d.bad(fix, "node %s: the agent fails, operation %s: %s", node, what, err)
	})
	for _, why := range n.Starved {
		if why.Code == model.SystemStarved {
			reason, fix, _ := strings.Cut(why.Fix, "; ")
			d.note(fix, "node %s: %s waited for CPUs in the last minute, %s", node, why.Text, reason)
		}
	}
	for _, why := range n.Unsupported {
		if why.Code == model.PodsOutside {
			d.bad(why.Fix, "node %s: containers of pods run in %s, outside of %s", node, why.Text, why.Key)
		}
	}
}

// peace checks whether other programs write the same files.
func (d *doctor) peace(node string, n *serve.NodeExplanation) bool {
	switch {
	case len(n.Fought) > 0:
		d.bad("find the program: run waterline doctor there", "node %s: another program keeps overwriting %s (%s)",
			node, count(len(n.Fought), "file"), some(n.Fought))
		return false
	case restless(n):
		d.note("run waterline doctor there, which names the program",
			"node %s: other programs overwrite files more often than a kubelet does: %s in %s", node, repairs(n),
			n.Age.Round(time.Minute))
		return false
	}
	return true
}

// restless reports whether files of a node are overwritten more often than a kubelet does. A kubelet overwrites the two
// QoS classes each minute, and a pod's files when it changes.
func restless(n *serve.NodeExplanation) bool {
	const least, anHour = 10 * time.Minute, 600
	total := uint64(0)
	for _, times := range n.Repairs {
		total += times
	}
	return n.Age >= least && float64(total) > anHour*n.Age.Hours()
}

func askNode(ctx context.Context, a *apis, node string) (*serve.NodeExplanation, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	address, stop, err := forwardToNode(ctx, a, node, agentPort)
	if err != nil {
		return nil, err
	}
	defer stop()
	var n serve.NodeExplanation
	return &n, getFromAgent(ctx, address, "/node", nil, &n)
}

// obstacle is something for which the API server refuses every batch pod in a namespace.
type obstacle struct{ namespace, because, fix string }

// namespaces finds those where batch pods are wanted and cannot be created.
func (d *doctor) namespaces(ctx context.Context, client rest.Interface) error {
	obstacles, err := findObstacles(ctx, client)
	if err != nil {
		return err
	}
	found := false
	wanted := map[string]string{} // why, by namespace; "": they are not
	for _, o := range obstacles {
		if _, known := wanted[o.namespace]; known {
			continue
		}
		if wanted[o.namespace], err = wantsBatch(ctx, client, o.namespace); err != nil {
			return err
		}
	}
	for _, o := range obstacles {
		if why := wanted[o.namespace]; why != "" {
			found = true
			d.bad(o.fix, "namespace %s, %s: %s. No batch pod can be created there", o.namespace, why, o.because)
		}
	}
	if !found {
		d.ok("no LimitRange and no ResourceQuota blocks batch pods in a namespace that admits them")
	}
	return nil
}

// findObstacles returns the obstacles of all namespaces, in their order.
func findObstacles(ctx context.Context, client rest.Interface) ([]obstacle, error) {
	var limits corev1.LimitRangeList
	var quotas corev1.ResourceQuotaList
	if err := cmp.Or(
		list(ctx, client, "limitranges", "", &limits), list(ctx, client, "resourcequotas", "", &quotas),
	); err != nil {
		return nil, err
	}
	var all []obstacle
	for _, l := range limits.Items {
		if found := admit.LimitRangeObstacles(&l); len(found) > 0 {
			all = append(all, obstacle{l.Namespace, fmt.Sprintf("LimitRange %s has %s", l.Name, strings.Join(found, ", ")),
				"take bounds and ratios of cpu and memory out of it; defaults may stay"})
		}
	}
	for _, q := range quotas.Items {
		if found := admit.QuotaObstacles(&q); len(found) > 0 {
			all = append(all, obstacle{q.Namespace, fmt.Sprintf("ResourceQuota %s counts %s", q.Name, strings.Join(found, ", ")),
				"leave them out by its scopeSelector, PriorityClass NotIn " + strings.Join(admit.BatchClasses(), ", ")})
		}
	}
	slices.SortStableFunc(all, func(a, b obstacle) int { return cmp.Compare(a.namespace, b.namespace) })
	return all, nil
}

// wantsBatch returns why a namespace should admit batch pods, "" if it need not.
func wantsBatch(ctx context.Context, client rest.Interface, name string) (string, error) {
	var namespace corev1.Namespace
	if err := client.Get().Resource("namespaces").Name(name).Do(ctx).Into(&namespace); err != nil {
		return "", fmt.Errorf("looking up namespace %s: %w", name, err)
	}
	if namespace.Labels[v1alpha1.LabelColocation] == v1alpha1.ColocationEnabled {
		return "which opted in", nil
	}
	for _, label := range []string{v1alpha1.LabelQoS, v1alpha1.LabelQoSAlias} {
		var pods corev1.PodList
		err := client.Get().Namespace(name).Resource("pods").Param("labelSelector", label+"=BE").Param("limit",
			"1").Do(ctx).Into(&pods)
		if err != nil {
			return "", fmt.Errorf("listing pods in namespace %s: %w", name, err)
		}
		if len(pods.Items) > 0 {
			return fmt.Sprintf("which has batch pods such as %s", pods.Items[0].Name), nil
		}
	}
	return "", nil
}
