package kube

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// WorkerPool is the part of a WorkerPool that has to be read, with its defaults.
type WorkerPool struct {
	Nodes                          model.Selector
	Windows                        []model.Window
	Floor, Ceiling, Step, Overhead model.Amount
	VCoresPerCPU                   float64
	Pause, Grace, Drain            time.Duration
	CoolDown                       time.Duration
	Waves                          int
	WaveInterval                   time.Duration
}

// Defaults of a WorkerPool.
var (
	defaultSize     = v1alpha1.ResourceSpec{CPU: resource.MustParse("1"), Memory: resource.MustParse("2Gi")}
	defaultOverhead = v1alpha1.ResourceSpec{CPU: resource.MustParse("100m"), Memory: resource.MustParse("1Gi")}
)

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
		Grace:        c.duration("spec.drain.grace", s.Drain.Grace, time.Minute),
		Drain:        c.duration("spec.drain.timeout", s.Drain.Timeout, 30*time.Minute),
		CoolDown:     time.Minute,
		Waves:        1,
	}
	pool.Ceiling = pool.Floor
	if s.Size.Ceiling != nil {
		pool.Ceiling = c.amount("spec.size.ceiling", s.Size.Ceiling, v1alpha1.ResourceSpec{})
		if pool.Ceiling.CPU < pool.Floor.CPU || pool.Ceiling.Memory < pool.Floor.Memory {
			c.bad("spec.size.ceiling", "less than the floor", "write as much or more")
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
	if s.Identity != nil {
		pool.CoolDown = c.duration("spec.identity.coolDown", s.Identity.CoolDown, pool.CoolDown)
	}
	if y := s.YARN; y == nil {
		c.bad("spec.yarn", "nothing", "write the YARN cluster that the workers join")
	} else {
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
	if err := errors.Join(c.errs...); err != nil {
		return WorkerPool{}, fmt.Errorf("worker pool %s/%s: %w", p.Namespace, p.Name, err)
	}
	return pool, nil
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
