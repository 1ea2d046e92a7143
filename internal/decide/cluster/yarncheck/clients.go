package yarncheck

import "strings"

// UniffleClients returns the settings with which Spark and MapReduce use shuffle servers of Uniffle, with three
// replicas of which one can be missed. The checks find nothing wrong with them.
func UniffleClients(coordinators []string) (spark, mapReduce map[string]string) {
	spark, mapReduce = services()[0].clients(coordinators)
	for prefix, settings := range map[string]map[string]string{"spark": spark, "mapreduce": mapReduce} {
		settings[prefix+".rss."+storageType] = memoryLocalFile
		settings[prefix+".rss.data.replica"] = "3"
		settings[prefix+".rss.data.replica.write"], settings[prefix+".rss.data.replica.read"] = "2", "2"
	}
	return spark, mapReduce
}

// CelebornClients is the same for workers of Celeborn, with two replicas.
func CelebornClients(masters []string) (spark, mapReduce map[string]string) {
	spark, mapReduce = services()[1].clients(masters)
	spark["spark.celeborn.client.push.replicate.enabled"] = "true"
	mapReduce["mapreduce.celeborn.client.push.replicate.enabled"] = "true"
	spark[propertySparkLocal] = "false"
	return spark, mapReduce
}

// clients returns the settings that name a service, its classes and its servers.
func (s service) clients(servers []string) (spark, mapReduce map[string]string) {
	all := strings.Join(servers, ",")
	spark = map[string]string{
		propertySparkManager: s.managers[0], propertySparkSerializer: kryo, propertySparkShuffle: "false",
		"spark." + s.prefix + s.servers: all,
	}
	mapReduce = map[string]string{"mapreduce." + s.prefix + s.servers: all}
	for _, p := range s.mapReduce {
		mapReduce[p.property] = p.class
	}
	mapReduce[propertyMasterOptions] = masterHeap + " " + mapReduce[propertyMasterOptions]
	return spark, mapReduce
}

// masterHeap is the default of the options to which the class of masters is appended (mapred-default.xml).
const masterHeap = "-Xmx1024m"
