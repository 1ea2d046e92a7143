package yarncheck

import "slices"

// Properties of Spark that decide whether executors leave without a loss.
const (
	propertySparkBlocks   = "spark.storage.decommission.shuffleBlocks.enabled"
	propertySparkShuffle  = "spark.shuffle.service.enabled"
	propertySparkFallback = "spark.storage.decommission.fallbackStorage.path"
	propertySparkMaster   = "spark.yarn.am.nodeLabelExpression"
	propertySparkExecutor = "spark.yarn.executor.nodeLabelExpression"
	propertySparkTracking = "spark.dynamicAllocation.shuffleTracking.enabled"
	propertySparkTracked  = "spark.dynamicAllocation.shuffleTracking.timeout"
)

// sparkLeaves are what Spark needs to move its data away from a node that leaves, with Spark's defaults (4.3.0).
var sparkLeaves = []struct{ property, without string }{
	{"spark.decommission.enabled", "false"},
	{"spark.storage.decommission.enabled", "false"},
	{propertySparkBlocks, "true"},
}

// spark checks the default settings of Spark applications, if there are any.
func spark(in *Input) ([]Finding, string) {
	if in.Spark == nil {
		return nil, ""
	}
	var found []Finding
	remote := sparkClient(in)
	for _, p := range sparkLeaves {
		value, set := in.Spark[p.property]
		if value == "true" || !set && p.without == "true" || remote != nil && p.property == propertySparkBlocks {
			continue
		}
		found = append(found, Finding{
			Code: SparkKeepsNothing, Severity: Warning, Property: p.property, Value: value,
			What: "Executors of Spark do not move their data away when their node leaves.",
			Why:  "The data is lost with the node, and the tasks that made it run again.",
			Fix:  Fix{Property: p.property, Value: "true"},
		})
	}
	return slices.Concat(found, sparkShuffle(in), sparkFallback(in), sparkAllocation(in), sparkLabels(in)), ""
}

func sparkShuffle(in *Input) []Finding {
	if in.Spark[propertySparkShuffle] != "true" {
		return nil
	}
	if c := sparkClient(in); c != nil {
		return []Finding{{
			Code: SparkShuffleService, Severity: Warning, Property: propertySparkShuffle, Value: "true",
			What: "Spark uses the shuffle service of NodeManagers beside " + c.name + ".",
			Why:  c.name + " asks for it to be off, and Spark on YARN does not decommission executors with it.",
			Fix:  Fix{Property: propertySparkShuffle, Value: "false"},
		}}
	}
	return []Finding{{
		Code: SparkShuffleService, Severity: Warning, Property: propertySparkShuffle, Value: "true",
		What: "Spark uses the shuffle service of NodeManagers.",
		Why: "Spark on YARN does not decommission executors then, and the service stops with its NodeManager. Tasks whose " +
			"data it kept run again.",
		Fix: Fix{propertySparkShuffle, "false", "Dynamic allocation works without it if executors move their data."},
	}}
}

func sparkFallback(in *Input) []Finding {
	if in.Spark[propertySparkFallback] != "" || sparkClient(in) != nil {
		return nil // shuffle servers have the data
	}
	return []Finding{{
		Code: SparkNoFallback, Severity: Note, Property: propertySparkFallback,
		What: "Executors of Spark have no place for data that no other executor takes.",
		Why:  "When all executors of an application leave at the same time, their data is lost.",
		Fix:  Fix{propertySparkFallback, "hdfs:///spark-fallback/", "Any file system that all nodes share will do."},
	}}
}

// moves reports whether executors that leave hand over the output of their tasks.
func moves(in *Input) bool {
	return !slices.ContainsFunc(sparkLeaves, func(p struct{ property, without string }) bool {
		value, set := in.Spark[p.property]
		return value != "true" && (set || p.without != "true")
	})
}

// sparkAllocation checks dynamic allocation without the shuffle service of NodeManagers. The rule is that of
// ExecutorAllocationManager.validateSettings of Spark 3.5 and 4; before 3.4, tracking is off by default.
func sparkAllocation(in *Input) []Finding {
	if in.Spark[propertySparkAllocation] != "true" || in.Spark[propertySparkShuffle] == "true" ||
		in.Spark[propertySparkData] != "" || sparkClient(in) != nil {
		return nil // the shuffle service, or servers, have the data
	}
	tracks := in.Spark[propertySparkTracking] != "false"
	switch {
	case !tracks && !moves(in):
		return []Finding{{
			Code: SparkAllocationRefused, Severity: Error, Property: propertySparkTracking, Value: "false",
			What: "Spark is to end idle executors, and nothing keeps the output of their tasks.",
			Why:  "Applications end at their start with an exception.",
			Fix: Fix{"spark.decommission.enabled", "true",
				"With spark.storage.decommission.enabled, executors move their data before they end."},
		}}
	case tracks && in.Spark[propertySparkTracked] == "":
		f := Finding{
			Code: SparkAllocationHolds, Severity: Note, Property: propertySparkTracking, Value: in.Spark[propertySparkTracking],
			What: "Idle executors of Spark stay while the output of their tasks may be needed.",
			Why: "Their workers do not become empty: drains take their full time, and with size.demand: Follow such workers " +
				"stay.",
			Fix: Fix{propertySparkTracked, "10min", "Output that is needed later is then computed again."},
		}
		if moves(in) {
			f.Fix = Fix{propertySparkTracking, "false", "Executors move their data before they end."}
		}
		return []Finding{f}
	}
	return nil
}

func sparkLabels(in *Input) []Finding {
	var found []Finding
	if in.Spark[propertySparkMaster] == in.Label {
		found = append(found, Finding{
			Code: SparkMasterOnLabel, Severity: Warning, Property: propertySparkMaster, Value: in.Label,
			What: "Application masters of Spark ask for workers.",
			Why: "A worker that leaves takes the masters along, and in mode cluster the drivers. Their applications start " +
				"anew, or fail.",
			Fix: Fix{Do: "Remove the property, or name the label of fixed nodes."},
		})
	}
	if label := in.Spark[propertySparkExecutor]; label != in.Label {
		found = append(found, Finding{
			Code: SparkElsewhere, Severity: Note, Property: propertySparkExecutor, Value: label,
			What: "Executors of Spark use the workers only if their queue's default label is that of the pool.",
			Why:  "The settings do not ask for the pool's label.",
			Fix:  Fix{Property: propertySparkExecutor, Value: in.Label},
		})
	}
	return found
}
