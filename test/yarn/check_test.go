package yarn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/decide/cluster/yarncheck"
	"github.com/waterline-io/waterline/test/bed/pages"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

// check runs waterline yarn check, and returns the codes of what it found, by severity.
func check(t *testing.T, label, floor string, more ...string) map[yarncheck.Severity][]yarncheck.Code {
	t.Helper()
	args := []string{"yarn", "check", "--label", label, "--floor", floor, "--user", "root", "-o", "json",
		"--ignore", string(yarncheck.LabelStoreTemporary)} // where the checkout is, is up to its owner
	for _, url := range cluster.URLs() {
		args = append(args, "--rm", url)
	}
	args = append(args, more...)
	out, err := exec.CommandContext(soon(t), filepath.Join(bin, "waterline"), args...).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%v: %s", err, out)
	}
	var report yarncheck.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(report.Unchecked) > 0 {
		t.Errorf("not checked: %+v", report.Unchecked)
	}
	found := map[yarncheck.Severity][]yarncheck.Code{}
	for _, f := range report.Findings {
		found[f.Severity] = append(found[f.Severity], f.Code)
	}
	return found
}

// TestCheck checks that the command finds what is wrong with a cluster, and no more. Nothing is wrong with the settings
// of docs/spark.md.
func TestCheck(t *testing.T) {
	labelled(t)
	blocks, err := pages.Texts(sparkDocs, "properties")
	if err != nil {
		t.Fatal(err)
	}
	defaults := filepath.Join(t.TempDir(), "spark-defaults.conf")
	if err := os.WriteFile(defaults, []byte(blocks[0]), 0o644); err != nil {
		t.Fatal(err)
	}
	floor := fmt.Sprintf("%dMiB,1vcores", bed.MinMemory)
	open := []yarncheck.Code{yarncheck.WebPortOpen, yarncheck.LogsNotAggregated} // as Hadoop is without settings
	for _, test := range []struct {
		name, label, floor string
		errors, warnings   []yarncheck.Code
	}{
		{"as it is", bed.Label, floor, nil, append([]yarncheck.Code{yarncheck.MastersOnLabel}, open...)},
		{"a small floor", bed.Label, "64MiB,1vcores", []yarncheck.Code{yarncheck.MinimumAboveFloor},
			append([]yarncheck.Code{yarncheck.MastersOnLabel}, open...)},
		{"another label", "no-such-label", floor, []yarncheck.Code{yarncheck.NoQueueForLabel},
			append([]yarncheck.Code{yarncheck.LabelMissing}, open...)},
	} {
		found := check(t, test.label, test.floor, "--spark-defaults", defaults)
		if !slices.Equal(found[yarncheck.Error], test.errors) || !slices.Equal(found[yarncheck.Warning], test.warnings) {
			t.Errorf("%s: %q", test.name, found)
		}
	}
}

// TestMastersOnFixedNodes checks that a default label of masters, of one blank, keeps a MapReduce job's master on the
// default partition, while its tasks go to the label of its queue. It also checks that the command finds the settings
// that changed.
func TestMastersOnFixedNodes(t *testing.T) {
	labelled(t)
	change := map[string]string{
		"yarn.resourcemanager.node-labels.am.default-node-label-expression": " ",
		"yarn.resourcemanager.nodes.exclude-path":                           "",
		"yarn.nm.liveness-monitor.expiry-interval-ms":                       "600000",
	}
	if err := cluster.Configure(change); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Configure(nil); err != nil {
			t.Error(err)
		}
		restartRM(t)
	}()
	restartRM(t)
	found := check(t, bed.Label, fmt.Sprintf("%dMiB,1vcores", bed.MinMemory))
	want := []yarncheck.Code{yarncheck.ExpiryLong, yarncheck.NoExcludePath, yarncheck.WebPortOpen,
		yarncheck.LogsNotAggregated}
	if len(found[yarncheck.Error]) > 0 || !slices.Equal(found[yarncheck.Warning], want) {
		t.Errorf("findings: %q", found)
	}
	command := cluster.Command(t.Context(), "org.apache.hadoop.mapreduce.SleepJob",
		"-Dmapreduce.job.queuename="+bed.LabelQueue, "-m", "1", "-r", "0", "-mt", "60000")
	_, id := job(t, command)
	var app bed.App
	err := eventually(t, func(ctx context.Context) (err error) {
		if app, err = bed.AppByID(ctx, rm, id); err == nil && app.Containers < 2 {
			err = fmt.Errorf("the map has no container: %+v", app)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if app.MasterNode != bed.NodeID(1) && app.MasterNode != bed.NodeID(2) {
		t.Errorf("the master is not on a node of the default partition: %+v", app)
	}
	if node := running(t, elastic); node.Containers != 1 {
		t.Errorf("the map is not on the label: %+v", node)
	}
}
