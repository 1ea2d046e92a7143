package pools

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/yarn"
)

// stopWithin is how long a NodeManager has to end if somebody deletes its pod and no manager answers.
const stopWithin = 30 * time.Second

// defaultUser is the user of Hadoop in the images of its project.
const defaultUser = 1000

// container is the name of the NodeManager's container.
const container = "nodemanager"

// podRow is the known part of a worker's pod.
type podRow struct {
	name, uid, node, ip string
	owner               types.UID // of the pool that made it; empty: somebody else did
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
}

func rowOf(p *corev1.Pod) podRow {
	r := podRow{
		name: p.Name, uid: string(p.UID), node: p.Spec.NodeName, ip: p.Status.PodIP,
		over:     p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded,
		deleting: p.DeletionTimestamp != nil,
	}
	if o := metav1.GetControllerOf(p); o != nil && o.Kind == "WorkerPool" {
		r.owner = o.UID
	}
	if p.DeletionGracePeriodSeconds != nil {
		r.grace = *p.DeletionGracePeriodSeconds
	}
	if r.crew, r.request = crewOf(p); r.crew {
		r.raw = p.Annotations[v1alpha1.AnnotationPoolMarks]
	}
	r.readSize(p)
	r.template = p.Annotations[v1alpha1.AnnotationPoolTemplate]
	// A mark that cannot be read is none: the controller then waits longer, and kills nothing earlier.
	_ = json.Unmarshal([]byte(p.Annotations[v1alpha1.AnnotationPoolMarks]), &r.marks)
	r.held, _ = strconv.ParseInt(p.Annotations[v1alpha1.AnnotationPoolHeld], 10, 64) // else 0, and it is written anew
	r.allowance = p.Annotations[v1alpha1.AnnotationPoolAllowance]
	for i := range p.Spec.InitContainers {
		r.guarded = r.guarded || p.Spec.InitContainers[i].Name == guardContainer
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			r.waits = c.Message
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != container && c.Name != crewContainer {
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
			r.waits, r.ended = fmt.Sprintf("the NodeManager ended with code %d %s", e.ExitCode, e.Reason), e.FinishedAt.Time
			if r.crew {
				r.waits = fmt.Sprintf("its process ended with code %d %s", e.ExitCode, e.Reason)
			}
		}
	}
	return r
}

// podMatters reports whether the change of a pod is one to look at its pool for: not what the controller wrote itself.
func podMatters(before, after podRow) bool {
	for _, r := range []*podRow{&before, &after} {
		r.marks, r.raw, r.held, r.allowance = pool.Marks{}, "", 0, ""
	}
	return before != after
}

// encode returns the marks as the annotation has them.
func encode(m pool.Marks) string {
	text, err := json.Marshal(m)
	if err != nil {
		return "" // times and booleans can be written
	}
	return string(text)
}

// newPod returns the pod of a worker, and whether a policy sells resources that it can request.
func (r *round) newPod(pl *place, marks pool.Marks) (batch *corev1.Pod, sold bool) {
	spec, extra := &r.p.Spec, r.p.Spec.Pod
	if extra == nil {
		extra = &v1alpha1.WorkerPodSpec{}
	}
	y := spec.YARN
	no, yes, user := false, true, int64(defaultUser)
	if extra.RunAsUser != nil {
		user = *extra.RunAsUser
	}
	stop := int64((r.read.Drain + stopWithin) / time.Second)
	command := y.Command
	if len(command) == 0 {
		command = []string{"yarn", "nodemanager"}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.p.Namespace, Name: pl.worker.Name, Labels: map[string]string{}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{owner(r.p)},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: container, Image: y.Image, Command: command,
				Env: r.environment(pl.host),
				Ports: []corev1.ContainerPort{
					{Name: "nm", ContainerPort: nmPort}, {Name: "web", ContainerPort: webPort},
				},
				Resources: corev1.ResourceRequirements{
					Requests: amountList(r.read.Floor.Plus(r.read.Overhead)),
					Limits:   amountList(r.read.Ceiling.Plus(r.read.Overhead)),
				},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "conf", MountPath: confDir, ReadOnly: true}, {Name: "work", MountPath: workDir},
				},
				Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
					Exec: &corev1.ExecAction{Command: []string{"bash", "-c", linger(r.read.Drain, marks.End, r.graceful())}},
				}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: "conf", VolumeSource: corev1.VolumeSource{Projected: r.configuration()}},
				{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: extra.Disk}}},
			},
			// The pod's pause process reaps what containers leave behind. Java does not: as process 1, it collected a zombie
			// for every container that YARN killed.
			ShareProcessNamespace:         &yes,
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: &stop,
			PriorityClassName:             cmp.Or(extra.PriorityClassName, v1alpha1.PriorityClassWorker),
			ServiceAccountName:            extra.ServiceAccountName,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, FSGroup: &user,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		},
	}
	p.Annotations[v1alpha1.AnnotationPoolTemplate] = r.template()
	return r.finish(p, pl, extra, encode(marks))
}

// finish adds to the pod of a worker what does not depend on its engine, and has it request batch resources.
func (r *round) finish(
	p *corev1.Pod, pl *place, extra *v1alpha1.WorkerPodSpec, marks string,
) (batch *corev1.Pod, sold bool) {
	for k, v := range extra.Labels {
		p.Labels[k] = string(v)
	}
	for k, v := range extra.Annotations {
		if _, ours := p.Annotations[k]; !ours {
			p.Annotations[k] = v
		}
	}
	p.Labels[v1alpha1.LabelPool], p.Labels[v1alpha1.LabelQoS] = r.p.Name, string(model.ClassBE)
	p.Annotations[v1alpha1.AnnotationPoolMarks] = marks
	for _, name := range extra.ImagePullSecrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	for _, t := range extra.Tolerations {
		p.Spec.Tolerations = append(p.Spec.Tolerations, toleration(t))
	}
	for _, v := range extra.Volumes {
		addVolume(p, v)
	}
	if r.p.Spec.YARN != nil {
		r.addGuard(p)
	}
	r.identify(p, pl)
	r.placeOn(p, pl)
	return r.k.c.o.Batch(p)
}

// linger returns the shell script of the preStop hook. Somebody who deletes the pod waits there while the manager
// drains the worker, as long as the worker has to drain. A NodeManager that is decommissioned ends by itself, and the
// hook ends with it: until then it keeps the output of maps. Any other has drained when no container ran for some
// seconds; each of their processes has CONTAINER_ID in its environment.
//
// A hook of the kind sleep would not do: it ends neither with the container nor when the pod is deleted once more with
// a shorter time (Kubernetes 1.36). Every image of a NodeManager has bash, with which YARN starts containers.
func linger(drain time.Duration, end time.Time, decommissioned bool) string {
	script := fmt.Sprintf("until=$(($(date +%%s) + %d))\n", int64(drain/time.Second))
	if !end.IsZero() {
		script += fmt.Sprintf("[ $until -lt %[1]d ] || until=%[1]d\n", end.Unix())
	}
	if decommissioned {
		return script + "left=$((until - $(date +%s)))\nexec sleep $((left > 0 ? left : 0))\n"
	}
	return script + `quiet=0
while [ $quiet -lt 4 ] && [ $(date +%s) -lt $until ]; do
  sleep 1
  if grep -qs CONTAINER_ID=container_ /proc/[0-9]*/environ; then quiet=0; else quiet=$((quiet + 1)); fi
done
`
}

// environment returns the variables of the NodeManager. The pool's own may differ in the size of the heap.
func (r *round) environment(host string) []corev1.EnvVar {
	all := map[string]string{"HADOOP_HEAPSIZE_MAX": fmt.Sprintf("%dm", heap(yarn.MiB(r.read.Overhead.Memory)))}
	maps.Copy(all, r.p.Spec.YARN.Environment)
	floor := r.settings().Floor
	all["HADOOP_CONF_DIR"], all[hostVariable] = confDir, host
	all[memoryVariable], all[vcoresVariable] = strconv.FormatInt(floor.MemoryMiB, 10), strconv.FormatInt(floor.VCores, 10)
	var list []corev1.EnvVar
	for _, name := range sortedKeys(all) {
		list = append(list, corev1.EnvVar{Name: name, Value: all[name]})
	}
	return list
}

// identify gives the pod its host name and its address.
func (r *round) identify(p *corev1.Pod, pl *place) {
	id := r.p.Spec.Identity
	if r.hostNetwork() {
		p.Spec.HostNetwork = true
		p.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
		return
	}
	p.Spec.Hostname, p.Spec.Subdomain = pl.worker.Name, r.p.Name
	if id == nil || pl.index < 0 || pl.index >= len(id.Addresses) {
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
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: required,
	}}
	if r.p.Spec.Count == nil {
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

// addVolume adds a volume to a pod, and mounts it.
func addVolume(p *corev1.Pod, v v1alpha1.VolumeSpec) {
	volume := corev1.Volume{Name: v.Name}
	switch {
	case v.PersistentVolumeClaim != "":
		volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: v.PersistentVolumeClaim, ReadOnly: v.ReadOnly,
		}
	case v.ConfigMap != "":
		volume.ConfigMap = &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: v.ConfigMap},
		}
	case v.Secret != "":
		volume.Secret = &corev1.SecretVolumeSource{SecretName: v.Secret}
	default:
		volume.HostPath = &corev1.HostPathVolumeSource{Path: v.HostPath}
	}
	p.Spec.Volumes = append(p.Spec.Volumes, volume)
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: v.MountPath, ReadOnly: v.ReadOnly})
}

func toleration(t v1alpha1.TolerationSpec) corev1.Toleration {
	to := corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(t.Effect)}
	if t.Value != "" {
		to.Operator, to.Value = corev1.TolerationOpEqual, string(t.Value)
	}
	return to
}

func owner(p *v1alpha1.WorkerPool) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion, Kind: "WorkerPool", Name: p.Name, UID: p.UID, Controller: &yes,
	}
}

func amountList(a model.Amount) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(a.CPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(a.Memory, resource.BinarySI),
	}
}
