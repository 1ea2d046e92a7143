package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
)

// check reads all pods, and checks that no node has more requests than it has resources, and that no CPU was promised
// twice.
func (s *schedule) check(nodes map[string]schedNode) (boundPods int) {
	s.t.Helper()
	cpu, batch, promised := map[string]int64{}, map[string]int64{}, map[string]model.CPUSet{}
	for _, p := range s.list() {
		on := p.Spec.NodeName
		if on == "" {
			continue
		}
		boundPods++
		requests := p.Spec.Containers[0].Resources.Requests
		cpu[on] += requests.Cpu().MilliValue()
		amount := requests[v1alpha1.ResourceBatchCPU]
		batch[on] += amount.Value()
		hint, err := model.ParseCPUs(p.Annotations[v1alpha1.AnnotationCPUSetHint])
		if err != nil || hint.Overlaps(promised[on]) {
			s.t.Errorf("%s on %s has the hint %s, and %s is promised there: %v", p.Name, on, hint, promised[on], err)
		}
		if p.Annotations[v1alpha1.AnnotationCPUManager] != "" && hint.Len() != int(requests.Cpu().Value()) {
			s.t.Errorf("%s wants %s CPUs of its own and has the hint %q", p.Name, requests.Cpu(), hint)
		}
		promised[on] = promised[on].Or(hint)
	}
	for name, n := range nodes {
		if cpu[name] > int64(n.cpu)*1000 || batch[name] > int64(n.batch) {
			s.t.Errorf("%s has %d CPUs and %d of batch, and %d and %d are requested",
				name, n.cpu, n.batch, cpu[name], batch[name])
		}
	}
	return boundPods
}

// TestSchedulerLeaderChange kills the leading scheduler in the middle of a wave, twice: another one takes over, and
// then one that starts anew. Nothing is booked twice.
func TestSchedulerLeaderChange(t *testing.T) {
	s := newSchedule(t)
	nodes := map[string]schedNode{}
	var all []schedNode
	for i := range 20 {
		n := schedNode{name: nodeName(i), cpu: 8, batch: 4000, report: freeCPUs("1-7", "0-3/4-7", 7)}
		nodes[n.name], all = n, append(all, n)
	}
	s.nodes(all...)
	leader := s.scheduler(true)
	s.bound(s.pod(profiled, nil))
	next := s.scheduler(true)

	const each, batchFits = 100, 80 // of each kind of pods; of batch pods that fit
	var pods []*corev1.Pod
	for range each {
		for _, change := range []func(*corev1.Pod){exclusive(1), batchCPU("1000"), weighing(1024)} {
			pods = append(pods, s.newPod(profiled, change))
		}
	}
	const want = 1 + 2*each + batchFits
	var made sync.WaitGroup
	made.Go(func() {
		for _, p := range pods {
			if err := s.try(p); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	defer made.Wait()
	reached := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d pods have nodes", n), func() (bool, string) {
			got := s.check(nodes)
			return got >= n, strconv.Itoa(got)
		})
	}
	reached(want / 4)
	leader.kill()
	atKill := s.check(nodes)
	reached(want / 2)
	next.kill()
	s.scheduler(true)
	reached(want)
	time.Sleep(time.Second)
	if got := s.check(nodes); got != want {
		t.Errorf("%d pods have nodes, and %d fit", got, want)
	}
	t.Logf("the first scheduler bound %d of %d pods", atKill, want)
}

// follow watches pods get their nodes, until all have, and calls seen for each. begin makes the pods.
func (s *schedule) follow(pods []*corev1.Pod, begin func(), seen func(name string)) {
	s.t.Helper()
	missing := map[string]bool{}
	for _, p := range pods {
		missing[p.Name] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var once sync.Once
	for ctx.Err() == nil && len(missing) > 0 {
		// A watch may end at any time. The next one begins with all pods.
		w, err := s.client.CoreV1().Pods(scheduleNamespace).Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			s.t.Fatal(err)
		}
		once.Do(func() { go begin() })
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok || p.Spec.NodeName == "" || !missing[p.Name] {
				continue
			}
			seen(p.Name)
			if delete(missing, p.Name); len(missing) == 0 {
				break
			}
		}
		w.Stop()
	}
	if len(missing) > 0 {
		s.t.Fatalf("%d of %d pods have no node", len(missing), len(pods))
	}
}

// spread schedules pods, of which each fifth has a weight, and returns the highest weight pressure of a node against
// the mean, and the part of the pods with a weight that get the CPU that they expect, in percent.
func (s *schedule) spread(profile string, nodes []schedNode, pods int) (overMean, met float64) {
	s.t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	sizes := []string{"100m", "500m", "1"}
	var all []*corev1.Pod
	for i := range pods {
		change := func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(sizes[random.IntN(len(sizes))])
			if i%5 == 0 {
				weighing(4096)(p)
			}
		}
		all = append(all, s.newPod(profile, change))
	}
	random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	s.follow(all, func() {
		for _, p := range all {
			if err := s.try(p); err != nil {
				s.t.Error(err)
				return
			}
		}
	}, func(string) {})
	on := map[string][]place.Weight{}
	for _, p := range s.list() {
		shares, _ := strconv.ParseInt(p.Annotations[v1alpha1.AnnotationCPUShare], 10, 64)
		on[p.Spec.NodeName] = append(on[p.Spec.NodeName], place.Weight{
			QoS: model.Burstable, Request: p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(), Shares: shares,
		})
	}
	s.removePods()
	var most, sum, weighted, satisfied float64
	for _, n := range nodes {
		cpu := int64(n.cpu) * 1000
		var sums place.Sums
		got := place.Expect(&place.Hierarchy{CPU: cpu}, on[n.name])
		for i, w := range on[n.name] {
			sums = sums.Add(&w)
			if w.Shares == 0 {
				continue
			}
			weighted++
			if got[i] >= w.Shares*1000/model.SharesPerCPU-2 {
				satisfied++
			}
		}
		pressure := float64(sums.Pressure(cpu))
		most, sum = max(most, pressure), sum+pressure
	}
	return most / (sum / float64(len(nodes))), satisfied / weighted * 100
}

// TestSchedulerSpread checks that the profile with all plugins spreads pods with weights: at least 99 of 100 get the
// CPU that they expect, and no node has much more pressure than the mean. The order of pods and nodes decides that, and
// not how fast the scheduler is.
func TestSchedulerSpread(t *testing.T) {
	const count = 30
	s := newSchedule(t)
	var nodes []schedNode
	for i := range count {
		nodes = append(nodes, schedNode{name: nodeName(i), cpu: 16})
	}
	s.nodes(nodes...)
	p := s.scheduler(false)
	s.known(p, "Trusted", count)
	most, met := s.spread(profiled, nodes, 10*count)
	if most > 1.15 || met < 99 {
		t.Errorf("the highest pressure is %.2f times the mean, and %.1f %% of the weights are met", most, met)
	}
}
