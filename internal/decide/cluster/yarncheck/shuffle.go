package yarncheck

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Properties of clients of shuffle servers.
const (
	propertySparkManager    = "spark.shuffle.manager"
	propertySparkSerializer = "spark.serializer"
	propertySparkAllocation = "spark.dynamicAllocation.enabled"
	propertySparkAdaptive   = "spark.sql.adaptive.enabled"
	propertySparkLocal      = "spark.sql.adaptive.localShuffleReader.enabled"
	propertySparkData       = "spark.shuffle.sort.io.plugin.class"

	propertyMasterOptions     = "yarn.app.mapreduce.am.command-opts"
	propertyMasterEnvironment = "yarn.app.mapreduce.am.env"

	// storageType says where servers of Uniffle keep data: with memoryLocalFile, in memory and on local disks.
	storageType     = "storage.type"
	memoryLocalFile = "MEMORY_LOCALFILE"

	kryo = "org.apache.spark.serializer.KryoSerializer"
)

// service is a remote shuffle service, as its clients are configured.
type service struct {
	name    string
	prefix  string // of its properties, after spark. or mapreduce.
	servers string // the property with the addresses of its coordinators or masters, after prefix
	example string // of their value
	// managers are the shuffle managers of Spark.
	managers []string
	// mapReduce are the properties of MapReduce with their values. That of the masters' options may have other words too.
	mapReduce []struct{ property, class string }
}

// services are those that this package knows. Names of classes and properties are those of the clients that ran
// (Uniffle 0.9.2 and Celeborn 0.5.4, both with servers and Spark 3.5.6), and for MapReduce, which did not run, those of
// docs/client_guide/mr_client_guide.md in apache/uniffle and docs/README.md in apache/celeborn.
func services() []service {
	const collector, consumer = "mapreduce.job.map.output.collector.class",
		"mapreduce.job.reduce.shuffle.consumer.plugin.class"
	return []service{{
		name: "Uniffle", prefix: "rss.", servers: "coordinator.quorum", example: "coordinator1:19999,coordinator2:19999",
		managers: []string{
			"org.apache.spark.shuffle.RssShuffleManager", "org.apache.spark.shuffle.DelegationRssShuffleManager",
		},
		mapReduce: []struct{ property, class string }{
			{propertyMasterOptions, "org.apache.hadoop.mapreduce.v2.app.RssMRAppMaster"},
			{collector, "org.apache.hadoop.mapred.RssMapOutputCollector"},
			{consumer, "org.apache.hadoop.mapreduce.task.reduce.RssShuffle"},
		},
	}, {
		name: "Celeborn", prefix: "celeborn.", servers: "master.endpoints", example: "master1:9097,master2:9097",
		managers: []string{
			"org.apache.spark.shuffle.celeborn.SparkShuffleManager", "org.apache.spark.shuffle.celeborn.RssShuffleManager",
		},
		mapReduce: []struct{ property, class string }{
			{propertyMasterOptions, "org.apache.celeborn.mapreduce.v2.app.MRAppMasterWithCeleborn"},
			{collector, "org.apache.hadoop.mapred.CelebornMapOutputCollector"},
			{consumer, "org.apache.hadoop.mapreduce.task.reduce.CelebornShuffleConsumer"},
		},
	}}
}

// client is one kind of client of a shuffle service, with its settings.
type client struct {
	service
	kind     string // spark or mapreduce
	settings map[string]string
}

// get returns the name and the value of a property of the client.
func (c *client) get(property string) (name, value string) {
	name = c.kind + "." + c.prefix + property
	return name, c.settings[name]
}

// sparkClient returns which shuffle service Spark uses; nil: none.
func sparkClient(in *Input) *client {
	for _, s := range services() {
		if slices.Contains(s.managers, in.Spark[propertySparkManager]) {
			return &client{s, "spark", in.Spark}
		}
	}
	return nil
}

// mapReduceClient returns which shuffle service MapReduce uses, by any of the properties that name its classes; nil:
// none.
func mapReduceClient(in *Input) *client {
	for _, s := range services() {
		for _, p := range s.mapReduce {
			if slices.Contains(strings.Fields(in.MapReduce[p.property]), p.class) {
				return &client{s, "mapreduce", in.MapReduce}
			}
		}
	}
	return nil
}

// shuffle checks how Spark and MapReduce use shuffle servers.
func shuffle(in *Input, to *findings) {
	if c := sparkClient(in); c != nil {
		c.replicas(to)
		c.addresses(to)
		c.spark(to)
	}
	if c := mapReduceClient(in); c != nil {
		c.replicas(to)
		c.addresses(to)
		c.storage(to)
		c.classes(to)
	}
}

// replicas checks what a job loses with a server. All of it was seen with Spark, with servers killed while one of eight
// reduce tasks had ended.
func (c *client) replicas(to *findings) {
	if c.name == "Uniffle" {
		c.quorum(to)
		return
	}
	name, value := c.get("client.push.replicate.enabled")
	if value == "true" {
		return
	}
	f := Finding{
		Code: ShuffleOneReplica, Severity: Error, Property: name, Value: value,
		What: "Shuffle data is on one server of Celeborn only.",
		Why:  "A server that is killed fails the jobs whose data it had.",
		Fix: Fix{name, "true", "It takes three servers: two for the replicas, and one that can drain. Each byte takes " +
			"twice the memory, disks and network."},
	}
	// The second name is that of clients before 0.6, and later ones take it too (CelebornConf.scala).
	for _, rerun := range []string{"client.spark.stageRerun.enabled", "client.spark.fetch.throwsFetchFailure"} {
		if _, value := c.get(rerun); value == "true" && c.kind == "spark" {
			f.Code, f.Severity = ShuffleRecomputes, Warning
			f.Why = "A server that is killed takes its data along, and all tasks that wrote a part of it run again."
			to.add(f)
			return
		}
	}
	if c.kind == "spark" {
		f.Fix.Do += " With spark.celeborn.client.spark.stageRerun.enabled, which is the default of clients since 0.6, " +
			"tasks run again instead."
	}
	to.add(f)
}

// quorum checks the replicas of Uniffle. The rule is that of RssUtils.checkQuorumSetting, which throws an exception.
func (c *client) quorum(to *findings) {
	number := func(property string) (name, value string, n int) {
		name, value = c.get(property)
		n, err := strconv.Atoi(cmp.Or(value, "1"))
		if err != nil {
			n = 0
		}
		return name, cmp.Or(value, "1"), n
	}
	name, replicas, all := number("data.replica")
	_, written, write := number("data.replica.write")
	_, read, least := number("data.replica.read")
	fix := Fix{name, "3", fmt.Sprintf("Set %[1]s.write and %[1]s.read to 2. "+
		"It takes four servers: three for the replicas, and one that can drain.", name)}
	switch {
	case all < 1 || write > all || least > all || write+least <= all:
		to.add(Finding{
			Code: ShuffleQuorum, Severity: Error, Property: name, Value: c.settings[name],
			What: fmt.Sprintf("Of %s replicas of shuffle data, %s must be written and %s read.", replicas, written, read),
			Why: "Applications end at their start: neither of the last two may exceed the first, and together they must " +
				"exceed it.",
			Fix: fix,
		})
	case all == 1:
		why := "A server that is killed fails the jobs whose data it had."
		if c.kind == "spark" {
			why += " More attempts of tasks and spark.rss.resubmit.stage do not save them."
		}
		to.add(Finding{
			Code: ShuffleOneReplica, Severity: Error, Property: name, Value: c.settings[name],
			What: "Shuffle data is on one server of Uniffle only.", Why: why, Fix: fix,
		})
	case write == all, least == all:
		// ShuffleWriteClientImpl in apache/uniffle (3d688c9): the task fails if a block is not on so many of its servers,
		// or if not so many answer which blocks there are. No other server takes the place of one that is missing.
		var needs []string
		if write == all {
			needs = append(needs, "write to it")
		}
		if least == all {
			needs = append(needs, "read from it")
		}
		to.add(Finding{
			Code: ShuffleNoSpare, Severity: Warning, Property: name, Value: c.settings[name],
			What: fmt.Sprintf("Of %s replicas of shuffle data, %s must be written and %s read.", replicas, written, read),
			Why:  "No server can be missed: one that is killed fails the jobs that " + strings.Join(needs, " or ") + " then.",
			Fix:  fix,
		})
	}
}

// addresses checks whether clients know where the service is.
func (c *client) addresses(to *findings) {
	name, value := c.get(c.servers)
	environment := c.settings[propertyMasterEnvironment]
	if value != "" || c.name == "Celeborn" && strings.Contains(environment, "CELEBORN_MASTER_ENDPOINTS=") {
		return
	}
	to.add(Finding{
		Code: ShuffleServersUnknown, Severity: Error, Property: name,
		What: "Clients of " + c.name + " do not know where it is.",
		Why:  "Their jobs fail.",
		Fix:  Fix{Property: name, Value: c.example},
	})
}

// storage checks whether MapReduce knows where servers of Uniffle keep data: without that, each map fails
// (RssMapOutputCollector.init throws «storage type mustn't be empty»). Masters may get it from the coordinators.
func (c *client) storage(to *findings) {
	name, value := c.get(storageType)
	if c.name != "Uniffle" || value != "" {
		return
	}
	to.add(Finding{
		Code: ShuffleStorageUnknown, Severity: Warning, Property: name,
		What: "Clients of Uniffle do not know where its servers keep data.",
		Why:  "Each map fails, unless coordinators tell clients (rss.coordinator.dynamicClientConf.enabled).",
		Fix:  Fix{Property: name, Value: memoryLocalFile},
	})
}

// spark checks what else the clients need from Spark.
func (c *client) spark(to *findings) {
	// Both clients' documents ask for it, because the servers reorder data. Both ran with it.
	if value := c.settings[propertySparkSerializer]; value != kryo {
		to.add(Finding{
			Code: ShuffleSerializer, Severity: Warning, Property: propertySparkSerializer, Value: value,
			What: "Spark's serializer does not suit " + c.name + ".",
			Why: "The servers change the order of data, which is possible with data of Kryo, not with that of Java's " +
				"serializer.",
			Fix: Fix{Property: propertySparkSerializer, Value: kryo},
		})
	}
	if c.name != "Celeborn" {
		return // Uniffle's client switches the local reader off since 0.8
	}
	// docs/deploy.md in apache/celeborn.
	if value := c.settings[propertySparkLocal]; value != "false" && c.settings[propertySparkAdaptive] != "false" {
		to.add(Finding{
			Code: ShuffleLocalReader, Severity: Note, Property: propertySparkLocal, Value: value,
			What: "Spark may plan to read shuffle data where it was written.",
			Why:  "Data on shuffle servers is nowhere local, and such plans read it more slowly.",
			Fix:  Fix{Property: propertySparkLocal, Value: "false"},
		})
	}
	const data = "org.apache.spark.shuffle.celeborn.CelebornShuffleDataIO"
	if value := c.settings[propertySparkData]; value != data && c.settings[propertySparkAllocation] == "true" {
		to.add(Finding{
			Code: ShuffleAllocation, Severity: Note, Property: propertySparkData, Value: value,
			What: "Spark does not know that its shuffle data outlives executors.",
			Why:  "Dynamic allocation acts as if executors had the data, and may keep idle ones.",
			Fix:  Fix{propertySparkData, data, "It is for Spark 3.5 and later."},
		})
	}
}

// classes checks whether MapReduce uses a service with all of its parts. Masters tell maps and reduces where the
// service is, maps write and reduces read there.
func (c *client) classes(to *findings) {
	for _, p := range c.mapReduce {
		value := c.settings[p.property]
		if slices.Contains(strings.Fields(value), p.class) {
			continue
		}
		fix := Fix{Property: p.property, Value: p.class}
		if p.property == propertyMasterOptions {
			fix.Value = strings.TrimSpace(value + " " + p.class)
		}
		to.add(Finding{
			Code: ShuffleIncomplete, Severity: Error, Property: p.property, Value: value,
			What: "MapReduce uses " + c.name + " in part only.",
			Why:  "Masters, maps and reduces must all use it. Otherwise jobs fail.",
			Fix:  fix,
		})
	}
}

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
