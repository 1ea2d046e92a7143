package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestSchedulerChart runs the scheduler with the configuration and the rights that the chart gives it, and nothing
// else.
func TestSchedulerChart(t *testing.T) {
	s := newSchedule(t)
	p := s.start("waterline-scheduler", chartScheduler(t, "scheduler.args.WeightSpread.refuse=true"))
	eventually(t, "the scheduler leads", func() (bool, string) {
		out, err := tryKubectl("get", "lease", "waterline-scheduler", "-n", v1alpha1.Namespace, "-o",
			"jsonpath={.spec.holderIdentity}")
		return err == nil && out != "", out
	})
	s.nodes(schedNode{name: nodeName(1), cpu: 8, batch: 2000, report: freeCPUs("1-7", "0-3/4-7", 6)})
	s.known(p, "Trusted", 1)
	for _, change := range []func(*corev1.Pod){exclusive(2), batchCPU("1000"), weighing(2048)} {
		s.bound(s.pod("waterline-scheduler", change))
	}
	name := s.pod("waterline-scheduler", exclusive(2))
	if hint := s.bound(name).Annotations[v1alpha1.AnnotationCPUSetHint]; hint == "" {
		t.Error("the pod has no hint")
	}
	if strings.Contains(p.out.String(), "forbidden") {
		t.Errorf("the scheduler lacks rights: %s", p.out.String())
	}
}

// chartScheduler installs the chart for the scheduler alone, and returns the configuration that it gives the scheduler,
// with an account that has the scheduler's rights.
func chartScheduler(t testing.TB, values string) string {
	t.Helper()
	installChart(t, "--set", "manager.enabled=false,scheduler.enabled=true,"+values,
		"--set-json", `agent.nodeSelector={"nowhere":"true"}`)
	account := kubeconfig(t, kubectl(t, "create", "token", "waterline-scheduler", "-n", v1alpha1.Namespace))
	config := object[corev1.ConfigMap](t, "configmap", "waterline-scheduler", "-n", v1alpha1.Namespace).Data["config.yaml"]
	given := strings.Replace(config, "clientConnection: {", "clientConnection: {kubeconfig: "+account+", ", 1)
	if given == config {
		t.Fatalf("the configuration has no clientConnection: %s", config)
	}
	return given
}

// TestSchedulerArguments checks that the scheduler does not start with a wrong argument, and names the field.
func TestSchedulerArguments(t *testing.T) {
	config := schedulerConfig(false)
	for _, test := range []struct{ from, to, want string }{
		{"{agentGrace: 2s}}", "{agentGrace: -2s}}", "pluginConfig[BatchFit].args.agentGrace: Invalid value: \"-2s\""},
		{"{agentGrace: 2s}}", "{agentgraze: 2s}}", `unknown field "agentgraze"`},
		{"{refuse: true}", "{metPercent: 200}", "pluginConfig[WeightSpread].args.metPercent: Invalid value: 200"},
		{"name: CPUSetFit", "name: CPUFit", "CPUFit"},
	} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(config, test.from, test.to, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(filepath.Join(built, "bed/bin/waterline-scheduler"), "--config="+file, "--secure-port=0")
		timer := time.AfterFunc(30*time.Second, func() { _ = c.Process.Kill() })
		out, err := c.CombinedOutput()
		timer.Stop()
		said := strings.ReplaceAll(string(out), `\"`, `"`) // the log quotes errors
		if err == nil || !strings.Contains(said, test.want) {
			t.Errorf("%s: %v, want %s:\n%s", test.to, err, test.want, lastLines(said, 10))
		}
	}
}
