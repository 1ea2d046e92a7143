package reference

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/utils/clock"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/test/poll"
)

// shortNode is a node that stays short of everything, with the pods that it has not evicted yet.
type shortNode struct {
	summary statsapi.Summary
	pods    []*corev1.Pod
}

func (n *shortNode) Get(context.Context, bool) (*statsapi.Summary, error) { return &n.summary, nil }

func (n *shortNode) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) {
	return &n.summary, nil
}

func (*shortNode) HasDedicatedImageFs(context.Context) (bool, error)     { return true, nil }
func (*shortNode) HasDedicatedContainerFs(context.Context) (bool, error) { return false, nil }
func (*shortNode) DeleteUnusedImages(context.Context) error              { return nil }
func (*shortNode) DeleteAllUnusedContainers(context.Context) error       { return nil }

// add adds a pod that uses amount bytes of memory and of disk, and as many processes.
func (n *shortNode) add(pod *corev1.Pod, amount uint64) {
	n.pods = append(n.pods, pod)
	n.summary.Pods = append(n.summary.Pods, statsapi.PodStats{
		PodRef:       statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
		Memory:       &statsapi.MemoryStats{WorkingSetBytes: &amount},
		ProcessStats: &statsapi.ProcessStats{ProcessCount: &amount},
		Containers:   []statsapi.ContainerStats{{Name: "c", Rootfs: &statsapi.FsStats{UsedBytes: &amount}}},
	})
}

// admitted returns a pod as the webhook and the API server's plugin Priority make it.
func admitted(name, class string, batch bool) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{}},
		Spec:       corev1.PodSpec{PriorityClassName: class, Containers: []corev1.Container{{Name: "c"}}},
	}
	if batch {
		pod.Labels[v1alpha1.LabelQoS] = "BE"
	}
	pod, _ = admit.Rules{Ours: true}.Mutate(pod, nil)
	priority := map[string]int32{
		"": 0, v1alpha1.PriorityClassBatch: v1alpha1.PriorityBatch, v1alpha1.PriorityClassMid: v1alpha1.PriorityMid,
		v1alpha1.PriorityClassWorker: v1alpha1.PriorityWorker,
	}[pod.Spec.PriorityClassName]
	pod = pod.DeepCopy()
	pod.UID, pod.Spec.Priority = types.UID(name), &priority
	return pod
}

// TestEviction has the kubelet's own eviction manager evict the pods of a node one after the other, by memory, disk and
// processes. The online pod without a priority class uses by far the most, and is the last one.
func TestEviction(t *testing.T) {
	for _, signal := range []evictionapi.Signal{
		evictionapi.SignalMemoryAvailable, evictionapi.SignalNodeFsAvailable, evictionapi.SignalPIDAvailable,
	} {
		t.Run(string(signal), func(t *testing.T) {
			n := &shortNode{}
			little, all, most, running := uint64(1), uint64(1<<30), int64(1000), int64(999)
			n.summary.Node.Memory = &statsapi.MemoryStats{AvailableBytes: &little, WorkingSetBytes: &all}
			n.summary.Node.Fs = &statsapi.FsStats{AvailableBytes: &little, CapacityBytes: &all}
			n.summary.Node.Rlimit = &statsapi.RlimitStats{MaxPID: &most, NumOfRunningProcesses: &running}
			for i, p := range []struct {
				name, class string
				batch       bool
			}{
				{"web", "", false}, {"worker", v1alpha1.PriorityClassWorker, true}, {"mid", v1alpha1.PriorityClassMid, true},
				{"spill", "", true},
			} {
				n.add(admitted(p.name, p.class, p.batch), uint64(100-20*i))
			}
			order := make(chan string, len(n.pods))
			left := slices.Clone(n.pods)
			kill := func(pod *corev1.Pod, _ bool, _ *int64, _ func(*corev1.PodStatus)) error {
				left = slices.DeleteFunc(left, func(p *corev1.Pod) bool { return p.Name == pod.Name })
				order <- pod.Name
				return nil
			}
			manager, _ := eviction.NewManager(n, eviction.Config{Thresholds: []evictionapi.Threshold{{
				Signal: signal, Operator: evictionapi.OpLessThan,
				Value: evictionapi.ThresholdValue{Quantity: resource.NewQuantity(100, resource.DecimalSI)},
			}}}, kill, n, n, record.NewFakeRecorder(100), &corev1.ObjectReference{}, clock.RealClock{}, false)
			// Its loop never ends. With no pods left, it does nothing.
			manager.Start(t.Context(), n, func() []*corev1.Pod { return slices.Clone(left) },
				func(*corev1.Pod) bool { return true }, time.Hour)
			var got []string
			poll.Until(time.Minute, 10*time.Millisecond, func() bool {
				for len(order) > 0 {
					got = append(got, <-order)
				}
				return len(got) == len(n.pods)
			})
			if is := strings.Join(got, " "); is != "spill mid worker web" {
				t.Errorf("evicted: %s", is)
			}
		})
	}
}
