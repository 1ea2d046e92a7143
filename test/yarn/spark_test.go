package yarn_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

// sparkProgram sums numbers by their last digit, twice, over a shuffle. In between it waits for a file.
const sparkProgram = `
import os, time
from pyspark.sql import SparkSession, functions as f
spark = SparkSession.builder.appName("sums").getOrCreate()
def sums():
    rows = spark.range(0, 200000, 1, 6).groupBy((f.col("id") % 10).alias("k")).agg(f.sum("id").alias("s")).collect()
    return sum(r.s for r in rows), len(rows)
print("FIRST", *sums(), flush=True)
while not os.path.exists("go"):
    time.sleep(0.2)
print("SECOND", *sums(), flush=True)
`

// TestSparkDrain checks that a Spark application gives the right result although one of its nodes is decommissioned
// gracefully while it runs.
func TestSparkDrain(t *testing.T) {
	const dir = "../../out/yarn/spark"
	if os.Getenv("WATERLINE_SOAK") == "" {
		t.Skip("WATERLINE_SOAK is not set: Spark is a download of 520 MB")
	}
	command, err := cluster.Spark(t.Context(), dir, sparkProgram, map[string]string{
		"spark.sql.shuffle.partitions":                            "4",
		"spark.decommission.enabled":                              "true",
		"spark.storage.decommission.enabled":                      "true",
		"spark.storage.decommission.shuffleBlocks.enabled":        "true",
		"spark.storage.decommission.fallbackStorage.path":         "file://" + filepath.Join(t.TempDir(), "fallback") + "/",
		"spark.scheduler.minRegisteredResourcesRatio":             "1.0",
		"spark.executor.decommission.forceKillTimeout":            "60s",
		"spark.storage.decommission.replicationReattemptInterval": "1s",
	})
	if err != nil {
		t.Fatal(err)
	}
	j, app := job(t, command)
	printed := func(word string) {
		t.Helper()
		err := bed.Eventually(soon(t), func(context.Context) error {
			if strings.Contains(j.Output(), word+" 19999900000 10\n") {
				return nil
			}
			return errors.New("the program has not printed " + word + " and the right sum")
		})
		if err != nil {
			t.Fatalf("%v: %s", err, j.Output())
		}
	}
	printed("FIRST")
	a, err := rm.App(t.Context(), app)
	if err != nil || a.Containers != 3 {
		t.Fatalf("a master and two executors should run: %+v, %v", a, err)
	}
	// The master has to stay until the end. Its node may have executors too.
	node := 1
	if a.MasterNode == bed.NodeID(1) {
		node = 2
	}
	if n, err := rm.Node(t.Context(), bed.NodeID(node)); err != nil || n.Containers == 0 {
		node = 3 - node
	}
	drain(t, node)
	if err := os.WriteFile(filepath.Join(command.Dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	printed("SECOND")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := j.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	waitNode(t, bed.NodeID(node), "decommissioned", func(n yarn.Node) bool { return n.State == yarn.NodeDecommissioned })
	ended(t, node)
	if a, err := rm.App(t.Context(), app); err != nil || a.FinalStatus != "SUCCEEDED" {
		t.Errorf("the application: %+v, %v", a, err)
	}
}
