package pools

import (
	"errors"
	"fmt"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/yarn"
)

// bar returns why no pod may be made, and what to do: the cluster is secure, and nobody said as whom containers run, or
// an image of the tenant would run as root, in a pool from before the rule of the API against it. "": it may.
func (r *round) bar() (reason string, why error) {
	switch y := r.p.Spec.YARN; {
	case y == nil:
	case len(r.k.endpoint.Secret[yarn.KeyPrincipal]) > 0 && y.ContainerExecutor == "":
		return "ContainersShareUser", errors.New("no pod of a worker is made: the cluster is secure (the Secret of " +
			"spec.yarn.authSecret has a principal), and containers of different users could read each other's files and " +
			"tokens; set spec.yarn.containerExecutor to Linux, or to Default if all containers belong to users who trust " +
			"each other")
	case y.ContainerExecutor == v1alpha1.ExecutorLinux && y.Guard != nil && y.Guard.Image != "":
		return "GuardImageNotAllowed", fmt.Errorf("no pod of a worker is made: with spec.yarn.containerExecutor: Linux the "+
			"guard runs as root, and spec.yarn.guard.image names an image of its own (%s); leave that field out, so that the "+
			"guard has the image that the manager's flag --guard-image names", kube.Excerpt(y.Guard.Image))
	}
	return "", nil
}

// reportBarred sets the condition for [round.bar].
func (r *round) reportBarred() {
	if reason, why := r.bar(); why != nil && r.p.DeletionTimestamp == nil {
		r.t.add(v1alpha1.ConditionPodsRefused, reason, why)
	}
}
