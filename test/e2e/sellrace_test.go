package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// testRace makes the offer fall again and again while pods request it. Between the agent's patch and its arrival at the
// scheduler and the kubelet, pods are bound to an amount that is gone. The test counts them. The revisions of the
// objects give the order of events at the API server, independent of clocks.
func (n *node) testRace() {
	const cpu, memory = 4, 16 << 20
	const whole = 200 // more than all pods request, and less than the offer
	pods, falls := 16, 3
	if soak {
		pods, falls = 40, 12
	}
	// When the Node is paused, the offer under Koordinator's names falls to the bound amount, and it returns at once
	// afterwards. A shrinking room would have the same effect, but take minutes to grow again.
	n.names(true)
	n.policy(selling("Enforce", "Static"))
	n.sold(true, "the node has an offer", func(is int64) bool { return is >= whole })
	pause := func(how string) { kubectl(n.t, "annotate", "node", n.name, v1alpha1.AnnotationPause+how) }
	defer pause("-")

	var log raceLog
	ctx, stop := context.WithCancel(n.t.Context())
	var watchers sync.WaitGroup
	defer func() { stop(); watchers.Wait() }()
	watchers.Go(func() { watch(ctx, &log, log.pod, "pods", "-l", "race=here") })
	watchers.Go(func() { watch(ctx, &log, log.node, "node", n.name) })
	eventually(n.t, "the watches", func() (bool, string) { is := log.stands(); return is > 0, fmt.Sprint(is) })

	var manifest strings.Builder
	for i := range pods {
		one := n.batch(fmt.Sprintf("race%d", i), true, cpu, memory)
		one = strings.Replace(one, "labels: {", "labels: {race: here, ", 1)
		manifest.WriteString(one + "---\n")
	}
	n.t.Cleanup(func() { kubectl(n.t, "delete", "pods", "-l", "race=here", "--grace-period=0", "--force", "--wait") })
	stream := bed.Kubectl(ctx, "create", "-f", "-")
	stream.Stdin = strings.NewReader(manifest.String())
	var complaints strings.Builder
	stream.Stderr = &complaints
	if err := stream.Start(); err != nil {
		n.t.Fatal(err)
	}
	for i := range falls {
		// So that the offer falls while pods are created.
		eventually(n.t, "some more pods are bound", func() (bool, string) {
			bound := log.bound()
			return bound > i*pods/(falls+1), fmt.Sprint(bound)
		})
		pause("=true")
		n.sold(true, "the offer fell", func(is int64) bool { return is < whole })
		pause("-")
		n.sold(true, "the offer is back", func(is int64) bool { return is >= whole })
	}
	if err := stream.Wait(); err != nil {
		n.t.Fatalf("creating pods: %v: %s", err, &complaints)
	}
	eventually(n.t, "all pods are bound", func() (bool, string) {
		bound := log.bound()
		return bound == pods,
			fmt.Sprint(bound)
	})
	kept := 0
	var refused []string
	eventually(n.t, "all pods run, or were refused", func() (bool, string) {
		kept, refused = 0, nil
		for _, p := range object[corev1.PodList](n.t, "pods", "-l", "race=here").Items {
			switch {
			case p.Status.Phase == corev1.PodRunning:
				kept++
			case p.Status.Phase == corev1.PodFailed:
				refused = append(refused, whyRefused(&p))
			}
		}
		return kept+len(refused) == pods, fmt.Sprintf("%d run, %d were refused", kept, len(refused))
	})
	beyond := log.beyond()
	n.t.Logf("%d falls while %d pods were created: %d were bound beyond the offer, %d refused by the kubelet (%v)", falls,
		pods, beyond, len(refused), slices.Compact(refused))
	for _, why := range refused {
		if !strings.HasPrefix(why, "OutOf"+v1alpha1.ResourceKoordinatorBatchCPU) &&
			!strings.HasPrefix(why, "OutOf"+v1alpha1.ResourceKoordinatorBatchMemory) {
			n.t.Errorf("a pod was refused: %s", why)
		}
	}
	n.figure(beyondPerFall, float64(beyond)/float64(falls))
	n.figure(refusedPerFall, float64(len(refused))/float64(falls))
	n.sold(true, "the bound amount is published", func(is int64) bool { return is >= int64(kept*cpu) })
}

// whyRefused returns the kubelet's reason for not admitting a pod. Kubelet 1.36 was seen to overwrite it with an empty
// reason, and to say of the containers that they cannot be found. It is only known then that none of them ever began.
func whyRefused(p *corev1.Pod) string {
	began := slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil && !s.State.Terminated.StartedAt.IsZero()
	})
	if p.Status.Reason == "" && !began {
		return "OutOf" + v1alpha1.ResourceKoordinatorBatchCPU
	}
	return fmt.Sprintf("%s %s %+v", p.Status.Reason, p.Status.Message, p.Status.ContainerStatuses)
}

// raceLog is the events of pods and of the Node, by revisions of the API server.
type raceLog struct {
	mu     sync.Mutex
	events []raceEvent
}

type raceEvent struct {
	revision int64
	pod      string // "": of the Node
	cpu      int64  // amount on the Node, or requested by the pod; 0: the pod no longer needs it
}

// watch passes objects to f as they change, until the context ends.
func watch[T any](ctx context.Context, l *raceLog, f func(*T), what ...string) {
	c := bed.Kubectl(ctx, append(append([]string{"get"}, what...), "--watch", "-o", "json")...)
	out, err := c.StdoutPipe()
	if err != nil || c.Start() != nil {
		return // then no event is seen, and the test waits in vain
	}
	defer func() { _ = c.Wait() }()
	for d := json.NewDecoder(out); ; {
		var o T
		if err := d.Decode(&o); err != nil {
			_, _ = io.Copy(io.Discard, out)
			return
		}
		l.mu.Lock()
		f(&o)
		l.mu.Unlock()
	}
}

func (l *raceLog) add(meta *metav1.ObjectMeta, pod string, cpu int64) {
	revision, err := strconv.ParseInt(meta.ResourceVersion, 10, 64)
	if err == nil {
		l.events = append(l.events, raceEvent{revision, pod, cpu})
	}
}

func (l *raceLog) node(n *corev1.Node) {
	amount := n.Status.Allocatable[v1alpha1.ResourceKoordinatorBatchCPU]
	l.add(&n.ObjectMeta, "", amount.Value())
}

func (l *raceLog) pod(p *corev1.Pod) {
	if p.Spec.NodeName == "" {
		return
	}
	asks := p.Spec.Containers[0].Resources.Requests[v1alpha1.ResourceKoordinatorBatchCPU]
	if p.Status.Phase == corev1.PodFailed {
		asks.Set(0)
	}
	l.add(&p.ObjectMeta, p.Name, asks.Value())
}

// stands returns the last seen amount on the Node.
func (l *raceLog) stands() (is int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.pod == "" {
			is = e.cpu
		}
	}
	return is
}

// bound returns the number of pods bound so far.
func (l *raceLog) bound() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]bool{}
	for _, e := range l.events {
		if e.pod != "" {
			all[e.pod] = true
		}
	}
	return len(all)
}

// beyond returns the number of pods that were bound while the Node had less than they and the earlier pods requested.
func (l *raceLog) beyond() (count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(l.events, func(a, b raceEvent) int { return int(a.revision - b.revision) })
	requested := map[string]int64{}
	var stands, sum int64
	for _, e := range l.events {
		if e.pod == "" {
			stands = e.cpu
			continue
		}
		before, known := requested[e.pod]
		sum += e.cpu - before
		requested[e.pod] = e.cpu
		if !known && sum > stands {
			count++
		}
	}
	return count
}
