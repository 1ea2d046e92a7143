package pools

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/manager/pools/hadoop"
	"github.com/waterline-io/waterline/internal/yarn"
)

// TestSecureClusterNeedsExecutor checks that a pool that logs in with Kerberos makes no pod before it says as whom
// containers run, and that its condition says what to write.
func TestSecureClusterNeedsExecutor(t *testing.T) {
	kerberos := map[string][]byte{
		yarn.KeyPrincipal: []byte("waterline"), yarn.KeyKeytab: []byte("keys"), yarn.KeyKrb5: []byte("realms"),
	}
	for _, c := range []struct {
		secret   map[string][]byte
		executor v1alpha1.ContainerExecutor
		barred   bool
	}{
		{kerberos, "", true},
		{kerberos, v1alpha1.ExecutorDefault, false},
		{kerberos, v1alpha1.ExecutorLinux, false},
		{map[string][]byte{yarn.KeyCA: []byte("authority")}, "", false},
		{nil, "", false},
	} {
		spec := &v1alpha1.YARNSpec{ContainerExecutor: c.executor}
		r := &round{
			k: &keeper{endpoint: yarn.Endpoint{Secret: c.secret}}, p: &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{YARN: spec}},
			t: &problems{},
		}
		r.reportBarred()
		problem, found := r.t.all[v1alpha1.ConditionPodsRefused]
		_, why := r.bar()
		if (why != nil) != c.barred || found != c.barred {
			t.Errorf("with a Secret: %v, executor %q: missing %v, condition %v", c.secret != nil, c.executor,
				why, found)
		}
		if found && (problem.reason != "ContainersShareUser" ||
			!strings.Contains(problem.message(), "spec.yarn.containerExecutor")) {
			t.Errorf("%+v", problem)
		}
	}
}

// TestGuardImage names an image for the guard of a pool. With the Linux container executor it would run as root: no pod
// is made, the condition says why, and a pod that was made all the same would have the manager's image.
func TestGuardImage(t *testing.T) {
	const own = "registry.example/guard:2"
	for executor, want := range map[v1alpha1.ContainerExecutor]string{
		"": own, v1alpha1.ExecutorDefault: own, v1alpha1.ExecutorLinux: "waterline/guard:dev",
	} {
		linux := executor == v1alpha1.ExecutorLinux
		r := poolRound(t, "testdata/small.yaml", func(p *v1alpha1.WorkerPool) {
			p.Spec.YARN.ContainerExecutor, p.Spec.YARN.Guard = executor, &v1alpha1.GuardSpec{Image: own}
		})
		r.nodes["n1"] = Node{}
		r.list()
		r.fill(r.places[0], nil)
		r.reportBarred()
		why, found := r.t.all[v1alpha1.ConditionPodsRefused]
		if r.places[0].worker.Barred != linux || found != linux || linux && (why.reason != "GuardImageNotAllowed" ||
			!strings.Contains(why.message(), "spec.yarn.guard.image")) {
			t.Errorf("executor %q: barred: %v, condition %+v", executor, r.places[0].worker.Barred, why)
		}
		made, _ := r.newPod(r.places[0], pool.Marks{})
		all := made.Spec.InitContainers
		i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == hadoop.GuardContainer })
		if got := all[i].Image; got != want {
			t.Errorf("executor %q: the guard's image is %s, want %s", executor, got, want)
		}
		if r.p.Spec.YARN.Guard.Image = ""; barred(r) {
			t.Errorf("executor %q: no pod is made without an image of the pool", executor)
		}
	}
}

func barred(r *round) bool {
	_, why := r.bar()
	return why != nil
}
