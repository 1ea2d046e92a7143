package yarn

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// Queue is a queue of the CapacityScheduler.
type Queue struct {
	Path   string   // such as root.default
	State  string   // RUNNING, DRAINING or STOPPED
	Labels []string // node labels that its applications may ask for; "*": all. Of the root queue, none is shown
	// DefaultLabel is the node label of applications whose client says nothing about labels; empty: the default
	// partition. The web service of submissions always says something.
	DefaultLabel string
	// ByAmount is set if its capacities are amounts of memory and vcores. The percentages of a partition without nodes
	// are 0 then.
	ByAmount   bool
	Partitions []Partition
	Queues     []Queue
}

// Partition is what a queue may use, and uses, of the nodes with one label. A queue that may use a label and has no
// capacity of it configured can lack the partition.
type Partition struct {
	Label string // empty: the default partition
	Used  Resource
	// Capacity is guaranteed, and MaxCapacity is the most that the queue can have, in percent of the whole partition.
	Capacity, MaxCapacity float64
	Min                   Resource // Capacity by the nodes that the partition has now
	// MasterPercent is how much of what the queue can have masters may take. However small it is, a first one starts.
	MasterPercent float64
	MasterLimit   Resource // the same by the nodes that the partition has now; zero if the queue has queues of its own
}

type usageJSON struct {
	Label       string       `json:"partitionName"`
	Used        resourceJSON `json:"used"`
	MasterLimit resourceJSON `json:"amLimit"`
}

type capacityJSON struct {
	Label         string       `json:"partitionName"`
	Capacity      fraction     `json:"absoluteCapacity"`
	MaxCapacity   fraction     `json:"absoluteMaxCapacity"`
	MasterPercent fraction     `json:"maxAMLimitPercentage"`
	Min           resourceJSON `json:"effectiveMinResource"`
}

type queueJSON struct {
	Path         string       `json:"queuePath"`
	Name         string       `json:"queueName"`
	State        string       `json:"state"`
	Labels       list[string] `json:"nodeLabels"`
	DefaultLabel string       `json:"defaultNodeLabelExpression"`
	ByAmount     flag         `json:"isAbsoluteResource"`
	Resources    optional[struct {
		Partitions list[usageJSON] `json:"resourceUsagesByPartition"`
	}] `json:"resources"`
	Capacities optional[struct {
		Partitions list[capacityJSON] `json:"queueCapacitiesByPartition"`
	}] `json:"capacities"`
	Queues optional[struct {
		Queue list[queueJSON] `json:"queue"`
	}] `json:"queues"`
}

// queue returns the queue, which is below one with a path; "": it is the root queue.
func (j queueJSON) queue(above string) Queue {
	q := Queue{
		Path: j.Path, State: j.State, Labels: j.Labels, DefaultLabel: strings.TrimSpace(j.DefaultLabel),
		ByAmount: bool(j.ByAmount),
	}
	if q.Path == "" { // 3.3.6 and earlier releases leave it out
		q.Path = strings.TrimPrefix(above+"."+j.Name, ".")
	}
	for _, p := range j.Resources.v.Partitions {
		*q.partition(p.Label) = Partition{Label: p.Label, Used: p.Used.resource(), MasterLimit: p.MasterLimit.resource()}
	}
	for _, c := range j.Capacities.v.Partitions {
		p := q.partition(c.Label)
		p.Capacity, p.MaxCapacity, p.MasterPercent = float64(c.Capacity), float64(c.MaxCapacity), float64(c.MasterPercent)
		p.Min = c.Min.resource()
	}
	for _, sub := range j.Queues.v.Queue {
		q.Queues = append(q.Queues, sub.queue(q.Path))
	}
	return q
}

// partition returns the partition with a label, a new one if there is none.
func (q *Queue) partition(label string) *Partition {
	i := slices.IndexFunc(q.Partitions, func(p Partition) bool { return p.Label == label })
	if i < 0 {
		i, q.Partitions = len(q.Partitions), append(q.Partitions, Partition{Label: label})
	}
	return &q.Partitions[i]
}

// Scheduler returns the CapacityScheduler's root queue. The answer is large, a few kB a queue: ask for it every ten
// seconds at most. For other schedulers, which know no partitions, it returns an error.
func (c *RM) Scheduler(ctx context.Context) (Queue, error) {
	var answer struct {
		Scheduler struct {
			Info struct {
				Type string `json:"type"`
				queueJSON
			} `json:"schedulerInfo"`
		} `json:"scheduler"`
	}
	if err := c.Do(ctx, http.MethodGet, "/scheduler", nil, &answer); err != nil {
		return Queue{}, err
	}
	const capacity = "capacityScheduler"
	if kind := answer.Scheduler.Info.Type; kind != capacity {
		return Queue{}, &OtherSchedulerError{kind}
	}
	return answer.Scheduler.Info.queue(""), nil
}
