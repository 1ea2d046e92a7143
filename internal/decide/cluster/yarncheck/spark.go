package yarncheck

import "slices"

// Properties of Spark that decide whether executors leave without a loss.
const (
	propertySparkBlocks   = "spark.storage.decommission.shuffleBlocks.enabled"
	propertySparkShuffle  = "spark.shuffle.service.enabled"
	propertySparkFallback = "spark.storage.decommission.fallbackStorage.path"
	propertySparkMaster   = "spark.yarn.am.nodeLabelExpression"
	propertySparkExecutor = "spark.yarn.executor.nodeLabelExpression"
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
	return slices.Concat(found, sparkShuffle(in), sparkFallback(in), sparkLabels(in)), ""
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
