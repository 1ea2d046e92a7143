package model

import (
	"slices"
	"time"
)

// ServiceRule is a figure of the services whose pods it selects, and what that may be.
type ServiceRule struct {
	Selector   Selector
	Namespaces Selector // of the pods' namespaces
	Source     ServiceSource
	Max        int64 // highest figure that is no harm, in millionths of its unit
}

// Selects reports whether the rule selects a pod.
func (r *ServiceRule) Selects(p *Pod) bool {
	return r.Selector.Matches(p.Labels) && r.Namespaces.Matches(p.NamespaceLabels)
}

// ServiceRule returns the first rule that selects a pod; nil if none does.
func (p *Policy) ServiceRule(pod *Pod) *ServiceRule {
	for i := range p.Services {
		if p.Services[i].Selects(pod) {
			return &p.Services[i]
		}
	}
	return nil
}

// ServiceSource is where the figure of a service comes from: from a port of the pod, or from a Prometheus server.
type ServiceSource struct {
	Port     int64         `json:",omitempty"` // of the pod; 0: the server at URL is queried
	Path     string        `json:",omitempty"`
	Metric   string        `json:",omitempty"` // name
	Labels   []MetricLabel `json:",omitempty"` // that a series must have, ordered by name
	Quantile int64         `json:",omitempty"` // of a histogram, in millionths; 0: the metric is the figure
	URL      string        `json:",omitempty"` // of the server
	Query    string        `json:",omitempty"` // with $node, $namespace and $pod
}

// MetricLabel is a label of a metric.
type MetricLabel struct{ Name, Value string }

// ServiceTarget is a figure to be fetched.
type ServiceTarget struct {
	UID       string // of the pod, as in its cgroup
	Namespace string
	Name      string
	IP        string // "": the pod has none yet
	Source    ServiceSource
	Max       int64 // of the rule, in millionths
}

// Equal reports whether two targets are the same figure of the same pod.
func (t *ServiceTarget) Equal(o *ServiceTarget) bool {
	a, b := &t.Source, &o.Source
	return t.UID == o.UID && t.Namespace == o.Namespace && t.Name == o.Name && t.IP == o.IP && t.Max == o.Max &&
		a.Port == b.Port && a.Path == b.Path && a.Metric == b.Metric && slices.Equal(a.Labels, b.Labels) &&
		a.Quantile == b.Quantile && a.URL == b.URL && a.Query == b.Query
}

// ServiceFigure is what was fetched for a [ServiceTarget] last. Value and Max are in millionths of the figure's unit.
type ServiceFigure struct {
	UID    string        // of the pod, as in its cgroup
	At     time.Duration // of Value, on the clock of [Load]: when it was asked for, or sampled; 0: there is none yet
	Value  int64         // 0 to MaxFigure
	Max    int64         // of the rule by which it was fetched
	Failed string        `json:",omitempty"` // why the last attempt found no value; "": it found Value
}

// Lacks returns the CPU, in milli-cores, that a pod lacks by its figure: as much of what it uses as the figure is too
// high, at least a hundredth of the node and at most half of it. A figure need not follow CPU use in proportion; batch
// is pushed back as long as the figure is too high.
func (f *ServiceFigure) Lacks(uses, node int64) int64 {
	const most = 1000 // times the maximum; beyond it any node is covered
	node = min(max(node, 0), MaxCPUs*1000)
	uses = min(max(uses, 0), node)
	over := min(max(float64(f.Value)/float64(f.Max)-1, 0), most)
	return max(min(uses*int64(over*1000)/1000, node/2), node/100, 1)
}

// Keeps returns the part of what batch uses, in thousandths, that it keeps at most while the figure is too high: a
// third less while the figure is half too high, but no less than a half at once. What the pod lacks says too little
// where batch takes memory bandwidth or caches, which needs little CPU: by that alone, stress-ng's stream still used
// 0.8 of 2 CPUs from the tenth second on, and the 99th percentile was three times that without batch.
func (f *ServiceFigure) Keeps() int64 {
	const least, most = 500, 950
	return min(max(int64(1000*float64(f.Max)/float64(max(f.Value, 1))), least), most)
}

// MaxFigure is the highest figure, in millionths: higher ones count as this.
const MaxFigure = int64(1e18)

// FindFigure returns the figure of a pod; nil if none was wanted. The figures are ordered by UID.
func FindFigure(figures []ServiceFigure, uid string) *ServiceFigure {
	return FindByUID(figures, uid, func(f *ServiceFigure) string { return f.UID })
}
