package scheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	upstream "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// cycles is a scheduler whose scheduling cycles run one by one, without an API server: nothing is bound.
type cycles struct {
	b         testing.TB
	ctx       context.Context
	scheduler *upstream.Scheduler
	profile   framework.Framework
	view      *view
	made      int
	assumed   []*corev1.Pod
}

const benchConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: waterline
  plugins: {multiPoint: {enabled: [{name: WeightSpread, weight: 3}, {name: LoadAware, weight: 2},
    {name: BatchFit, weight: 3}, {name: CPUSetFit, weight: 3}]}}
- schedulerName: stock
`

func newCycles(b testing.TB, name string, nodes int) *cycles {
	b.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Background()))
	b.Cleanup(cancel)
	file := filepath.Join(b.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(benchConfig), 0o600); err != nil {
		b.Fatal(err)
	}
	config, err := options.LoadConfigFromFile(klog.Background(), file)
	if err != nil {
		b.Fatal(err)
	}
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	v := newView(v1alpha1.Namespace)
	v.once.Do(func() { // it follows nothing
		core := factory.Core().V1()
		v.namespaces, v.nodes, v.pods = core.Namespaces().Lister(), core.Nodes().Lister(), core.Pods().Lister()
	})
	registry := runtime.Registry{}
	for name, factory := range factories(v) {
		if err := registry.Register(name, factory); err != nil {
			b.Fatal(err)
		}
	}
	recorder := events.NewEventBroadcasterAdapterWithContext(ctx, client).NewRecorder
	s, err := upstream.New(ctx, client, factory, nil, recorder,
		upstream.WithProfiles(config.Profiles...), upstream.WithFrameworkOutOfTreeRegistry(registry))
	if err != nil {
		b.Fatal(err)
	}
	v.known = nodes
	weights := model.DefaultPolicy()
	weights.Mode, weights.Weight.Max = model.ModeEnforce, model.MaxShares
	v.setPolicy("bench", &weights)
	c := &cycles{b: b, ctx: ctx, scheduler: s, profile: s.Profiles[name], view: v}
	for i := range nodes {
		c.node(fmt.Sprintf("node-%04d", i), i%8)
	}
	return c
}

// node adds a node of 16 CPUs with an agent and a report.
func (c *cycles) node(name string, online int) {
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"), v1alpha1.ResourceBatchCPU: resource.MustParse("16000"),
	}
	c.scheduler.Cache.AddNode(klog.Background(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name},
		},
		Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts},
	})
	c.view.seePod(readyAgent(name))
	c.view.seeReport(nodeReport(name, reportOf(online)))
}

// pod returns the next pod; each fifth has a weight.
func (c *cycles) pod() *corev1.Pod {
	name := fmt.Sprintf("pod-%06d", c.made)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "bench", UID: types.UID(name)},
		Spec: corev1.PodSpec{SchedulerName: c.profile.ProfileName(), Containers: []corev1.Container{{
			Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
		}}},
	}
	if c.made%5 == 0 {
		p.Annotations = map[string]string{v1alpha1.AnnotationCPUShare: "2048"}
	}
	c.made++
	return p
}

// cycle gives a pod its node: it does what the scheduler does up to and without binding.
func (c *cycles) cycle(p *corev1.Pod) {
	info, err := framework.NewPodInfo(p)
	if err != nil {
		c.b.Fatal(err)
	}
	c.update()
	state := framework.NewCycleState()
	state.SetRecordPluginMetrics(c.made%10 == 0)
	found, err := c.scheduler.SchedulePod(c.ctx, c.profile, state, &framework.QueuedPodInfo{PodInfo: info})
	if err != nil {
		c.b.Fatal(err)
	}
	p.Spec.NodeName = found.SuggestedHost
	if err := c.scheduler.Cache.AssumePod(klog.Background(), p); err != nil {
		c.b.Fatal(err)
	}
	if status := c.profile.RunReservePluginsReserve(c.ctx, state, p, p.Spec.NodeName); !status.IsSuccess() {
		c.b.Fatal(status.Message())
	}
	c.view.seePod(p)
	c.assumed = append(c.assumed, p)
}

func (c *cycles) update() {
	snapshot, ok := c.profile.SnapshotSharedLister().(*cache.Snapshot)
	if !ok {
		c.b.Fatalf("the snapshot is a %T", c.profile.SnapshotSharedLister())
	}
	if err := c.scheduler.Cache.UpdateSnapshot(klog.Background(), snapshot); err != nil {
		c.b.Fatal(err)
	}
}

// clear removes all pods.
func (c *cycles) clear() {
	for _, p := range c.assumed {
		if err := c.scheduler.Cache.ForgetPod(klog.Background(), p); err != nil {
			c.b.Fatal(err)
		}
		c.view.losePod(p)
	}
	c.assumed = c.assumed[:0]
	c.update()
}
