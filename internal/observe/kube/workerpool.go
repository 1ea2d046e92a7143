package kube

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// WorkerPool is the part of a WorkerPool that has to be read, with its defaults.
type WorkerPool struct {
	Nodes                          model.Selector
	Windows                        []model.Window
	Floor, Ceiling, Step, Overhead model.Amount
	VCoresPerCPU                   float64
	Pause, Window, Grace, Drain    time.Duration
	Beside                         model.Amount // requests of the template's containers beside the worker
	CoolDown                       time.Duration
	Waves                          int
	WaveInterval                   time.Duration
	GracePeriod                    time.Duration // of an engine with workers of one size; 0: the engine is YARN
}

// The time for which the slack of a node must last for its workers to grow: its default, and the longest.
const (
	defaultWindow = 10 * time.Minute
	longestWindow = time.Hour
)

// Defaults of a WorkerPool.
var (
	defaultSize     = v1alpha1.ResourceSpec{CPU: resource.MustParse("1"), Memory: resource.MustParse("2Gi")}
	defaultOverhead = v1alpha1.ResourceSpec{CPU: resource.MustParse("100m"), Memory: resource.MustParse("1Gi")}
)

// ParseWorkerPool reads a document with a WorkerPool, and fills in its defaults. The error lists every field that
// cannot be used.
func ParseWorkerPool(document []byte) (*v1alpha1.WorkerPool, WorkerPool, error) {
	var p v1alpha1.WorkerPool
	if err := yaml.UnmarshalStrict(document, &p); err != nil {
		return nil, WorkerPool{}, fmt.Errorf("reading the worker pool: %w", err)
	}
	if p.APIVersion != v1alpha1.GroupVersion || p.Kind != "WorkerPool" {
		return nil, WorkerPool{}, fmt.Errorf("reading the worker pool: apiVersion %q and kind %q: write %s and WorkerPool",
			p.APIVersion, p.Kind, v1alpha1.GroupVersion)
	}
	read, err := ReadWorkerPool(&p)
	return &p, read, err
}

// ReadWorkerPool reads a WorkerPool and fills in its defaults. The error lists every field that cannot be used.
func ReadWorkerPool(p *v1alpha1.WorkerPool) (WorkerPool, error) {
	var c checker
	s := &p.Spec
	pool := WorkerPool{
		Nodes:        c.selector("spec.nodeSelector", s.NodeSelector),
		Windows:      c.windows("spec.windows", s.Windows),
		Floor:        c.amount("spec.size.floor", &s.Size.Floor, defaultSize),
		Step:         c.amount("spec.size.step", &s.Size.Step, defaultSize),
		VCoresPerCPU: 1,
		Pause:        c.duration("spec.size.pause", s.Size.Pause, 30*time.Second),
		Window:       defaultWindow,
		Grace:        c.duration("spec.drain.grace", s.Drain.Grace, time.Minute),
		Drain:        c.duration("spec.drain.timeout", s.Drain.Timeout, 30*time.Minute),
		CoolDown:     time.Minute,
		Beside:       c.template(&s.Template),
		Waves:        1,
	}
	pool.Ceiling = pool.Floor
	if s.Size.Ceiling != nil {
		pool.Ceiling = c.amount("spec.size.ceiling", s.Size.Ceiling, v1alpha1.ResourceSpec{})
		if pool.Ceiling.CPU < pool.Floor.CPU || pool.Ceiling.Memory < pool.Floor.Memory {
			c.bad("spec.size.ceiling", "less than the floor", "write as much or more")
		}
	}
	if f := s.Size.Follow; f != nil {
		pool.Window = c.duration("spec.size.follow.window", f.Window, defaultWindow)
		if pool.Window > longestWindow {
			c.bad("spec.size.follow.window", f.Window, "write a time from 0s to 1h, such as 10m")
		}
	}
	for i, w := range pool.Windows {
		if !w.Always() && w.DrainBefore == 0 {
			c.bad(fmt.Sprintf("spec.windows[%d].drainBefore", i), `""`, "write the time in which workers drain, such as 30m")
		}
	}
	if s.Ramp != nil {
		pool.Waves = int(c.within("spec.ramp.waves", int64(max(s.Ramp.Waves, 1)), 1, 100, "a number"))
		pool.WaveInterval = c.duration("spec.ramp.interval", s.Ramp.Interval, 0)
	}
	if s.Template.Spec.HostNetwork && s.Count != nil {
		c.bad("spec.template.spec.hostNetwork", true, "leave count out: each node has one worker then")
	}
	if s.Identity != nil {
		pool.CoolDown = c.duration("spec.identity.coolDown", s.Identity.CoolDown, pool.CoolDown)
	}
	c.engine(s, &pool)
	if err := errors.Join(c.errs...); err != nil {
		return WorkerPool{}, fmt.Errorf("worker pool %s/%s: %w", p.Namespace, p.Name, err)
	}
	return pool, nil
}

// engine reads what the engine of a pool needs.
func (c *checker) engine(s *v1alpha1.WorkerPoolSpec, pool *WorkerPool) {
	count := 0
	for _, there := range []bool{s.YARN != nil, s.Trino != nil, s.Impala != nil} {
		if there {
			count++
		}
	}
	switch {
	case count != 1:
		c.bad("spec.yarn, spec.trino and spec.impala", fmt.Sprintf("%d of them", count),
			"write exactly one: the cluster that the workers join")
	case s.YARN != nil:
		c.yarn(s.YARN, pool)
		return
	case s.Trino != nil:
		pool.GracePeriod = c.duration("spec.trino.gracePeriod", s.Trino.GracePeriod, 30*time.Second)
	default:
		pool.GracePeriod = c.duration("spec.impala.gracePeriod", s.Impala.GracePeriod, 30*time.Second)
	}
	if pool.GracePeriod < time.Second {
		c.bad("gracePeriod", pool.GracePeriod.String(), "write 1s or more")
	}
	if pool.Drain < 2*pool.GracePeriod {
		c.bad("spec.drain.timeout", pool.Drain.String(),
			fmt.Sprintf("write %s or more: a worker without work needs two grace periods to end", 2*pool.GracePeriod))
	}
	if s.Size.Ceiling != nil || s.Size.Pause != "" {
		c.bad("spec.size", "a ceiling or a pause", "leave both out: a worker of this engine has the size floor all its life")
	}
}

// yarn reads what is YARN's alone.
func (c *checker) yarn(y *v1alpha1.YARNSpec, pool *WorkerPool) {
	pool.Overhead = defaultAmount(defaultOverhead)
	if y.Overhead != nil {
		pool.Overhead = c.amount("spec.yarn.overhead", y.Overhead, defaultOverhead)
	}
	if y.VCoresPerCPU != nil {
		pool.VCoresPerCPU = y.VCoresPerCPU.AsApproximateFloat64()
		if pool.VCoresPerCPU < 0.1 || pool.VCoresPerCPU > 100 {
			c.bad("spec.yarn.vcoresPerCPU", y.VCoresPerCPU.String(), "write a number from 0.1 to 100")
		}
	}
}

// LastingTaints returns the taints of a node without those that Kubernetes itself sets while the node has a problem.
func LastingTaints(n *corev1.Node) []corev1.Taint {
	var all []corev1.Taint
	for _, t := range n.Spec.Taints {
		domain, _, _ := strings.Cut(t.Key, "/")
		if domain != "node.kubernetes.io" && domain != "node.cloudprovider.kubernetes.io" {
			all = append(all, t)
		}
	}
	return all
}

// amount reads an amount, and returns otherwise if it is not written.
func (c *checker) amount(field string, s *v1alpha1.ResourceSpec, otherwise v1alpha1.ResourceSpec) model.Amount {
	if s.CPU.IsZero() && s.Memory.IsZero() {
		return defaultAmount(otherwise)
	}
	if s.CPU.Sign() < 0 || s.CPU.CmpInt64(10_000) > 0 {
		c.bad(field+".cpu", s.CPU.String(), "write a number of CPUs from 0 to 10k")
	}
	if s.Memory.Sign() < 0 || s.Memory.CmpInt64(1<<50) > 0 {
		c.bad(field+".memory", s.Memory.String(), "write an amount of memory from 0 to 1Pi")
	}
	return model.Amount{CPU: s.CPU.MilliValue(), Memory: s.Memory.Value()}
}

func defaultAmount(s v1alpha1.ResourceSpec) model.Amount {
	return model.Amount{CPU: s.CPU.MilliValue(), Memory: s.Memory.Value()}
}

// duration reads a duration, and returns otherwise if it is not written.
func (c *checker) duration(field, text string, otherwise time.Duration) time.Duration {
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil || !duration.MatchString(text) {
		c.bad(field, fmt.Sprintf("%.64q", text), "write hours, minutes and seconds, such as 90s or 1h30m")
	}
	return d
}
