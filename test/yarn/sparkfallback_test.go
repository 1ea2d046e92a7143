package yarn_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

// TestSparkFallback lets all NodeManagers leave after the first stage of a shuffle job, so no executor is left to take
// blocks. The last ones move them to the fallback storage. The executors that come with the nodes later find all output
// of the first stage there: none of its tasks runs again, although all executors that ran it are gone.
func TestSparkFallback(t *testing.T) {
	if _, err := os.Stat(sparkDir); err != nil && os.Getenv("CI") == "" {
		t.Skipf("no Spark; run test/bed/yarn/build.sh spark: %v", err)
	}
	startWorkers(t)
	events, fallback := t.TempDir(), filepath.Join(t.TempDir(), "fallback")
	l := leaving{interval: "1s", sleeps: bed.Sleeps{First8: time.Second, Others: time.Second, Last: time.Second}}
	settings := l.settings(t, events)
	settings["spark.storage.decommission.fallbackStorage.path"] = "file://" + fallback + "/"
	command, err := cluster.Spark(t.Context(), sparkDir, bed.ShuffleProgram(l.sleeps), settings)
	if err != nil {
		t.Fatal(err)
	}
	j, _ := job(t, command)
	firstStage(t, j, events)
	before, err := bed.ReadSparkTasks(events)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	leave(t, 2*time.Minute, sparkWorkers...)
	for _, i := range sparkWorkers {
		waitNode(t, bed.NodeID(i), "decommissioned", func(n yarn.Node) bool { return n.State == yarn.NodeDecommissioned })
		ended(t, i)
	}
	const firstTasks = 60
	moved, err := outputs(fallback, "shuffle_0_")
	if err != nil || moved != firstTasks {
		t.Errorf("the fallback storage has the output of %d tasks of the first stage, not of %d: %v", moved, firstTasks, err)
	}
	if err := errors.Join(cluster.Exclude(), admin.RefreshNodes(t.Context())); err != nil {
		t.Fatal(err)
	}
	startAgain(t, sparkWorkers...)
	if err := j.Wait(within(t, 20*time.Minute)); err != nil {
		t.Fatal(err)
	}
	s, err := bed.ReadSparkTasks(events)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d stages had ended; executors were removed after %v; %d of %d tasks ran again: %v", before.Stages,
		s.RemovedAfter(began), len(s.Again), s.Tasks, s.Why())
	if len(s.Removed) < len(sparkWorkers) || !strings.Contains(j.Output(), bed.ShuffleAnswer) {
		t.Errorf("executors that left: %+v; %s", s.Removed, j.Output())
	}
	for _, again := range s.Again {
		if again.Stage == 0 {
			t.Errorf("a task of the first stage ran again: %+v", again)
		}
	}
}

// outputs counts files with the output of map tasks below a directory.
func outputs(dir, prefix string) (n int, err error) {
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name := filepath.Base(path); strings.HasPrefix(name, prefix) && strings.HasSuffix(name, ".data") {
			n++
		}
		return err
	})
	return n, err
}
