package pools

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/crew"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
	"github.com/waterline-io/waterline/internal/model"
)

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
	content, err := json.Marshal(marks)
	if err != nil {
		content = nil // times and booleans can be written
	}
	p, w := c.fromTemplate(pl, string(content), c.kind.Work)
	w.Args = append(w.Args, c.kind.Args...)
	w.Env = append([]corev1.EnvVar{{Name: olap.HostVariable, Value: pl.host}}, w.Env...)
	w.Ports = append([]corev1.ContainerPort{{Name: "web", ContainerPort: c.kind.Port}}, w.Ports...)
	w.Resources = corev1.ResourceRequirements{Requests: amountList(c.read.Floor), Limits: amountList(c.read.Floor)}
	setHook(w, c.kind.Linger(c.read.Drain, marks.End))
	// A worker that has drained ends with code 0, and must not start again. One that crashed may.
	p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	c.configure(p)
	return c.k.c.o.Batch(p)
}

// configure mounts the configuration.
func (c *crewRound) configure(p *corev1.Pod) {
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
		mount(p, "conf", c.kind.Dir, &corev1.ProjectedVolumeSource{Sources: conf})
	}
	if c.kind.Catalogs != "" {
		mount(p, "catalogs", c.kind.CatalogsDir, &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{from(c.kind.Catalogs, nil)},
		})
	}
}

// message returns what a person should know of a worker besides its phase and reason.
func (c *crewRound) message(i int) string {
	pl, s := &c.places[i], &c.steps[i]
	switch {
	case pl.worker.Pod != nil && (s.Why == crew.PodStarting || s.Why == crew.NotRegistered) && pl.pod.waits != "":
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
