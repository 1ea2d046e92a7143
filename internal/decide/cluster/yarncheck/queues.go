package yarncheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// leaves returns the queues that take applications.
func leaves(in *Input) []model.Queue {
	var all []model.Queue
	var visit func(q model.Queue)
	visit = func(q model.Queue) {
		if len(q.Queues) == 0 && q.Running() {
			all = append(all, q)
		}
		for _, sub := range q.Queues {
			visit(sub)
		}
	}
	visit(in.Scheduler.Root)
	return all
}

// mayAsk reports whether a queue's applications may ask for a label. All may ask for the default partition.
func mayAsk(q *model.Queue, label string) bool {
	return label == "" || slices.Contains(q.Labels, "*") || slices.Contains(q.Labels, label)
}

// partition returns what a queue may use of the nodes with a label. A queue that may ask for a label, and has no
// capacity of it, can lack the partition.
func partition(q *model.Queue, label string) model.Partition {
	for _, p := range q.Partitions {
		if p.Label == label {
			return p
		}
	}
	return model.Partition{Label: label}
}

// gets reports whether containers of a queue can get a place on nodes with a label.
func gets(q *model.Queue, label string) bool {
	// In a partition without nodes, capacities that are amounts show as 0 %.
	return mayAsk(q, label) && (partition(q, label).MaxCapacity > 0 || q.ByAmount)
}

// capacityOf returns the property with a queue's capacity of a label.
func capacityOf(queue, label string) string {
	return fmt.Sprintf("yarn.scheduler.capacity.%s.accessible-node-labels.%s.capacity", queue, label)
}

// pathOf returns the path of the only queue in a list; of several, what stands for a path in a property.
func pathOf(queues []string) string {
	if len(queues) == 1 {
		return queues[0]
	}
	return "<queue>"
}

// defaultOf returns the property with a queue's default label.
func defaultOf(queue string) string {
	return fmt.Sprintf("yarn.scheduler.capacity.%s.default-node-label-expression", queue)
}

// refreshQueues is what makes a changed capacity-scheduler.xml count.
const refreshQueues = "Then run yarn rmadmin -refreshQueues."

func queues(in *Input, to *findings) {
	var usable, nothing, everything, unshared []string
	for _, q := range leaves(in) {
		switch {
		case !mayAsk(&q, in.Label):
		case !gets(&q, in.Label) && slices.Contains(q.Labels, in.Label):
			nothing = append(nothing, q.Path)
		case !gets(&q, in.Label):
			everything = append(everything, q.Path)
		default:
			usable = append(usable, q.Path)
			if partition(&q, in.Label).Capacity == 0 && !q.ByAmount {
				unshared = append(unshared, q.Path)
			}
		}
	}
	all := "The capacities of the queues below one queue add up to 100. All queues above need capacity too: " +
		capacityOf("root", in.Label) + " is 100. " + refreshQueues
	if len(usable) == 0 {
		to.add(Finding{
			Code: NoQueueForLabel, Severity: Error, What: "No queue can use the label " + in.Label + ".",
			Why: "Workers would join and stay idle.",
			Fix: Fix{capacityOf("<queue>", in.Label), "100",
				fmt.Sprintf("Set yarn.scheduler.capacity.<queue>.accessible-node-labels to %s as well. %s", in.Label, all)},
		})
	}
	for _, f := range []struct {
		queues   []string
		severity Severity
	}{{nothing, Warning}, {everything, Note}} {
		to.at(f.queues, Finding{
			Code: QueueHasNothing, Severity: f.severity, Value: "0",
			Property: capacityOf(pathOf(f.queues), in.Label),
			What:     "Applications of these queues may ask for the label, and the queues can have nothing of it.",
			Why:      "Such an application is accepted, and waits for ever.",
			Fix: Fix{capacityOf(pathOf(f.queues), in.Label), "50",
				"Or take the label out of the queue's accessible-node-labels: then such an application is refused at once. " +
					"maximum-capacity must not be 0. " + all},
		})
	}
	to.at(unshared, Finding{
		Code: QueueHasNoShare, Severity: Warning, Value: "0",
		Property: capacityOf(pathOf(unshared), in.Label),
		What:     "These queues can use the label, and have no guaranteed capacity of it.",
		Why: "The limits for users and for masters follow from the capacity. Of the applications whose master is on the " +
			"label, one runs at a time.",
		Fix: Fix{capacityOf(pathOf(unshared), in.Label), "50", all},
	})
}

func defaults(in *Input, to *findings) {
	var elsewhere, here []string
	for _, q := range leaves(in) {
		switch {
		case !gets(&q, in.Label):
		case q.DefaultLabel == in.Label:
			here = append(here, q.Path)
		default:
			elsewhere = append(elsewhere, q.Path)
		}
	}
	to.at(elsewhere, Finding{
		Code: QueueDefaultElsewhere, Severity: Note, Property: defaultOf(pathOf(elsewhere)),
		What: "Jobs of these queues do not use the workers by themselves.",
		Why:  "The queue's default label is another one, so only jobs that ask for the label get containers there.",
		Fix: Fix{defaultOf(pathOf(elsewhere)), in.Label, "Or let jobs ask: mapreduce.map.node-label-expression and " +
			"mapreduce.reduce.node-label-expression, or spark.yarn.executor.nodeLabelExpression. " + refreshQueues},
	})
	to.at(here, Finding{
		Code: RESTIgnoresQueueDefault, Severity: Note, Value: in.Label,
		Property: defaultOf(pathOf(here)),
		What:     "Applications that are submitted by REST without a label go to the default partition all the same.",
		Why: "The web service turns a missing label into an empty one, which means the default partition. Where that has " +
			"no room, such an application waits for ever.",
		Fix: Fix{Do: "Submit with app-node-label-expression. The clients of MapReduce and Spark leave the label out, and " +
			"get the queue's."},
	})
}

// labelNames returns the names of labels, for people.
func labelNames(labels []model.NodeLabel) string {
	var names []string
	for _, l := range labels {
		names = append(names, l.Name)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
