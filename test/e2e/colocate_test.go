package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/waterline-io/waterline/test/bed/cluster"
)

// TestNodeColocate runs waterline experiment colocate in pods of a real node, as a user does on it.
func TestNodeColocate(t *testing.T) {
	if *on == "vm" {
		t.Skip("the experiment runs on the node itself; in an emulated machine times mean nothing")
	}
	install(t)
	seconds, repeats, loads := 2, 1, "60"
	if soak {
		seconds, repeats, loads = 15, 5, "30,60"
	}
	file := filepath.Join(t.TempDir(), "colocate.json")
	out, err := exec.Command(filepath.Join(built, "bin/waterline"), "experiment", "colocate", "--in-pods", "--kubeconfig", bed.Kubeconfig(),
		"--node", cluster.NodeName, "--load", loads, "--seconds", fmt.Sprint(seconds), "--repeats", fmt.Sprint(repeats), "--json", file).CombinedOutput()
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
	m := result.Metrics
	// In the short form that is one run of seconds each: that the server is as if alone TestColocate checks on this kernel. And of a
	// mode nothing is known in which the generator was late each time, as it is where others take the CPUs.
	const attempts = 3
	for _, name := range []string{
		"alone_60_p99_ms", "p99_ratio_plain", "p99_ratio_waterline",
		"plain_60_batch_cpus", "waterline_60_batch_cpus", "unsuppressed_60_batch_cpus", "waterline_60_agent_cpus",
	} {
		switch value, known := m[name]; {
		case !known && m["runs_discarded"] >= attempts:
			t.Logf("%s is not known: %v runs in which the generator was late were discarded", name, m["runs_discarded"])
		case value <= 0:
			t.Errorf("%s is %v", name, value)
		}
	}
	if plain, kept := m["p99_ratio_plain"], m["p99_ratio_waterline"]; soak && kept > plain {
		t.Errorf("p99 is %v times what it is alone, and %v times without Waterline", kept, plain)
	}
	for what, left := range map[string]string{
		"pods":     kubectl(t, "get", "pods", "-A", "-l", "waterline.io/experiment=colocate", "-o", "name"),
		"policies": kubectl(t, "get", "colocationpolicies", "waterline-experiment", "-o", "name", "--ignore-not-found"),
	} {
		if left != "" {
			t.Errorf("it left %s behind: %s", what, left)
		}
	}
}
