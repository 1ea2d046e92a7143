//go:build bench

package e2e_test

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/lab/measure"
)

// wave is the time in which pods got nodes.
type wave struct{ first, last time.Time }

// seen notes that one more pod has a node.
func (w *wave) seen(string) {
	w.last = time.Now()
	if w.first.IsZero() {
		w.first = w.last
	}
}

// mixed changes the i-th of many pods: each fifth has a weight.
func mixed(i int) func(*corev1.Pod) {
	if i%5 == 0 {
		return weighing(2048)
	}
	return nil
}

// ofBatch changes the i-th of many pods: each requests batch CPU only.
func ofBatch(int) func(*corev1.Pod) { return batchCPU("500") }

// throughput returns how many pods a second get their nodes while there are more than enough. The pods are made in
// etcd, so that making them takes no CPU from the scheduler for long.
func (s *schedule) throughput(profile string, pods int, kind func(i int) func(*corev1.Pod)) float64 {
	s.t.Helper()
	var entries []entry
	var all []*corev1.Pod
	now := metav1.Now()
	for i := range pods {
		p := s.newPod(profile, kind(i))
		p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		p.UID, p.CreationTimestamp = types.UID(p.Name), now
		p.Spec.RestartPolicy, p.Spec.DNSPolicy = corev1.RestartPolicyAlways, corev1.DNSClusterFirst
		p.Status.Phase, p.Status.QOSClass = corev1.PodPending, corev1.PodQOSBurstable
		p.Spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
		p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageReadFile
		grace, links := int64(0), false
		p.Spec.TerminationGracePeriodSeconds, p.Spec.EnableServiceLinks = &grace, &links
		entries, all = append(entries, entry{"pods/" + scheduleNamespace + "/" + p.Name, p}), append(all, p)
	}
	var w wave
	s.follow(all, func() {
		if err := s.registry.make(entries); err != nil {
			s.t.Error(err)
		}
	}, w.seen)
	s.removePods()
	return float64(pods-1) / w.last.Sub(w.first).Seconds()
}

// latency returns the time within which 99 of 100 pods get their nodes, while so many are made a second.
func (s *schedule) latency(profile string, rate, pods int) time.Duration {
	s.t.Helper()
	var mu sync.Mutex
	times := map[string]time.Time{}
	var all []*corev1.Pod
	for i := range pods {
		all = append(all, s.newPod(profile, mixed(i)))
	}
	var latencies []time.Duration
	s.follow(all, func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		var wg sync.WaitGroup
		for _, p := range all {
			<-tick.C
			mu.Lock()
			times[p.Name] = time.Now()
			mu.Unlock()
			wg.Go(func() {
				if err := s.try(p); err != nil {
					s.t.Error(err)
				}
			})
		}
		wg.Wait()
	}, func(name string) {
		mu.Lock()
		defer mu.Unlock()
		latencies = append(latencies, time.Since(times[name]))
	})
	s.removePods()
	slices.Sort(latencies)
	return latencies[len(latencies)*99/100]
}

// TestSchedulerFigures compares the profile with all plugins with the stock profile of the same process, for pods that
// request CPU and for those that request batch CPU. The rounds of the two alternate, so that both see the same machine.
// With WATERLINE_BENCH it measures 10,000 pods on 1,000 nodes, or on as many as WATERLINE_SCALE_NODES says. Rounds
// differ by a tenth, and by much more while something else runs, so there are five of throughput, and medians count: of
// the rounds, and of the ratios within a round. The short form has few pods, and limits for a machine that other tests
// load as well: ratios, and the spread, which does not depend on speed. What the plugins cost on 1,000 nodes is limited
// by TestCycleCost in k8s/scheduler, which does without an API server.
func TestSchedulerFigures(t *testing.T) {
	const latencyRounds = 2
	count, pods, rounds, rate, seconds := 30, 150, latencyRounds, 20, 2 // the nodes have room for 16 batch pods each
	if benchFile != "" {
		count, pods, rounds, rate, seconds = 1000, 10_000, 5, 50, 30
		if n, err := strconv.Atoi(os.Getenv("WATERLINE_SCALE_NODES")); err == nil {
			count = n
		}
	}
	s := newSchedule(t)
	var nodes []schedNode
	for i := range count {
		report := online(16, i%8)
		report["cpu"].(map[string]any)["offer"] = map[string]any{"mid": "0", "batch": "8"}
		nodes = append(nodes, schedNode{name: nodeName(i), cpu: 16, batch: 8000, report: report})
	}
	s.nodes(nodes...)
	p := s.scheduler(false)
	s.known(p, "Trusted", count)
	s.throughput(stock, pods/4, mixed) // warms both up
	s.throughput(profiled, pods/4, ofBatch)

	c := noCrowd(t)
	metrics := map[string]float64{"nodes": float64(count), "pods": float64(pods)}
	latencies := map[string]float64{}
	for suffix, kind := range map[string]func(int) func(*corev1.Pod){"": mixed, "_batch": ofBatch} {
		rates, cpu := map[string][]float64{}, map[string][]float64{}
		var ratios []float64
		for round := range rounds {
			order := []string{stock, profiled}
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, profile := range order {
				before := c.cpuTime(p.cmd.Process.Pid)
				got := s.throughput(profile, pods, kind)
				spent := (c.cpuTime(p.cmd.Process.Pid) - before).Seconds() * 1000 / float64(pods)
				rates[profile], cpu[profile] = append(rates[profile], got), append(cpu[profile], spent)
				t.Logf("%s%s: %.0f pods a second, %.2f ms of CPU each", profile, suffix, got, spent)
			}
			ratios = append(ratios, rates[profiled][round]/rates[stock][round])
			if suffix != "" || round >= latencyRounds {
				continue
			}
			for _, profile := range order {
				got := s.latency(profile, rate, rate*seconds)
				latencies[profile] += got.Seconds() * 1000 / latencyRounds
				t.Logf("%s: 99 of 100 pods within %s at %d a second", profile, got.Round(100*time.Microsecond), rate)
			}
		}
		metrics["throughput_per_second"+suffix] = measure.Median(rates[profiled])
		metrics["throughput_per_second_stock"+suffix] = measure.Median(rates[stock])
		metrics["throughput_ratio"+suffix] = measure.Median(ratios)
		// The scheduler's own CPU, which other work on the machine does not change.
		metrics["cpu_ms_per_pod"+suffix] = measure.Median(cpu[profiled])
		metrics["cpu_ms_per_pod_stock"+suffix] = measure.Median(cpu[stock])
	}
	metrics["latency_p99_ms"], metrics["latency_p99_ms_stock"] = latencies[profiled], latencies[stock]
	metrics["latency_p99_ratio"] = latencies[profiled] / latencies[stock]
	p.kill()
	s.clean()
	nodes = nodes[:min(count, 100)] // of which each gets 10 pods
	for i := range nodes {
		nodes[i].report = nil
	}
	s.nodes(nodes...)
	p = s.scheduler(false)
	s.known(p, "Trusted", len(nodes))
	metrics["spread_max_over_mean_stock"], metrics["spread_met_percent_stock"] = s.spread(stock, nodes, 10*len(nodes))
	metrics["spread_max_over_mean"], metrics["spread_met_percent"] = s.spread(profiled, nodes, 10*len(nodes))
	if least := min(metrics["throughput_ratio"], metrics["throughput_ratio_batch"]); least < 0.4 ||
		metrics["spread_met_percent"] < 99 {
		t.Errorf("the throughput is %.2f of the stock profile's, and %.1f %% of the weights are met", least,
			metrics["spread_met_percent"])
	}
	metrics["cpu_ratio"] = metrics["cpu_ms_per_pod"] / metrics["cpu_ms_per_pod_stock"]
	c.judge("scheduler", metrics, map[string]float64{
		"spread_max_over_mean": 1.15, "latency_p99_ratio": 5, "cpu_ratio": 1.6,
	})
}
