package pools

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// newCrewPod returns the pod of a worker of one size, and whether a policy sells resources that it can request.
func (c *crewRound) newCrewPod(pl *place, marks pool.Marks) (batch *corev1.Pod, sold bool) {
	p, w := c.fromTemplate(pl, encode(marks), c.kind.Work)
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
