package pools

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/crew"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
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
	w.Resources = corev1.ResourceRequirements{Requests: kube.ResourceList(c.read.Floor), Limits: kube.ResourceList(c.read.Floor)}
	setHook(w, c.kind.Linger(c.read.Drain, marks.End))
	// A worker that has drained ends with code 0, and must not start again. One that crashed may.
	p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	conf, catalogs := c.kind.Volumes(objectName(c.p))
	if conf != nil {
		mount(p, "conf", c.kind.Dir, conf)
	}
	if catalogs != nil {
		mount(p, "catalogs", c.kind.CatalogsDir, catalogs)
	}
	return c.k.c.o.Batch(p)
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
