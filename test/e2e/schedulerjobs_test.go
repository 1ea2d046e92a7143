package e2e_test

import (
	"strings"
	"testing"
)

// jobShares is the weight of a weighted job.
const jobShares = 10240

// jobOrders are the orders in which two weighted jobs, w, and two others, o, can come.
var jobOrders = []string{"wwoo", "wowo", "woow", "owwo", "owow", "ooww"}

// TestSchedulerJobs schedules four jobs, two of them with a weight, onto two nodes of one CPU each, in every order in
// which they can come. The profile with all plugins never puts both jobs with a weight on one node.
func TestSchedulerJobs(t *testing.T) {
	placed := placedJobs(t, 1, profiled)
	for placement := range placed[profiled] {
		if strings.Contains(placement, "ww") {
			t.Errorf("Waterline's scheduler placed both jobs with a weight on one node: %v", placed[profiled])
		}
	}
}

// placedJobs returns how often profiles placed the jobs in each way, by profile.
func placedJobs(t *testing.T, repeats int, profiles ...string) map[string]map[string]int {
	t.Helper()
	s := newSchedule(t)
	nodes := []schedNode{{name: nodeName(0), cpu: 1}, {name: nodeName(1), cpu: 1}}
	s.nodes(nodes...)
	p := s.scheduler(false)
	s.known(p, "Trusted", len(nodes))
	placed := map[string]map[string]int{} // profile, placement, how often
	for range repeats {
		for _, order := range jobOrders {
			for _, profile := range profiles {
				if placed[profile] == nil {
					placed[profile] = map[string]int{}
				}
				placed[profile][s.placeJobs(profile, order)]++
			}
		}
	}
	p.kill()
	t.Logf("placed: %v", placed)
	return placed
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
