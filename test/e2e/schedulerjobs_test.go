package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/measure"
	"github.com/waterline-io/waterline/internal/experiment/sandbox"
	"github.com/waterline-io/waterline/internal/model"
)

// jobShares is the weight of a weighted job, and jobRequest what each job requests.
const jobShares, jobRequestMilli = 10240, 100

// jobOrders are the orders in which two weighted jobs, w, and two others, o, can come.
var jobOrders = []string{"wwoo", "wowo", "woow", "owwo", "owow", "ooww"}

// TestSchedulerJobs schedules four transcodings, two of them with a weight, onto two nodes of one CPU each, in every
// order in which they can come, by the profile with all plugins and by the stock profile. Then ffmpeg runs, placed in
// each way that occurred: each node is one CPU of this machine, and the jobs have the weights that an agent gives them.
// Weighted jobs that share a node take twice as long.
func TestSchedulerJobs(t *testing.T) {
	repeats, seconds := 1, 2
	if benchFile != "" {
		repeats, seconds = 5, 10
	}
	s := newSchedule(t)
	nodes := []schedNode{{name: nodeName(0), cpu: 1}, {name: nodeName(1), cpu: 1}}
	s.nodes(nodes...)
	p := s.scheduler(false)
	s.known(p, "Trusted", len(nodes))
	placed := map[string]map[string]int{} // profile, placement, how often
	for range repeats {
		for _, order := range jobOrders {
			for _, profile := range []string{stock, profiled} {
				if placed[profile] == nil {
					placed[profile] = map[string]int{}
				}
				placed[profile][s.placeJobs(profile, order)]++
			}
		}
	}
	p.kill()
	t.Logf("placed by the stock scheduler %v, by Waterline's %v", placed[stock], placed[profiled])

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
	c := &crowd{fake: &fake{t: t, groups: newGroups(t)}}
	c.judge("scheduler-jobs", metrics, map[string]float64{"jobs_weighted_ratio": 1.5})
	for placement := range placed[profiled] {
		if strings.Contains(placement, "ww") {
			t.Errorf("Waterline's scheduler placed both jobs with a weight on one node: %v", placed[profiled])
		}
	}
}

// placeJobs lets a profile place jobs that come one after the other, and returns which are on the same node, as in
// "wo wo" or "ww oo".
func (s *schedule) placeJobs(profile, order string) string {
	s.t.Helper()
	on := map[string]string{} // node: its jobs, those with a weight first
	for _, kind := range order {
		change := weighing(jobShares)
		if kind == 'o' {
			change = nil
		}
		node := s.bound(s.pod(profile, change)).Spec.NodeName
		if kind == 'w' {
			on[node] = "w" + on[node]
		} else {
			on[node] += "o"
		}
	}
	s.removePods()
	return max(on[nodeName(0)], on[nodeName(1)]) + " " + min(on[nodeName(0)], on[nodeName(1)])
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
