package yarn_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	"github.com/waterline-io/waterline/test/bed/pages"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

// soak selects the full forms.
var soak = os.Getenv("WATERLINE_SOAK") != ""

// sparkDir is where test/bed/yarn/build.sh puts Spark.
const sparkDir = "../../out/yarn/spark"

// sparkDocs has the settings of the tests.
const sparkDocs = "../../docs/spark.md"

// sparkWorkers are the elastic nodes of the tests of Spark. Each has room for one executor.
var sparkWorkers = []int{elastic, 4, 5, 6}

// startWorkers makes sure that all of them run until the test ends. Other tests know one elastic node only.
func startWorkers(t *testing.T) {
	t.Helper()
	labelled(t)
	others := slices.DeleteFunc(slices.Clone(sparkWorkers), func(i int) bool { return i == elastic })
	t.Cleanup(func() { retire(t, others...) })
	for _, i := range others {
		if daemon := cluster.Node(i); daemon != nil {
			if err := daemon.Start(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := rm.SetNodeLabels(t.Context(), map[string]string{bed.NodeHost(i): bed.Label}); err != nil {
			t.Fatal(err)
		}
		if err := cluster.AddNode(i, int(offered.MemoryMiB), int(offered.VCores)); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range sparkWorkers {
		running(t, i)
	}
}

// retire decommissions nodes at once and ends their processes. They may be started again.
func retire(t *testing.T, nodes ...int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var hosts []string
	for _, i := range nodes {
		hosts = append(hosts, bed.NodeHost(i))
	}
	err := errors.Join(cluster.Exclude(hosts...), admin.RefreshNodes(ctx))
	for _, i := range nodes {
		err = errors.Join(err, cluster.Node(i).Stop(ctx))
	}
	if err = errors.Join(err, cluster.Exclude(), admin.RefreshNodes(ctx)); err != nil {
		t.Error(err)
	}
}

// leaving is how half of the NodeManagers leave a Spark application, after its first stage.
type leaving struct {
	name     string
	deadline time.Duration // 0: at once
	sleeps   bed.Sleeps
	interval string // the setting replicationReattemptInterval; empty: that of the docs
	// most is how many tasks may run again, in percent of all. late is how many of them may do so because their executor
	// was killed, or their output was lost.
	most float64
	late int
}

// TestSpark lets half of the NodeManagers leave in the middle of a shuffle job, with the settings of docs/spark.md.
//
//   - InTime: the stage that runs starts its last task before executors end. They end before the stage does, and their
//     data is needed after that.
//   - Late: the tasks that run take longer than the deadline, and are killed.
//   - LongStage: executors end while the stage still starts tasks. These look for data at its old places.
//   - AtOnce: the nodes are decommissioned without a deadline.
//
// The short form has the first only.
func TestSpark(t *testing.T) {
	if _, err := os.Stat(sparkDir); err != nil && os.Getenv("CI") == "" {
		t.Skipf("no Spark; run test/bed/yarn/build.sh spark: %v", err)
	}
	startWorkers(t)
	const second = time.Second
	busy := 5.0 // percent: beside other tests, executors may end while the stage still starts tasks
	if soak {
		busy = 0
	}
	short := bed.Sleeps{First8: second, Others: second / 2, Last: second / 2}
	ways := []leaving{
		{name: "InTime", deadline: 2 * time.Minute, interval: "20s",
			sleeps: bed.Sleeps{First8: second, Others: second / 5, Last: 50 * second}, most: busy},
		{name: "Late", deadline: 5 * second, most: 5, late: 2,
			sleeps: bed.Sleeps{First8: 15 * second, Others: second / 5, Last: second}},
		{name: "LongStage", deadline: 2 * time.Minute, interval: "1s", sleeps: short, most: 10},
		{name: "AtOnce", sleeps: short, most: 100, late: 100},
	}
	if !soak {
		ways = ways[:1]
	}
	for _, l := range ways {
		t.Run(l.name, l.run)
	}
}

// settings returns the settings of docs/spark.md, and those of the test.
func (l *leaving) settings(t *testing.T, events string) map[string]string {
	t.Helper()
	blocks, err := pages.Texts(sparkDocs, "properties")
	if err != nil {
		t.Fatal(err)
	}
	conf := bed.SparkProperties(blocks[0])
	maps.Copy(conf, map[string]string{
		"spark.storage.decommission.fallbackStorage.path": "file://" + filepath.Join(t.TempDir(), "fallback") + "/",
		"spark.dynamicAllocation.maxExecutors":            "4",
		"spark.dynamicAllocation.executorIdleTimeout":     "10m", // nobody leaves for another reason
		"spark.executor.instances":                        "4",   // the first ones
		"spark.executor.memory":                           "1g",
		"spark.executor.memoryOverhead":                   "384m",
	})
	maps.Copy(conf, bed.SparkCounting(events))
	if l.interval != "" {
		conf["spark.storage.decommission.replicationReattemptInterval"] = l.interval
	}
	return conf
}

// firstStage waits until a stage of a Spark application has ended.
func firstStage(t *testing.T, j *bed.Job, events string) {
	t.Helper()
	err := eventually(t, func(context.Context) error {
		s, err := bed.ReadSparkTasks(events)
		if err == nil && s.Stages == 0 {
			err = errors.New("no stage has ended")
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v: %s", err, j.Output())
	}
}

func (l *leaving) run(t *testing.T) {
	events := t.TempDir()
	command, err := cluster.Spark(t.Context(), sparkDir, bed.ShuffleProgram(l.sleeps), l.settings(t, events))
	if err != nil {
		t.Fatal(err)
	}
	j, app := job(t, command)
	firstStage(t, j, events)
	half := sparkWorkers[:len(sparkWorkers)/2]
	began := time.Now()
	leave(t, l.deadline, half...)
	if err := j.Wait(within(t, 20*time.Minute)); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began).Seconds()
	s, err := bed.ReadSparkTasks(events)
	if err != nil {
		t.Fatal(err)
	}
	why := s.Why()
	t.Logf("%.1f s after half of the nodes began to leave, the job ended: %d of %d tasks ran again (%.1f %%): %v; "+
		"executors were removed after %v", took, len(s.Again), s.Tasks, s.Percent(), why, s.RemovedAfter(began))
	if !strings.Contains(j.Output(), bed.ShuffleAnswer) {
		t.Errorf("the answer is wrong: %s", j.Output())
	}
	if len(s.Removed) != len(half) {
		t.Errorf("%d executors left before the job ended, not %d: %+v", len(s.Removed), len(half), s.Removed)
	}
	if late := len(s.Again) - why["FetchFailed"] - why[bed.StillRuns]; s.Percent() > l.most || late > l.late {
		t.Errorf("%.1f %% of the tasks ran again, %d of them because of the deadline: %+v", s.Percent(), late, s.Again)
	}
	// The client may end before the ResourceManager knows.
	err = eventually(t, func(ctx context.Context) error {
		a, err := bed.AppByID(ctx, rm, app)
		if err == nil && a.FinalStatus != "SUCCEEDED" {
			err = fmt.Errorf("the application is %+v", a)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, i := range half {
		waitNode(t, bed.NodeID(i), "decommissioned", func(n yarn.Node) bool { return n.State == yarn.NodeDecommissioned })
		ended(t, i)
	}
}
