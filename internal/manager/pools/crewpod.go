package pools

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/decide/cluster/crew"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

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
	size := kube.ResourceList(c.read.Floor)
	w.Resources = corev1.ResourceRequirements{Requests: size, Limits: size.DeepCopy()}
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

// message returns details of a worker for people, besides its phase and reason.
func message(pl *place) string {
	s := &pl.crew.step
	switch {
	case pl.worker.Pod != nil && (s.Why == crew.PodStarting || s.Why == crew.NotRegistered) && pl.pod.waits != "":
		return pl.pod.waits
	case pl.crew.silent != nil:
		return pl.crew.silent.Error()
	case s.Phase == crew.Draining && pl.crew.status.Work > 0:
		return fmt.Sprintf("%d queries", pl.crew.status.Work)
	case s.Phase == crew.Registering || s.Phase == crew.Lost:
		return pl.crew.status.Text
	}
	return ""
}
