package pools

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/crew"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
	"github.com/waterline-io/waterline/internal/model"
)

// crewContainer is the name of the container of a worker of one size.
const crewContainer = "worker"

// crewOf returns whether a pod is a worker of one size, and what it requests of the slack.
func crewOf(p *corev1.Pod) (is bool, request model.Amount) {
	for _, c := range p.Spec.Containers {
		if c.Name != crewContainer {
			continue
		}
		is = true
		request = batchRequest(&c)
	}
	return is, request
}

// batchRequest returns what a container requests of the slack.
func batchRequest(c *corev1.Container) (request model.Amount) {
	for _, name := range []corev1.ResourceName{v1alpha1.ResourceBatchCPU, v1alpha1.ResourceKoordinatorBatchCPU} {
		cpu := c.Resources.Requests[name]
		request.CPU += cpu.Value() // batch CPU counts in thousandths
	}
	for _, name := range []corev1.ResourceName{v1alpha1.ResourceBatchMemory, v1alpha1.ResourceKoordinatorBatchMemory} {
		memory := c.Resources.Requests[name]
		request.Memory += memory.Value()
	}
	return request
}

// files returns the configuration of the pool's workers, which its ConfigMap has.
func (c *crewRound) files() map[string]string {
	all := maps.Clone(c.kind.Defaults)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, c.kind.Files)
	return all
}

// newCrewPod returns the pod of a worker of one size, and whether a policy sells resources that it can request.
func (c *crewRound) newCrewPod(pl *place, marks crew.Marks) (batch *corev1.Pod, sold bool) {
	extra := c.p.Spec.Pod
	if extra == nil {
		extra = &v1alpha1.WorkerPodSpec{}
	}
	kind := c.kind
	no, yes, user := false, true, int64(defaultUser)
	if extra.RunAsUser != nil {
		user = *extra.RunAsUser
	}
	stop := int64((c.read.Drain + stopWithin) / time.Second)
	content, err := json.Marshal(marks)
	if err != nil {
		content = nil // times and booleans can be written
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.p.Namespace, Name: pl.worker.Name, Labels: map[string]string{}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{owner(c.p)},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: crewContainer, Image: kind.Image, Command: kind.Command, Args: kind.Args,
				Env:   []corev1.EnvVar{{Name: olap.HostVariable, Value: pl.host}},
				Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: kind.Port}},
				Resources: corev1.ResourceRequirements{
					Requests: amountList(c.read.Floor), Limits: amountList(c.read.Floor),
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "work", MountPath: kind.Work}},
				Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
					Exec: &corev1.ExecAction{Command: []string{"bash", "-c", kind.Linger(c.read.Drain, marks.End)}},
				}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: extra.Disk}}},
			},
			// A worker that has drained ends with code 0, and must not start again. One that crashed may.
			RestartPolicy:                 corev1.RestartPolicyOnFailure,
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
	c.configure(p)
	return c.finish(p, pl, extra, string(content))
}

// configure mounts the configuration.
func (c *crewRound) configure(p *corev1.Pod) {
	mount := func(name, at string, sources ...corev1.VolumeProjection) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: sources},
		}})
		first := &p.Spec.Containers[0]
		first.VolumeMounts = append(first.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: true})
	}
	from := func(name string, files map[string]string) corev1.VolumeProjection {
		s := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: name},
		}}
		for _, file := range sortedKeys(files) {
			s.ConfigMap.Items = append(s.ConfigMap.Items, corev1.KeyToPath{Key: file, Path: file})
		}
		return s
	}
	// Of two sources with the same path, the later one counts.
	var conf []corev1.VolumeProjection
	if len(c.kind.Defaults) > 0 {
		conf = append(conf, from(objectName(c.p), c.kind.Defaults))
	}
	if c.kind.Given != "" {
		conf = append(conf, from(c.kind.Given, nil))
	}
	if len(c.kind.Files) > 0 {
		conf = append(conf, from(objectName(c.p), c.kind.Files))
	}
	if len(conf) > 0 {
		mount("conf", c.kind.Dir, conf...)
	}
	if c.kind.Catalogs != "" {
		mount("catalogs", c.kind.CatalogsDir, from(c.kind.Catalogs, nil))
	}
}

// message returns what a person should know of a worker besides its phase and reason.
func (c *crewRound) message(i int) string {
	pl, s := &c.places[i], &c.steps[i]
	switch {
	case pl.worker.Pod != nil && (s.Why == crew.PodStarts || s.Why == crew.NotRegistered) && pl.pod.waits != "":
		return pl.pod.waits
	case c.silent[i] != nil:
		return c.silent[i].Error()
	case s.Phase == crew.Draining && c.status[i].Work > 0:
		return fmt.Sprintf("%d queries", c.status[i].Work)
	case s.Phase == crew.Registering || s.Phase == crew.Lost:
		return c.status[i].Text
	}
	return ""
}
