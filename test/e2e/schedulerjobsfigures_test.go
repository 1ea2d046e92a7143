//go:build bench

package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// jobRequestMilli is the CPU that each job requests.
const jobRequestMilli = 100

// TestSchedulerJobsFigures lets ffmpeg run, placed in each way that occurred when the profile with all plugins and the
// stock profile scheduled four jobs: each node is one CPU of this machine, and the jobs have the weights that an agent
// gives them. Weighted jobs that share a node take twice as long.
func TestSchedulerJobsFigures(t *testing.T) {
	repeats, seconds := 1, 2
	if benchFile != "" {
		repeats, seconds = 5, 10
	}
	placed := placedJobs(t, repeats, stock, profiled)
	took := map[string]time.Duration{} // mean of the weighted jobs
	mean := func(profile string) float64 {
		var all []float64
		for placement, times := range placed[profile] {
			if _, ran := took[placement]; !ran {
				took[placement] = runJobs(t, placement, seconds)
			}
			for range times {
				all = append(all, took[placement].Seconds())
			}
		}
		return measure.Mean(all)
	}
	metrics := map[string]float64{
		"jobs_weighted_seconds": mean(profiled), "jobs_weighted_seconds_stock": mean(stock),
	}
	metrics["jobs_weighted_ratio"] = metrics["jobs_weighted_seconds"] / metrics["jobs_weighted_seconds_stock"]
	c := noCrowd(t)
	c.judge("scheduler-jobs", metrics, map[string]float64{"jobs_weighted_ratio": 1.5})
}

// runJobs runs ffmpeg jobs side by side on the first CPUs of this machine, and returns how long those with a weight
// took on average.
func runJobs(t *testing.T, placement string, seconds int) time.Duration {
	t.Helper()
	s, err := sandbox.Open("scheduler-jobs", sandbox.Config{
		AgentPath: filepath.Join(built, "bin/waterline-agent"), Helper: filepath.Join(built, "bin/lab"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), mostWait)
	defer cancel()
	var weighted sync.WaitGroup
	var sum atomic.Int64
	cpu, start := 0, time.Now()
	for i, kind := range placement {
		if kind == ' ' {
			cpu++
			continue
		}
		pod := &sandbox.Pod{Name: fmt.Sprint("job-", i), QoS: model.Burstable, RequestMilli: jobRequestMilli}
		if err := s.Create(pod); err != nil {
			t.Fatal(err)
		}
		if kind == 'w' {
			if err := s.SetShares(s.PodGroup(pod), jobShares); err != nil {
				t.Fatal(err)
			}
		}
		job, err := s.Start(sandbox.Command{
			Name: pod.Name, Group: s.ContainerGroup(pod), Ends: true,
			Program: []string{
				taskset, "-c", strconv.Itoa(cpu), "ffmpeg", "-loglevel", "error", "-nostdin", "-f", "lavfi", "-i",
				fmt.Sprintf("testsrc2=size=640x360:rate=25:duration=%d", seconds),
				"-c:v", "libx264", "-threads", "1", "-f", "null", "-",
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := job.Kill(); err != nil {
				t.Error(err)
			}
		}()
		if kind != 'w' {
			continue
		}
		weighted.Go(func() {
			if err := job.Wait(ctx); err != nil {
				t.Errorf("jobs placed as %q: %v", placement, err)
			}
			sum.Add(int64(time.Since(start)))
		})
	}
	weighted.Wait()
	mean := time.Duration(sum.Load() / 2)
	t.Logf("placed as %q, weighted jobs take %.2f s", placement, mean.Seconds())
	return mean
}
