package pools

import (
	"strings"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
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
		if r.executorMissing() != c.barred || found != c.barred {
			t.Errorf("with a Secret: %v, executor %q: missing %v, condition %v", c.secret != nil, c.executor,
				r.executorMissing(), found)
		}
		if found && (problem.reason != "ContainersShareUser" ||
			!strings.Contains(problem.message(), "spec.yarn.containerExecutor")) {
			t.Errorf("%+v", problem)
		}
	}
}
