//go:build bench

package e2e_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/test/bed/cluster"
)

// TestNodeColocate runs lab colocate in pods of a real node, like a user.
func TestNodeColocate(t *testing.T) {
	if *on == "vm" {
		t.Skip("the experiment runs on the node itself; times in an emulated machine mean nothing")
	}
	install(t)
	m := inPods(t, "colocate", "--load", "30", "--load", "60", "--load", "90", "--minutes", "30")
	// A mode has no figures if the generator was late every time, as it is where other processes take the CPUs.
	const attempts = 3
	for _, name := range []string{
		"alone_60_p99_ms", "p99_ratio_plain", "p99_ratio_waterline",
		"plain_60_batch_cpus", "waterline_60_batch_cpus", "unsuppressed_60_batch_cpus", "waterline_60_agent_cpus",
	} {
		switch value, known := m[name]; {
		case !known && m["runs_discarded"] >= attempts:
			t.Logf("%s is unknown: %v runs with a late generator were discarded", name, m["runs_discarded"])
		case value <= 0:
			t.Errorf("%s is %v", name, value)
		}
	}
	if plain, kept := m["p99_ratio_plain"], m["p99_ratio_waterline"]; kept > plain {
		t.Errorf("p99 is %v times that of the server alone, and %v times without Waterline", kept, plain)
	}
}

// TestNodeHeadline runs lab headline in pods of a real node, like a user.
func TestNodeHeadline(t *testing.T) {
	if *on == "vm" {
		t.Skip("the experiment runs on the node itself; times in an emulated machine mean nothing")
	}
	install(t)
	var args []string
	root := cmp.Or(os.Getenv("WATERLINE_TRACES"), "../../../shared/traces")
	if _, err := os.Stat(root); err == nil {
		args = []string{"--trace", root}
	}
	m := inPods(t, "headline", args...)
	for _, name := range []string{"alone_p99_ms", "p99_ratio", "waterline_batch_percent", "waterline_agent_percent",
		"waterline_ffmpeg_frames_per_second"} {
		if m[name] <= 0 {
			t.Errorf("%s is %v", name, m[name])
		}
	}
	if used, lost := m["cpu_total_percent"], m["pods_lost"]; used < 60 || lost > 0 {
		t.Errorf("%.0f %% of the CPU was used, and %v pods were lost", used, lost)
	}
}

// inPods runs an experiment in pods of the node, and returns its metrics. The experiment must leave no object behind.
func inPods(t *testing.T, name string, args ...string) map[string]float64 {
	t.Helper()
	file := cmp.Or(benchFile, filepath.Join(t.TempDir(), name+".json"))
	args = append([]string{name, "--in-pods", "--kubeconfig", bed.Kubeconfig(), "--node", cluster.NodeName, "--json",
		file}, args...)
	out, err := exec.Command(filepath.Join(built, "bin/lab"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var result struct{ Metrics map[string]float64 }
	if err := json.Unmarshal(content, &result); err != nil {
		t.Fatal(err)
	}
	for what, left := range map[string]string{
		"pods":     kubectl(t, "get", "pods", "-A", "-l", "waterline.io/experiment="+name, "-o", "name"),
		"policies": kubectl(t, "get", "colocationpolicies", "waterline-experiment", "-o", "name", "--ignore-not-found"),
	} {
		if left != "" {
			t.Errorf("the experiment left %s behind: %s", what, left)
		}
	}
	return result.Metrics
}
