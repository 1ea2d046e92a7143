package kube

import (
	_ "embed" // of the defaults
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	FollowDemand                   bool
	GracePeriod                    time.Duration // of an engine with workers of one size; 0: the engine is YARN
}

// longestWindow is the longest time for which the slack of a node must last for its workers to grow.
const longestWindow = time.Hour

//go:embed defaults.json
var poolDefaults []byte

// defaulted is a field of a document with a default, or with fields that have one.
type defaulted struct {
	Default any                  `json:"default"`
	Fields  map[string]defaulted `json:"fields"`
}

// fill writes the defaults into the fields of a document, as the API server does.
func fill(document map[string]any, fields map[string]defaulted) {
	for name, f := range fields {
		if _, there := document[name]; !there && f.Default != nil {
			document[name] = runtime.DeepCopyJSONValue(f.Default)
		}
		if inner, is := document[name].(map[string]any); is {
			fill(inner, f.Fields)
		}
	}
}

// ParseWorkerPool reads a document with a WorkerPool that no API server has seen, and fills in the defaults of its
// schema. The error lists every field that cannot be used.
func ParseWorkerPool(document []byte) (*v1alpha1.WorkerPool, WorkerPool, error) {
	var p v1alpha1.WorkerPool
	var all struct {
		Spec map[string]any `json:"spec"`
	}
	var fields map[string]defaulted
	err := errors.Join(yaml.UnmarshalStrict(document, &p), yaml.Unmarshal(document, &all),
		json.Unmarshal(poolDefaults, &fields))
	if err != nil {
		return nil, WorkerPool{}, fmt.Errorf("reading the worker pool: %w", err)
	}
	if p.APIVersion != v1alpha1.GroupVersion || p.Kind != "WorkerPool" {
		return nil, WorkerPool{}, fmt.Errorf("reading the worker pool: apiVersion %q and kind %q: write %s and WorkerPool",
			p.APIVersion, p.Kind, v1alpha1.GroupVersion)
	}
	if all.Spec == nil {
		all.Spec = map[string]any{}
	}
	fill(all.Spec, fields)
	p.Spec = v1alpha1.WorkerPoolSpec{}
	spec, err := json.Marshal(all.Spec)
	if err = errors.Join(err, json.Unmarshal(spec, &p.Spec)); err != nil {
		return nil, WorkerPool{}, fmt.Errorf("reading the worker pool: %w", err)
	}
	read, err := ReadWorkerPool(&p)
	return &p, read, err
}

// ReadWorkerPool reads a WorkerPool that has the defaults of its schema. The error lists every field that cannot be
// used.
func ReadWorkerPool(p *v1alpha1.WorkerPool) (WorkerPool, error) {
	var c checker
	s := &p.Spec
	pool := WorkerPool{
		Nodes:        c.selector("spec.nodeSelector", s.NodeSelector),
		Windows:      c.windows("spec.windows", s.Windows),
		Floor:        c.amount("spec.size.floor", &s.Size.Floor),
		Step:         c.amount("spec.size.step", &s.Size.Step),
		VCoresPerCPU: 1,
		Pause:        c.time("spec.size.pause", s.Size.Pause, 0),
		Window:       c.time("spec.size.follow.window", s.Size.Follow.Window, 0),
		Grace:        c.time("spec.drain.grace", s.Drain.Grace, time.Second),
		Drain:        c.time("spec.drain.timeout", s.Drain.Timeout, time.Second),
		CoolDown:     c.time("spec.identity.coolDown", s.Identity.CoolDown, 0),
		Waves:        int(c.within("spec.ramp.waves", int64(s.Ramp.Waves), 1, 100, "a number")),
		WaveInterval: c.time("spec.ramp.interval", s.Ramp.Interval, 0),
		Beside:       c.template(&s.Template),
		FollowDemand: s.Size.Demand == v1alpha1.DemandFollow,
	}
	if !slices.Contains([]v1alpha1.DemandPolicy{"", v1alpha1.DemandFollow, v1alpha1.DemandIgnore}, s.Size.Demand) {
		c.bad("spec.size.demand", s.Size.Demand, "write Follow or Ignore")
	}
	pool.Ceiling = pool.Floor
	if s.Size.Ceiling != nil {
		pool.Ceiling = c.amount("spec.size.ceiling", s.Size.Ceiling)
		if pool.Ceiling.CPU < pool.Floor.CPU || pool.Ceiling.Memory < pool.Floor.Memory {
			c.bad("spec.size.ceiling", "less than the floor", "write as much or more")
		}
	}
	if pool.Window > longestWindow {
		c.bad("spec.size.follow.window", pool.Window, "write a time from 0s to 1h, such as 10m")
	}
	for i, w := range pool.Windows {
		if !w.Always() && w.DrainBefore == 0 {
			c.bad(fmt.Sprintf("spec.windows[%d].drainBefore", i), `""`, "write the time in which workers drain, such as 30m")
		}
	}
	if s.Template.Spec.HostNetwork && s.Replicas != nil {
		c.bad("spec.template.spec.hostNetwork", true, "leave replicas out: each node has one worker then")
	}
	c.engine(s, &pool)
	if err := errors.Join(c.errs...); err != nil {
		return WorkerPool{}, fmt.Errorf("worker pool %s/%s: %w", p.Namespace, p.Name, err)
	}
	return pool, nil
}

// engine reads what the engine of a pool needs.
func (c *checker) engine(s *v1alpha1.WorkerPoolSpec, pool *WorkerPool) {
	engines := 0
	for _, there := range []bool{s.YARN != nil, s.Trino != nil, s.Impala != nil} {
		if there {
			engines++
		}
	}
	switch {
	case engines != 1:
		c.bad("spec.yarn, spec.trino and spec.impala", fmt.Sprintf("%d of them", engines),
			"write exactly one: the cluster that the workers join")
	case s.YARN != nil:
		pool.Overhead = c.amount("spec.yarn.overhead", &s.YARN.Overhead)
		if q := s.YARN.VCoresPerCPU; q != nil {
			pool.VCoresPerCPU = q.AsApproximateFloat64()
		}
		if pool.VCoresPerCPU < 0.1 || pool.VCoresPerCPU > 100 {
			c.bad("spec.yarn.vcoresPerCPU", pool.VCoresPerCPU, "write a number from 0.1 to 100")
		}
		return
	case s.Trino != nil:
		pool.GracePeriod = c.time("spec.trino.gracePeriod", s.Trino.GracePeriod, time.Second)
	default:
		pool.GracePeriod = c.time("spec.impala.gracePeriod", s.Impala.GracePeriod, time.Second)
	}
	if pool.Drain < 2*pool.GracePeriod {
		c.bad("spec.drain.timeout", pool.Drain.String(),
			fmt.Sprintf("write %s or more: a worker without work needs two grace periods to end", 2*pool.GracePeriod))
	}
	if pool.FollowDemand {
		c.bad("spec.size.demand", s.Size.Demand, "leave it out: it is for yarn")
	}
	if s.Size.Ceiling != nil {
		c.bad("spec.size.ceiling", "a ceiling", "leave it out: a worker of this engine has the size floor all its life")
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

// amount reads an amount.
func (c *checker) amount(field string, s *v1alpha1.ResourceSpec) model.Amount {
	if s.CPU.Sign() < 0 || s.CPU.CmpInt64(10_000) > 0 {
		c.bad(field+".cpu", s.CPU.String(), "write a number of CPUs from 0 to 10k")
	}
	if s.Memory.Sign() < 0 || s.Memory.CmpInt64(1<<50) > 0 {
		c.bad(field+".memory", s.Memory.String(), "write an amount of memory from 0 to 1Pi")
	}
	return model.Amount{CPU: s.CPU.MilliValue(), Memory: s.Memory.Value()}
}

// time reads a time that is not below a least one. The schema has a default for each.
func (c *checker) time(field string, d *metav1.Duration, least time.Duration) time.Duration {
	if d == nil || d.Duration < least {
		c.bad(field, compact(d), fmt.Sprintf("write %s or more, such as 90s or 1h30m", least))
		return 0
	}
	return d.Duration
}
