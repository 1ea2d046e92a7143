package pools

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/manager/pools/hadoop"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/yarn"
)

// stopTimeout is the time that a NodeManager has to end if its pod is deleted while no manager runs.
const stopTimeout = 30 * time.Second

// defaultUser is the user of Hadoop in the images of its project.
const defaultUser = 1000

// podRow is the known part of a worker's pod.
type podRow struct {
	name, uid, node, ip string
	owner               types.UID // of the pool that made it; empty: somebody else did
	created             time.Time
	started             time.Time // when its NodeManager was started last
	ended               time.Time // of a pod that is over
	over                bool      // it failed or succeeded, and runs no more
	deleting            bool
	grace               int64 // seconds that a pod being deleted has
	marks               pool.Marks
	held                int64  // bytes of memory beyond what slack allows
	allowance           string // as the annotation has it
	guarded             bool   // it has a guard, which reads the allowance
	waits               string // why its container does not run
	crew                bool   // it is of a pool whose workers have one size
	raw                 string // the marks of such a pod as they are written
	request             model.Amount
	limit               model.Amount // of a NodeManager's pod; zero: none is known
	start               pool.Size    // with which its NodeManager starts; zero: what the pool says
	template            string       // what it was made from; "": that is not known
	message             string       // of its guard, if that has ended
	idle                bool         // it is known to others as one that runs nothing
}

func rowOf(p *corev1.Pod) podRow {
	r := podRow{
		name: p.Name, uid: string(p.UID), node: p.Spec.NodeName, ip: p.Status.PodIP,
		over:     p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded,
		deleting: p.DeletionTimestamp != nil, created: p.CreationTimestamp.Time,
	}
	if o := metav1.GetControllerOf(p); o != nil && o.Kind == "WorkerPool" {
		r.owner = o.UID
	}
	if p.DeletionGracePeriodSeconds != nil {
		r.grace = *p.DeletionGracePeriodSeconds
	}
	r.readSize(p)
	if r.crew = r.start == (pool.Size{}) && kube.Worker(&p.Spec) != nil; r.crew {
		r.raw, r.request = p.Annotations[v1alpha1.AnnotationPoolMarks], model.Amount{}
		for i := range p.Spec.Containers {
			r.request = r.request.Plus(kube.BatchRequest(&p.Spec.Containers[i]))
		}
	}
	r.template, r.idle = p.Annotations[v1alpha1.AnnotationPoolTemplate], p.Labels[v1alpha1.LabelPoolBusy] == "false"
	// A mark that cannot be read is none: the controller then waits longer, and kills nothing earlier.
	_ = json.Unmarshal([]byte(p.Annotations[v1alpha1.AnnotationPoolMarks]), &r.marks)
	r.held, _ = strconv.ParseInt(p.Annotations[v1alpha1.AnnotationPoolHeld], 10, 64) // else 0, and it is written anew
	r.allowance = p.Annotations[v1alpha1.AnnotationPoolAllowance]
	for i := range p.Spec.InitContainers {
		r.guarded = r.guarded || p.Spec.InitContainers[i].Name == hadoop.GuardContainer
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			r.waits = c.Message
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != v1alpha1.WorkerContainer {
			continue
		}
		switch {
		case c.State.Running != nil:
			r.started = c.State.Running.StartedAt.Time
		case c.LastTerminationState.Terminated != nil || c.State.Terminated != nil:
			// It ends again and again. The time to register counts from the first start.
			r.started = p.CreationTimestamp.Time
		}
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			r.waits = strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
		if e := c.State.Terminated; e != nil {
			r.waits, r.ended = fmt.Sprintf("its process ended with code %d %s", e.ExitCode, e.Reason), e.FinishedAt.Time
			r.over = r.over || r.crew && e.ExitCode == 0 // it has drained; other containers may still run
		}
	}
	if r.over && r.ended.IsZero() {
		r.ended = lastChange(p)
	}
	r.message = messageOf(p)
	return r
}

// lastChange returns the last time that the status of a pod shows, or when it was made. The kubelet says of a pod that
// it refuses neither when it ended nor anything of its containers.
func lastChange(p *corev1.Pod) time.Time {
	at := p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		if c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// podMatters reports whether the change of a pod needs a round of its pool. Changes that the controller wrote itself,
// and fields that are only read after the pod's end, do not.
func podMatters(before, after podRow) bool {
	for _, r := range []*podRow{&before, &after} {
		r.marks, r.raw, r.held, r.allowance, r.message, r.idle = pool.Marks{}, "", 0, "", "", false
	}
	return before != after
}

// encode returns a value as JSON; "" if it cannot be written, which those of texts, numbers and times always can.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// newPod returns the pod of a NodeManager, and whether a policy sells resources that it can request.
func (r *round) newPod(pl *place, marks pool.Marks) (batch *corev1.Pod, sold bool) {
	p, w := r.fromTemplate(pl, encode(marks), hadoop.WorkDir)
	if len(w.Command)+len(w.Args) == 0 {
		w.Command = []string{"yarn", "nodemanager"}
	}
	w.Env = hadoop.Environment(w.Env, pl.host, r.settings().Floor, yarn.MiB(r.read.Overhead.Memory))
	w.Ports = append([]corev1.ContainerPort{
		{Name: "nm", ContainerPort: hadoop.Port}, {Name: "web", ContainerPort: yarn.WebPort},
	}, w.Ports...)
	w.Resources = corev1.ResourceRequirements{
		Requests: kube.ResourceList(r.read.Floor.Plus(r.read.Overhead)),
		Limits:   kube.ResourceList(r.read.Ceiling.Plus(r.read.Overhead)),
	}
	mount(p, "conf", hadoop.ConfDir, hadoop.Configuration(v1alpha1.NameOf(r.p.Spec.YARN.ConfigMap), objectName(r.p)))
	wait := waitUntil // a NodeManager that is decommissioned ends by itself, and keeps the output of maps until then
	if !r.graceful() {
		wait = hadoop.WaitIdle
	}
	setHook(w, r.read.Drain, marks.End, wait)
	// The pod's pause process reaps what containers leave behind. Java does not: as process 1, it collected a zombie for
	// every container that YARN killed.
	p.Spec.ShareProcessNamespace = new(true)
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	p.Annotations[v1alpha1.AnnotationPoolTemplate] = r.template()
	hadoop.AddGuard(p, r.p.Spec.YARN, r.k.c.o.GuardImage, r.read.Floor.Plus(r.read.Overhead),
		allowanceText(r.settings().Floor, time.Time{}))
	if r.p.Spec.YARN.ContainerExecutor == v1alpha1.ExecutorLinux {
		hadoop.LetExecute(kube.Worker(&p.Spec))
	}
	return r.k.c.o.Batch(p)
}

// fromTemplate returns the pod of a worker with what does not depend on its engine, and its container worker. It has
// the volume work at a path.
func (r *round) fromTemplate(pl *place, marks, work string) (*corev1.Pod, *corev1.Container) {
	t := r.p.Spec.Template.DeepCopy()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.p.Namespace, Name: pl.worker.Name, Labels: t.Labels, Annotations: t.Annotations,
			OwnerReferences: []metav1.OwnerReference{owner(r.p)},
		},
		Spec: t.Spec,
	}
	metav1.SetMetaDataLabel(&p.ObjectMeta, v1alpha1.LabelPool, r.p.Name)
	metav1.SetMetaDataLabel(&p.ObjectMeta, v1alpha1.LabelPoolBusy, "true")
	metav1.SetMetaDataLabel(&p.ObjectMeta, v1alpha1.LabelQoS, string(model.ClassBE))
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationPoolMarks, marks)
	s, no, stop := &p.Spec, false, int64((r.read.Drain+stopTimeout)/time.Second)
	s.TerminationGracePeriodSeconds = &stop
	s.PriorityClassName = cmp.Or(s.PriorityClassName, v1alpha1.PriorityClassWorker)
	s.AutomountServiceAccountToken = &no
	s.EnableServiceLinks = cmp.Or(s.EnableServiceLinks, &no)
	secure(s)
	w := kube.Worker(s)
	w.VolumeMounts = append([]corev1.VolumeMount{{Name: workVolume, MountPath: work}}, w.VolumeMounts...)
	if !slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool { return v.Name == workVolume }) {
		s.Volumes = append(s.Volumes, corev1.Volume{Name: workVolume, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{},
		}})
	}
	r.identify(p, pl)
	r.placeOn(p, pl)
	return p, w
}

// workVolume is the volume that workers write to. A template may have one of that name.
const workVolume = "work"

// secure completes the security contexts of a pod to what the level restricted of Pod Security asks for. The rules of
// templates see to it that they do not contradict it.
func secure(s *corev1.PodSpec) {
	if s.SecurityContext == nil {
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	no, yes, user := false, true, int64(defaultUser)
	c := s.SecurityContext
	c.RunAsNonRoot = &yes
	c.RunAsUser = cmp.Or(c.RunAsUser, &user)
	c.RunAsGroup = cmp.Or(c.RunAsGroup, c.RunAsUser)
	c.FSGroup = cmp.Or(c.FSGroup, c.RunAsUser)
	if c.SeccompProfile == nil {
		c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			if list[i].SecurityContext == nil {
				list[i].SecurityContext = &corev1.SecurityContext{}
			}
			c := list[i].SecurityContext
			c.AllowPrivilegeEscalation = &no
			c.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
		}
	}
}

// mount mounts a volume into a worker's container, for reading.
func mount(p *corev1.Pod, name, at string, v *corev1.ProjectedVolumeSource) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: v}})
	w := kube.Worker(&p.Spec)
	w.VolumeMounts = append(w.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: true})
}

// setHook makes a script the hook of a worker's container that runs when its pod is deleted. The script may wait until
// the time in its variable until: as long as the worker has to drain, and not beyond end, if that is not zero. When the
// worker's process ends, the hook ends with it.
//
// A hook of the kind sleep would not do: it ends neither with the container nor when the pod is deleted once more with
// a shorter time (Kubernetes 1.36). Every image of a NodeManager has bash, with which YARN starts containers.
func setHook(w *corev1.Container, drain time.Duration, end time.Time, script string) {
	until := fmt.Sprintf("until=$(($(date +%%s) + %d))\n", int64(drain/time.Second))
	if !end.IsZero() {
		until += fmt.Sprintf("[ $until -lt %[1]d ] || until=%[1]d\n", end.Unix())
	}
	if w.Lifecycle == nil {
		w.Lifecycle = &corev1.Lifecycle{}
	}
	w.Lifecycle.PreStop = &corev1.LifecycleHandler{
		Exec: &corev1.ExecAction{Command: []string{"bash", "-c", until + script}},
	}
}

// waitUntil is the script of a hook that waits for the end of the worker's process.
const waitUntil = "left=$((until - $(date +%s)))\nexec sleep $((left > 0 ? left : 0))\n"

// identify gives the pod its host name and its address.
func (r *round) identify(p *corev1.Pod, pl *place) {
	id := &r.p.Spec.Identity
	if r.hostNetwork() {
		p.Spec.DNSPolicy = cmp.Or(p.Spec.DNSPolicy, corev1.DNSClusterFirstWithHostNet)
		return
	}
	p.Spec.Hostname, p.Spec.Subdomain = pl.worker.Name, r.p.Name
	if pl.index < 0 || pl.index >= len(id.Addresses) {
		return
	}
	for k, v := range id.AddressAnnotations {
		p.Annotations[k] = strings.ReplaceAll(v, "{address}", id.Addresses[pl.index])
	}
}

// templateNode is a label of the nodes that the cluster autoscaler imagines, since version 1.33. It imagines them as
// copies of nodes of the same group, with the batch resources that these sell at the moment. Real nodes lack the label.
const templateNode = "cluster-autoscaler.kubernetes.io/template-node"

// placeOn says where the pod may run. A worker of the default class waits without a new node being bought for it.
func (r *round) placeOn(p *corev1.Pod, pl *place) {
	required := &corev1.NodeSelector{}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	if r.p.Spec.Replicas == nil {
		required.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{pl.node}},
		}}}
		return
	}
	var terms []corev1.NodeSelectorRequirement
	for _, s := range r.read.Nodes {
		terms = append(terms, corev1.NodeSelectorRequirement{
			Key: s.Key, Operator: corev1.NodeSelectorOperator(s.Op), Values: s.Values,
		})
	}
	if p.Spec.PriorityClassName == v1alpha1.PriorityClassWorker {
		terms = append(terms, corev1.NodeSelectorRequirement{
			Key: templateNode, Operator: corev1.NodeSelectorOpDoesNotExist,
		})
	}
	if required.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchExpressions: terms}}; len(terms) == 0 {
		p.Spec.Affinity.NodeAffinity = nil
	}
	if p.Spec.Affinity.PodAntiAffinity != nil {
		return
	}
	p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelPool: r.p.Name}},
			},
		}},
	}
}

func owner(p *v1alpha1.WorkerPool) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion, Kind: "WorkerPool", Name: p.Name, UID: p.UID, Controller: new(true),
	}
}
