package yarn

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// Queue is a queue of the CapacityScheduler.
type Queue = model.Queue

// Partition is the part of a queue in one partition of the cluster.
type Partition = model.Partition

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
		*partitionOf(&q, p.Label) = Partition{Label: p.Label, Used: p.Used.resource(), MasterLimit: p.MasterLimit.resource()}
	}
	for _, c := range j.Capacities.v.Partitions {
		p := partitionOf(&q, c.Label)
		p.Capacity, p.MaxCapacity, p.MasterPercent = float64(c.Capacity), float64(c.MaxCapacity), float64(c.MasterPercent)
		p.Min = c.Min.resource()
	}
	for _, sub := range j.Queues.v.Queue {
		q.Queues = append(q.Queues, sub.queue(q.Path))
	}
	return q
}

// partitionOf returns the partition of a queue with a label, a new one if there is none.
func partitionOf(q *Queue, label string) *Partition {
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
