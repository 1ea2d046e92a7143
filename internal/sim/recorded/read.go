package recorded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	prometheus "github.com/prometheus/common/model"
)

// MaxDays is the most days that can be read: the day that is simulated, and those that teach the predictors.
const MaxDays = 8

// Request says what to read.
type Request struct {
	Days     int       // 1 to 8
	Until    time.Time // the end of the last day, midnight UTC
	Selector string    // label matchers that all series must meet, such as cluster="a"
	// Progress is called with what is read; nil: not.
	Progress func(doing string)
}

type reader struct {
	Request
	s     *Server
	begin time.Time
	// names are names of nodes, by other names and addresses of theirs.
	names map[string]string
	nodes map[string]*nodeUse
	pods  map[podName]*podUsage
	notes []string
}

// Read reads the recording that ends at a midnight from a server.
func Read(ctx context.Context, s *Server, what Request) (*Recording, error) {
	if what.Days < 1 || what.Days > MaxDays {
		return nil, fmt.Errorf("%d days cannot be read: 1 to %d can", what.Days, MaxDays)
	}
	r := &reader{
		Request: what, s: s, begin: what.Until.UTC().Truncate(day).Add(-time.Duration(what.Days) * day),
		names: map[string]string{}, nodes: map[string]*nodeUse{}, pods: map[podName]*podUsage{},
	}
	if r.Progress == nil {
		r.Progress = func(string) {}
	}
	if err := r.one(ctx); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context) error{r.readNodes, r.readPods, r.readSpecs} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	return r.recording()
}

// one checks that the series are of one cluster.
func (r *reader) one(ctx context.Context) error {
	selector := r.Selector
	if selector != "" {
		selector = "{" + selector + "}"
	}
	found, err := r.s.at(ctx, "group by (cluster) (last_over_time(up"+selector+"[1h]))", r.last())
	if err != nil {
		return err
	}
	var names []string
	for _, v := range found {
		if name := string(v.Metric["cluster"]); name != "" {
			names = append(names, name)
		}
	}
	if slices.Sort(names); len(names) > 1 {
		return fmt.Errorf("%s has series of %d clusters: %s. Choose one, such as --selector 'cluster=%q'", r.s.name,
			len(names), strings.Join(names, ", "), names[0])
	}
	return nil
}

// last is a time in the last day at which series are looked for.
func (r *reader) last() time.Time { return r.begin.Add(time.Duration(r.Days)*day - step) }

func (r *reader) span(each time.Duration) span {
	return span{begin: r.begin, count: r.Days * int(day/each), step: each}
}

func (r *reader) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// find returns the first metric that has series near the end of the last day or at its noon, and how many there are; 0:
// none has.
func (r *reader) find(ctx context.Context, all []metric) (metric, int, error) {
	for _, m := range all {
		m = m.with(r.Selector)
		for _, at := range []time.Time{r.last(), r.last().Add(-day / 2)} {
			found, err := r.s.at(ctx, "count("+m.count+")", at)
			if err != nil {
				return m, 0, err
			}
			if len(found) > 0 && found[0].Value > 0 {
				return m, int(found[0].Value), nil
			}
		}
	}
	return metric{}, 0, nil
}

// series reads the first metric that the server has over a span. take gets each value, which is a number and not
// negative, with its index. It returns the name of the metric; "" if the server has none.
func (r *reader) series(
	ctx context.Context, all []metric, over span, take func(labels prometheus.Metric, i int, v float64),
) (string, error) {
	m, n, err := r.find(ctx, all)
	if err != nil || n == 0 {
		return "", err
	}
	r.Progress(m.name)
	return m.name, r.s.over(ctx, m.expr, over, n, func(piece prometheus.Matrix, first int) {
		begin := over.begin.Add(time.Duration(first+1) * over.step)
		for _, s := range piece {
			for _, p := range s.Values {
				i := first + int(p.Timestamp.Time().Sub(begin)/over.step)
				if v := float64(p.Value); v >= 0 && v < maxValue && i < over.count {
					take(s.Metric, i, v)
				}
			}
		}
	})
}

// maxValue is above all that a node has, in bytes.
const maxValue = 1 << 50

// units of values.
const (
	milli = 1000
	mib   = 1.0 / (1 << 20)
)

// put sets a value of a series, unless it has a higher one: several scrapers may have seen the same.
func put(series []int32, i int, v float64) { series[i] = max(series[i], int32(min(v+0.5, 1<<31-1))) }

func blank(n int) []int32 { return slices.Repeat([]int32{missing}, n) }

// nodeUse is a node, and what all of it uses.
type nodeUse struct {
	Node
	pods, podMemory []int64 // what pods that can move use of it: they are simulated themselves
}

// node returns the node that labels name; nil if there is none of this name.
func (r *reader) node(labels prometheus.Metric) *nodeUse { return r.nodes[r.nameOf(labels)] }

func (r *reader) nameOf(labels prometheus.Metric) string {
	for _, l := range []prometheus.LabelName{"node", "kubernetes_node", "kubernetes_io_hostname"} {
		if name := string(labels[l]); name != "" {
			return name
		}
	}
	instance := string(labels["instance"])
	host := instance
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	for _, known := range []string{host, instance} {
		if name, found := r.names[known]; found {
			return name
		}
	}
	return host
}

func (r *reader) readNodes(ctx context.Context) error {
	for _, m := range nodeNames() {
		_, err := r.series(ctx, []metric{m}, r.span(time.Hour), func(l prometheus.Metric, _ int, _ float64) {
			r.names[string(l["instance"])] = string(l["nodename"])
			r.names[string(l["internal_ip"])] = string(l["node"])
		})
		if err != nil {
			return err
		}
	}
	delete(r.names, "")
	if err := r.readSizes(ctx); err != nil {
		return err
	}
	cpu, err := r.series(ctx, nodeCPU(), r.span(step), func(l prometheus.Metric, i int, v float64) {
		if n := r.node(l); n != nil {
			put(n.CPU, i, v*milli)
		}
	})
	if err != nil {
		return err
	}
	memory, err := r.series(ctx, nodeMemory(), r.span(memoryStep), func(l prometheus.Metric, i int, v float64) {
		if n := r.node(l); n != nil {
			put(n.Memory, i, v*mib)
		}
	})
	for what, name := range map[string]string{"CPU": cpu, "memory": memory} {
		if name == "" {
			r.note("Nodes' %s was not recorded: only pods use some, and system daemons none.", what)
		}
	}
	slices.Sort(r.notes)
	return errors.Join(err, r.checkNodes(cpu))
}

func (r *reader) readSizes(ctx context.Context) error {
	last := span{begin: r.begin.Add(time.Duration(r.Days-1) * day), count: int(day / time.Hour), step: time.Hour}
	size := func(set func(n *Node, v float64)) func(prometheus.Metric, int, float64) {
		return func(l prometheus.Metric, _ int, v float64) {
			name := r.nameOf(l)
			if r.nodes[name] == nil {
				r.nodes[name] = &nodeUse{Node: Node{
					Name: name, CPU: blank(r.span(step).count), Memory: blank(r.span(memoryStep).count),
				}}
			}
			set(&r.nodes[name].Node, v)
		}
	}
	sizes := []struct {
		metrics []metric
		set     func(n *Node, v float64)
	}{
		{cpus(), func(n *Node, v float64) { n.Capacity.CPU = max(n.Capacity.CPU, int64(v*milli)) }},
		{memories(), func(n *Node, v float64) { n.Capacity.Memory = max(n.Capacity.Memory, int64(v)) }},
		{allocatable("cpu"), func(n *Node, v float64) { n.Allocatable.CPU = max(n.Allocatable.CPU, int64(v*milli)) }},
		{allocatable("memory"), func(n *Node, v float64) { n.Allocatable.Memory = max(n.Allocatable.Memory, int64(v)) }},
	}
	for k, s := range sizes {
		name, err := r.series(ctx, s.metrics, last, size(s.set))
		switch {
		case err != nil:
			return err
		case name == "" && k < 2:
			return fmt.Errorf("%s has nothing about the sizes of nodes on the day before %s%s: it must have one of %s",
				r.s.name, r.Until.UTC().Format(time.DateOnly), r.selected(), names(s.metrics))
		case name == "" && k == 2:
			r.note("%s was not recorded: pods may request all of a node.", s.metrics[0].name)
		}
	}
	unsized := 0
	for name, n := range r.nodes {
		if n.Capacity.CPU == 0 || n.Capacity.Memory == 0 {
			delete(r.nodes, name)
			unsized++
			continue
		}
		for _, a := range []struct {
			is  *int64
			all int64
		}{{&n.Allocatable.CPU, n.Capacity.CPU}, {&n.Allocatable.Memory, n.Capacity.Memory}} {
			if *a.is <= 0 || *a.is > a.all {
				*a.is = a.all
			}
		}
	}
	if unsized > 0 {
		r.note("%d nodes were left out: their CPUs or their memory were not recorded, or under another name.", unsized)
	}
	return nil
}

func (r *reader) selected() string {
	if r.Selector == "" {
		return ""
	}
	return " with " + r.Selector
}

func names(all []metric) string {
	var text []string
	for _, m := range all {
		text = append(text, m.name)
	}
	return strings.Join(text, ", ")
}

// checkNodes returns an error if nodes used more than they have, and leaves out those that were not there.
func (r *reader) checkNodes(metric string) error {
	gone := 0
	for name, n := range r.nodes {
		for i, v := range n.CPU {
			if int64(v) > 2*n.Capacity.CPU+milli {
				return fmt.Errorf("node %s used %d CPUs at %s and has %d: is %s in milli-cores? It must be in seconds of CPU",
					name, v/milli, r.begin.Add(time.Duration(i)*step).Format(time.RFC3339), n.Capacity.CPU/milli, metric)
			}
		}
		if metric != "" && recorded(n.CPU[len(n.CPU)-int(day/step):]) < int(day/step)/2 {
			delete(r.nodes, name)
			gone++
		}
	}
	if gone > 0 {
		r.note("%d nodes were left out: less than half of the last day was recorded of each.", gone)
	}
	if len(r.nodes) == 0 && gone > 0 {
		return fmt.Errorf("%s has less than half a day of %s before %s: name another end with --until, or wait until it "+
			"has recorded a day", r.s.name, metric, r.Until.UTC().Format(time.DateOnly))
	}
	return nil
}

// recorded returns the number of values that were.
func recorded(series []int32) int {
	n := 0
	for _, v := range series {
		if v != missing {
			n++
		}
	}
	return n
}
