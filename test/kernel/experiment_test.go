package kernel_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/lab/experiment"
	"github.com/waterline-io/waterline/lab/memory"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// TestExperiments runs the short experiments of the lab for a moment each: they start their pods and an agent, measure,
// and clean up. Of the results it checks only counts, because the others depend on the machine. Experiments that wait
// for an idle machine are left to the bench.
func TestExperiments(t *testing.T) {
	n := newNode(t) // or skip
	for _, name := range []string{"weights", "preempt", "drift", "cpuset"} {
		t.Run(name, func(t *testing.T) {
			if name != "weights" {
				liveKernel(t, "one experiment shows that they run on cgroup v2, and TestCPUSets who has which CPUs")
			}
			if name == "cpuset" && (n.mount.Cpusets == "" || runtime.NumCPU() < 2) {
				t.Skip("no cpuset controller, or one CPU")
			}
			e, found := experiment.Find(name)
			if !found {
				t.Fatal("no such experiment")
			}
			r, err := e.Run(t.Context(), experiment.Config{Config: sandboxConfig(t, "lab"), Seconds: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %v", r.Headline, r.Metrics)
			if len(r.Metrics) == 0 {
				t.Error("no figures")
			}
			if seen, counted := r.Metrics["exclusive_intruders"]; seen != 0 || counted != (name == "cpuset") {
				t.Errorf("counted: %v; %v threads of other pods were seen on the exclusive CPU", counted, seen)
			}
		})
	}
}

// TestMemoryUnusable checks that lab memory refuses to run on cgroup v1, which protects no memory.
func TestMemoryUnusable(t *testing.T) {
	if newNode(t).mount.Version != cgroup.V1 {
		t.Skip("cgroup v2 protects memory")
	}
	if _, err := memory.Run(t.Context(), memory.Config{Config: sandboxConfig(t, "lab"), Seconds: 8}); !errors.Is(err,
		sandbox.ErrUnusable) {
		t.Errorf("on cgroup v1: %v", err)
	}
}

// sandboxConfig returns the paths of our programs for an experiment. The helper is the command that contains the
// experiments.
func sandboxConfig(t *testing.T, helper string) sandbox.Config {
	t.Helper()
	return sandbox.Config{AgentPath: binary(t, "waterline-agent"), Helper: binary(t, helper)}
}
