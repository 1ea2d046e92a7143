package yarn

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Rerun is an attempt of a task of Spark after the first one.
type Rerun struct {
	Stage, Partition int
	// Why is [LostOutput], [StillRuns], or the end of the attempt before in Spark's word, such as ExecutorLostFailure,
	// FetchFailed, TaskKilled.
	Why string
}

// Reasons of this package why a task runs again.
const (
	LostOutput = "LostOutput" // it had succeeded, and nobody has its output any more
	StillRuns  = "StillRuns"  // its stage was started again because of another task, and the attempt before runs on
)

// SparkTasks is what became of the tasks of a Spark application, by its event log.
type SparkTasks struct {
	Tasks  int     // that its stages needed
	Again  []Rerun // in the order of their start
	Stages int     // that have ended well
	// Removed has when and why executors were removed while the application ran, by executor.
	Removed map[string]SparkRemoval
	// Ran has the number of tasks that succeeded, by the executor's host.
	Ran map[string]int
}

// SparkRemoval is the end of an executor.
type SparkRemoval struct {
	At     time.Time
	Reason string
}

// RemovedAfter returns how many seconds after a moment executors were removed, first ones first.
func (s *SparkTasks) RemovedAfter(moment time.Time) []float64 {
	var all []float64
	for _, r := range s.Removed {
		all = append(all, math.Round(r.At.Sub(moment).Seconds()*10)/10)
	}
	slices.Sort(all)
	return all
}

// SparkCounting returns the settings of an application whose tasks are counted. Its event log goes into a directory.
func SparkCounting(events string) map[string]string {
	return map[string]string{
		"spark.eventLog.enabled":         "true",
		"spark.eventLog.dir":             "file://" + events,
		"spark.eventLog.compress":        "false",
		"spark.eventLog.rolling.enabled": "false",
		"spark.sql.adaptive.enabled":     "false", // it would change the number of tasks
		// All executors take part from the beginning.
		"spark.scheduler.minRegisteredResourcesRatio":       "1.0",
		"spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
	}
}

// Why counts the attempts after the first ones by their reasons.
func (s *SparkTasks) Why() map[string]int {
	all := map[string]int{}
	for _, r := range s.Again {
		all[r.Why]++
	}
	return all
}

// Percent returns how many attempts came after the first ones, in percent of the tasks.
func (s *SparkTasks) Percent() float64 { return 100 * float64(len(s.Again)) / float64(max(s.Tasks, 1)) }

// ReadSparkTasks reads the event log of the only application in a directory. Its settings are those of [SparkCounting].
// It may run.
func ReadSparkTasks(dir string) (SparkTasks, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		return SparkTasks{}, fmt.Errorf("%s has %d event logs of Spark, not 1: %q, %w", dir, len(files), files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		return SparkTasks{}, fmt.Errorf("reading Spark's event log: %w", err)
	}
	return parseSparkTasks(string(content))
}

// sparkEvent has the fields that are read of events, of all kinds.
type sparkEvent struct {
	Event     string
	Stage     int        `json:"Stage ID"`
	Info      *sparkTask `json:"Task Info"`
	EndReason struct {
		Reason string
	} `json:"Task End Reason"`
	StageInfo struct {
		Failure string `json:"Failure Reason"`
	} `json:"Stage Info"`
	Executor string `json:"Executor ID"`
	Time     int64  `json:"Timestamp"` // milliseconds
	Removed  string `json:"Removed Reason"`
}

type sparkTask struct {
	ID        int `json:"Task ID"`
	Partition int `json:"Partition ID"`
	Host      string
}

// place is a task, whose attempts follow each other.
type place struct{ stage, partition int }

// parseSparkTasks reads events, one a line. The last line may be incomplete.
func parseSparkTasks(log string) (SparkTasks, error) {
	s := SparkTasks{Removed: map[string]SparkRemoval{}, Ran: map[string]int{}}
	places := map[int]place{}  // by id of the attempt
	last := map[place]string{} // how the newest attempt that has ended did so; StillRuns: none has
	for line := range strings.Lines(log) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		var e sparkEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return s, fmt.Errorf("an event of Spark: %w: %.300s", err, line)
		}
		switch e.Event {
		case "SparkListenerTaskStart":
			at := place{e.Stage, e.Info.Partition}
			places[e.Info.ID] = at
			if why, found := last[at]; found {
				s.Again = append(s.Again, Rerun{at.stage, at.partition, why})
			}
			last[at] = StillRuns
		case "SparkListenerTaskEnd":
			if at, found := places[e.Info.ID]; found {
				last[at] = ending(e.EndReason.Reason)
			}
			if e.EndReason.Reason == "Success" {
				s.Ran[e.Info.Host]++
			}
		case "SparkListenerStageCompleted":
			if e.StageInfo.Failure == "" {
				s.Stages++
			}
		case "SparkListenerExecutorRemoved":
			s.Removed[e.Executor] = SparkRemoval{time.UnixMilli(e.Time), e.Removed}
		}
	}
	s.Tasks = len(last)
	return s, nil
}

// ending returns why a task runs again whose attempt has ended for a reason. Spark logs a second end, Resubmitted, when
// the output of an attempt that has succeeded is lost while its stage runs.
func ending(reason string) string {
	if reason == "Success" || reason == "Resubmitted" {
		return LostOutput
	}
	return reason
}
