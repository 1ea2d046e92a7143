package yarncheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// capacityScheduler is how the CapacityScheduler calls itself.
const capacityScheduler = "capacityScheduler"

func scheduler(in *Input, to *findings) {
	if in.Scheduler.Kind == capacityScheduler {
		return
	}
	const property = "yarn.resourcemanager.scheduler.class"
	const class = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler"
	to.add(Finding{
		Code: SchedulerNotCapacity, Severity: Error, Property: property, Value: in.Scheduler.Kind,
		What: "The scheduler is not the CapacityScheduler.",
		Why:  "Other schedulers ignore node labels: masters and streaming jobs land on workers, which then cannot leave.",
		Fix:  Fix{property, class, "Its queues have to be configured in capacity-scheduler.xml. " + restart},
	})
}

// calculator finds out from the limits of masters whether vcores count, because the ResourceManager shows its resource
// calculator nowhere. The DefaultResourceCalculator makes every limit 1 vcore, whatever its memory; the other one
// computes both from what the queue has.
func calculator(in *Input, to *findings) {
	const property = "yarn.scheduler.capacity.resource-calculator"
	const dominant = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
	for _, q := range leaves(in) {
		for _, p := range q.Partitions {
			if float64(p.Min.VCores)*p.MasterPercent/100 < 2 || p.MasterLimit.MemoryMiB == 0 {
				continue
			}
			if p.MasterLimit.VCores > 1 {
				return
			}
			to.add(Finding{
				Code: VCoresIgnored, Severity: Error, Property: property, Value: "DefaultResourceCalculator",
				What: fmt.Sprintf("The scheduler ignores vcores: masters of queue %s may have %d MiB and 1 vcore, of %d vcores.",
					q.Path, p.MasterLimit.MemoryMiB, p.Min.VCores),
				Why: "Containers land on a worker as long as it has memory. Fewer vcores on a worker stop and end no container, " +
					"so the pool cannot give CPU back.",
				Fix: Fix{property, dominant, "It is in capacity-scheduler.xml. " + restart},
			})
			return
		}
	}
	to.unknown = "no queue has 2 vcores for masters, so the resource calculator does not show; see that " + property +
		" in capacity-scheduler.xml is " + dominant
}

func labelling(in *Input, to *findings) {
	const enabled, kind = "yarn.node-labels.enabled", "yarn.node-labels.configuration-type"
	const store = "yarn.node-labels.fs-store.root-dir"
	switch value := in.Settings[kind]; {
	case in.Settings[enabled] != "true":
		to.add(Finding{
			Code: LabelsDisabled, Severity: Error, Property: enabled, Value: in.Settings[enabled],
			What: "Node labels are off.",
			Why:  "All nodes are in one partition, so masters and streaming jobs land on workers.",
			Fix: Fix{enabled, "true", "Set " + store + " to a directory that outlives the ResourceManager's machine. " +
				restart},
		})
	case value != "" && value != "centralized":
		to.add(Finding{
			Code: LabelsNotCentralized, Severity: Error, Property: kind, Value: value,
			What: "NodeManagers, or a provider of the ResourceManager, say which node has which label.",
			Why:  "The ResourceManager refuses labels from the pool.",
			Fix:  Fix{kind, "centralized", restart},
		})
	}
}

func labelStore(in *Input, to *findings) {
	const property = "yarn.node-labels.fs-store.root-dir"
	value := in.Settings[property]
	path, local := strings.CutPrefix(value, "file:")
	f := Finding{
		Severity: Warning, Property: property, Value: value,
		Fix: Fix{property, "hdfs:///yarn/node-labels",
			"Any file system will do that all ResourceManagers share. " + restart + " Then add the labels again."},
	}
	switch {
	case in.Settings["yarn.node-labels.enabled"] != "true":
		return
	case value == "", strings.HasPrefix("/"+strings.TrimLeft(path, "/"), "/tmp/"):
		f.Code, f.What = LabelStoreTemporary, "Labels are stored in a directory for temporary files."
		f.Why = "When the directory is emptied, nodes lose their labels, and everybody's containers land on workers."
	case local && in.Settings[propertyHA] == "true":
		f.Code, f.What = LabelStoreLocal, "Labels are stored in a local file system, and there are several ResourceManagers."
		f.Why = "Unless the directory is the same one on all machines, nodes lose their labels at a failover, and " +
			"everybody's containers land on workers."
	default:
		return
	}
	to.add(f)
}

// addLabel returns the command that adds a label.
func addLabel(name string) string {
	return fmt.Sprintf(`yarn rmadmin -addToClusterNodeLabels "%s(exclusive=true)"`, name)
}

func label(in *Input, to *findings) {
	i := slices.IndexFunc(in.Labels, func(l model.NodeLabel) bool { return l.Name == in.Label })
	switch {
	case in.Settings["yarn.node-labels.enabled"] == "false":
		to.unknown = "node labels are off"
	case i < 0:
		to.add(Finding{
			Code: LabelMissing, Severity: Warning, Where: []string{"label " + in.Label}, What: "The label does not exist.",
			Why: "No worker can join before it does. A WorkerPool adds it if its user may; to use it, queues need capacity.",
			Fix: Fix{Do: "Run " + addLabel(in.Label) + "."},
		})
	case !in.Labels[i].Exclusive:
		to.add(Finding{
			Code: LabelShared, Severity: Warning, Where: []string{"label " + in.Label}, What: "The label is not exclusive.",
			Why: "Idle workers get containers that do not ask for the label, such as those of streaming jobs. A worker that " +
				"leaves kills them.",
			Fix: Fix{Do: "The kind of a label cannot be changed. Take it from the queues, remove it with yarn rmadmin " +
				"-removeFromClusterNodeLabels, and run " + addLabel(in.Label) + "."},
		})
	}
}
