package pools

import (
	"errors"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/yarn"
)

// executorMissing reports whether no pod may be created, because the cluster is secure and the spec does not name the
// container executor.
func (r *round) executorMissing() bool {
	y := r.p.Spec.YARN
	return y != nil && len(r.k.endpoint.Secret[yarn.KeyPrincipal]) > 0 && y.ContainerExecutor == ""
}

// reportBarred sets the condition for [round.executorMissing].
func (r *round) reportBarred() {
	if !r.executorMissing() || r.p.DeletionTimestamp != nil {
		return
	}
	r.t.add(v1alpha1.ConditionPodsRefused, "ContainersShareUser", errors.New("no pod of a worker is made: the cluster is "+
		"secure (the Secret of spec.yarn.authSecret has a principal), and containers of different users could read each "+
		"other's files and tokens; set spec.yarn.containerExecutor to Linux, or to Default if all containers belong to "+
		"users who trust each other"))
}
