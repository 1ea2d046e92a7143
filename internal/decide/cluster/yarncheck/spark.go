package yarncheck

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
func spark(in *Input, to *findings) {
	if in.Spark == nil {
		return
	}
	remote := sparkClient(in)
	for _, property := range lacking(in) {
		if remote != nil && property == propertySparkBlocks {
			continue
		}
		to.add(Finding{
			Code: SparkKeepsNothing, Severity: Warning, Property: property, Value: in.Spark[property],
			What: "Executors of Spark do not move their data away when their node leaves.",
			Why:  "The data is lost with the node, and the tasks that made it run again.",
			Fix:  Fix{Property: property, Value: "true"},
		})
	}
	sparkShuffle(in, to)
	sparkFallback(in, to)
	sparkAllocation(in, to)
	sparkLabels(in, to)
}

func sparkShuffle(in *Input, to *findings) {
	if in.Spark[propertySparkShuffle] != "true" {
		return
	}
	f := Finding{
		Code: SparkShuffleService, Severity: Warning, Property: propertySparkShuffle, Value: "true",
		What: "Spark uses the shuffle service of NodeManagers.",
		Why: "Spark on YARN does not decommission executors then, and the service stops with its NodeManager. Tasks whose " +
			"data it kept run again.",
		Fix: Fix{propertySparkShuffle, "false", "Dynamic allocation works without it if executors move their data."},
	}
	if c := sparkClient(in); c != nil {
		f.What = "Spark uses the shuffle service of NodeManagers beside " + c.name + "."
		f.Why = c.name + " asks for it to be off, and Spark on YARN does not decommission executors with it."
		f.Fix.Do = ""
	}
	to.add(f)
}

func sparkFallback(in *Input, to *findings) {
	if in.Spark[propertySparkFallback] != "" || sparkClient(in) != nil {
		return // shuffle servers have the data
	}
	to.add(Finding{
		Code: SparkNoFallback, Severity: Note, Property: propertySparkFallback,
		What: "Executors of Spark have no place for data that no other executor takes.",
		Why:  "When all executors of an application leave at the same time, their data is lost.",
		Fix:  Fix{propertySparkFallback, "hdfs:///spark-fallback/", "Any file system that all nodes share will do."},
	})
}

// lacking returns the properties for which executors that leave do not hand over the output of their tasks.
func lacking(in *Input) (all []string) {
	for _, p := range sparkLeaves {
		if value, set := in.Spark[p.property]; value != "true" && (set || p.without != "true") {
			all = append(all, p.property)
		}
	}
	return all
}

// sparkAllocation checks dynamic allocation without the shuffle service of NodeManagers. The rule is that of
// ExecutorAllocationManager.validateSettings of Spark 3.5 and 4; before 3.4, tracking is off by default.
func sparkAllocation(in *Input, to *findings) {
	if in.Spark[propertySparkAllocation] != "true" || in.Spark[propertySparkShuffle] == "true" ||
		in.Spark[propertySparkData] != "" || sparkClient(in) != nil {
		return // the shuffle service, or servers, have the data
	}
	tracks, moves := in.Spark[propertySparkTracking] != "false", len(lacking(in)) == 0
	switch {
	case !tracks && !moves:
		to.add(Finding{
			Code: SparkAllocationRefused, Severity: Error, Property: propertySparkTracking, Value: "false",
			What: "Spark is to end idle executors, and nothing keeps the output of their tasks.",
			Why:  "Applications end at their start with an exception.",
			Fix: Fix{"spark.decommission.enabled", "true",
				"With spark.storage.decommission.enabled, executors move their data before they end."},
		})
	case tracks && in.Spark[propertySparkTracked] == "":
		f := Finding{
			Code: SparkAllocationHolds, Severity: Note, Property: propertySparkTracking, Value: in.Spark[propertySparkTracking],
			What: "Idle executors of Spark stay while the output of their tasks may be needed.",
			Why: "Their workers do not become empty: drains take their full time, and with size.demand: Follow such workers " +
				"stay.",
			Fix: Fix{propertySparkTracked, "10min", "Output that is needed later is then computed again."},
		}
		if moves {
			f.Fix = Fix{propertySparkTracking, "false", "Executors move their data before they end."}
		}
		to.add(f)
	}
}

func sparkLabels(in *Input, to *findings) {
	if in.Spark[propertySparkMaster] == in.Label {
		to.add(Finding{
			Code: SparkMasterOnLabel, Severity: Warning, Property: propertySparkMaster, Value: in.Label,
			What: "Application masters of Spark ask for workers.",
			Why: "A worker that leaves takes the masters along, and in mode cluster the drivers. Their applications start " +
				"anew, or fail.",
			Fix: Fix{Do: "Remove the property, or name the label of fixed nodes."},
		})
	}
	if label := in.Spark[propertySparkExecutor]; label != in.Label {
		to.add(Finding{
			Code: SparkElsewhere, Severity: Note, Property: propertySparkExecutor, Value: label,
			What: "Executors of Spark use the workers only if their queue's default label is that of the pool.",
			Why:  "The settings do not ask for the pool's label.",
			Fix:  Fix{Property: propertySparkExecutor, Value: in.Label},
		})
	}
}
