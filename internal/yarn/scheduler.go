package yarn

import (
	"context"
	"fmt"
)

// Queue is a queue of the CapacityScheduler.
type Queue struct {
	Path       string // such as root.default
	State      string // RUNNING, DRAINING or STOPPED
	Apps       int    // that run or wait; of a queue that has queues of its own: 0
	Partitions []Partition
	Queues     []Queue
}

// Partition is what a queue uses of the nodes with one label.
type Partition struct {
	Label    string // empty: the default partition
	Used     Resource
	Reserved Resource
	Pending  Resource // asked for and not given yet
	Masters  Resource // of Used, what applications' masters take
}

type queueJSON struct {
	Path      string `json:"queuePath"`
	Name      string `json:"queueName"`
	State     string `json:"state"`
	Apps      number `json:"numApplications"`
	Resources optional[struct {
		Partitions list[struct {
			Label    string       `json:"partitionName"`
			Used     resourceJSON `json:"used"`
			Reserved resourceJSON `json:"reserved"`
			Pending  resourceJSON `json:"pending"`
			Masters  resourceJSON `json:"amUsed"`
		}] `json:"resourceUsagesByPartition"`
	}] `json:"resources"`
	Queues optional[struct {
		Queue list[queueJSON] `json:"queue"`
	}] `json:"queues"`
}

func (j queueJSON) queue() Queue {
	q := Queue{Path: j.Path, State: j.State, Apps: int(j.Apps)}
	if q.Path == "" { // releases before 3.3 leave it out
		q.Path = j.Name
	}
	for _, p := range j.Resources.v.Partitions {
		q.Partitions = append(q.Partitions, Partition{
			Label: p.Label, Used: p.Used.resource(), Reserved: p.Reserved.resource(), Pending: p.Pending.resource(),
			Masters: p.Masters.resource(),
		})
	}
	for _, sub := range j.Queues.v.Queue {
		q.Queues = append(q.Queues, sub.queue())
	}
	return q
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
	if err := c.get(ctx, "/scheduler", nil, &answer); err != nil {
		return Queue{}, err
	}
	const capacity = "capacityScheduler"
	if kind := answer.Scheduler.Info.Type; kind != capacity {
		return Queue{}, fmt.Errorf("the ResourceManager's scheduler is %q; node labels need %q: set "+
			"yarn.resourcemanager.scheduler.class to CapacityScheduler", kind, capacity)
	}
	return answer.Scheduler.Info.queue(), nil
}
