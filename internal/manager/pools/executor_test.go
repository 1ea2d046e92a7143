package pools

import (
	"strings"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestSecureClusterNeedsExecutor checks that a pool that logs in with Kerberos makes no pod before it says as whom
// containers run, and that its condition says what to write.
func TestSecureClusterNeedsExecutor(t *testing.T) {
	kerberos := map[string][]byte{keyPrincipal: []byte("waterline"), keyKeytab: []byte(keytabOf(t, "waterline")),
		keyKrb5: []byte("[libdefaults]\n default_realm = EXAMPLE.COM\n[realms]\n EXAMPLE.COM = {\n  kdc = 127.0.0.1:9\n }\n")}
	for _, c := range []struct {
		secret   map[string][]byte
		executor v1alpha1.ContainerExecutor
		barred   bool
	}{
		{kerberos, "", true},
		{kerberos, v1alpha1.ExecutorDefault, false},
		{kerberos, v1alpha1.ExecutorLinux, false},
		{nil, "", false},
	} {
		spec := &v1alpha1.YARNSpec{
			ResourceManagers: []string{"http://127.0.0.1:9"}, ContainerExecutor: c.executor, User: "yarn",
		}
		if c.secret != nil {
			spec.AuthSecret = &v1alpha1.ObjectReference{Name: "s"}
		}
		e, _, err := newEngine(spec, c.secret, dialerOf(t, "127.0.0.1:9"))
		if err != nil {
			t.Fatal(err)
		}
		r := &round{
			k: &keeper{engine: e}, p: &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{YARN: spec}}, t: &trouble{},
		}
		r.reportBarred()
		problem, found := r.t.all[v1alpha1.ConditionPodsRefused]
		if r.barred() != c.barred || found != c.barred {
			t.Errorf("with a Secret: %v, executor %q: barred %v, condition %v", c.secret != nil, c.executor, r.barred(), found)
		}
		if found && (problem.reason != "ContainersShareUser" ||
			!strings.Contains(problem.message(), "spec.yarn.containerExecutor")) {
			t.Errorf("%+v", problem)
		}
	}
}
