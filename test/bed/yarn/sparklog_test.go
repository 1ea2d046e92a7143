package yarn

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSparkTasks counts attempts in events as Spark 4.3.0 writes them.
func TestSparkTasks(t *testing.T) {
	event := func(kind string, stage, task, partition int, reason string) string {
		return fmt.Sprintf(`{"Event":"SparkListener%s","Stage ID":%d,"Stage Attempt ID":0,"Task End Reason":{"Reason":%q},`+
			`"Task Info":{"Task ID":%d,"Index":0,"Attempt":0,"Partition ID":%d,"Executor ID":"1","Host":"h"}}`+"\n",
			kind, stage, reason, task, partition)
	}
	ran := func(stage, task, partition int, ends ...string) string {
		all := event("TaskStart", stage, task, partition, "")
		for _, end := range ends {
			all += event("TaskEnd", stage, task, partition, end)
		}
		return all
	}
	log := `{"Event":"SparkListenerLogStart","Spark Version":"4.3.0"}` + "\n" +
		ran(0, 0, 0, "Success") + ran(0, 1, 1, "Success") +
		ran(0, 2, 2, "Success", "Resubmitted") + ran(0, 3, 2, "Success") + // lost while the stage ran
		`{"Event":"SparkListenerStageCompleted","Stage Info":{"Stage ID":0}}` + "\n" +
		ran(1, 4, 0, "FetchFailed") + ran(1, 5, 1, "ExecutorLostFailure") + ran(1, 9, 2) +
		`{"Event":"SparkListenerStageCompleted","Stage Info":{"Stage ID":1,"Failure Reason":"fetch"}}` + "\n" +
		`{"Event":"SparkListenerExecutorRemoved","Timestamp":7500,"Executor ID":"1","Removed Reason":"gone"}` + "\n" +
		ran(0, 6, 1, "Success") + // lost after the stage
		ran(1, 7, 0, "Success") + ran(1, 8, 1, "Success") + ran(1, 10, 2, "Success") +
		`{"Event":"SparkListenerStageCompleted","Stage Info":{"Stage ID":1}}` + "\n" +
		`{"Event":"SparkListenerTaskSta` // being written
	s, err := parseSparkTasks(log)
	if err != nil {
		t.Fatal(err)
	}
	want := []Rerun{{0, 2, LostOutput}, {0, 1, LostOutput}, {1, 0, "FetchFailed"}, {1, 1, "ExecutorLostFailure"},
		{1, 2, StillRuns}}
	if s.Tasks != 6 || s.Stages != 2 || !slices.Equal(s.Again, want) || math.Round(s.Percent()) != 83 ||
		s.Removed["1"] != (SparkRemoval{time.UnixMilli(7500), "gone"}) ||
		!slices.Equal(s.RemovedAfter(time.Unix(1, 0)), []float64{6.5}) ||
		s.Ran["h"] != 8 {
		t.Errorf("%+v, %v %%", s, s.Percent())
	}
	if why := s.Why(); !maps.Equal(why, map[string]int{LostOutput: 2, "FetchFailed": 1, "ExecutorLostFailure": 1,
		StillRuns: 1}) {
		t.Errorf("reasons: %v", why)
	}
	if _, err := parseSparkTasks("no event\n"); err == nil || !strings.Contains(err.Error(), "no event") {
		t.Errorf("a line that is no event: %v", err)
	}
}
