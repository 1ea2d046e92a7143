package yarncheck

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Properties of the yarn-site.xml of workers.
const (
	propertyLogs     = "yarn.log-aggregation-enable"
	propertyLogDir   = "yarn.nodemanager.remote-app-log-dir"
	propertyLogRoll  = "yarn.nodemanager.log-aggregation.roll-monitoring-interval-seconds"
	propertyServices = "yarn.nodemanager.aux-services"
	propertyExecutor = "yarn.nodemanager.container-executor.class"

	propertySparkPort     = "spark.shuffle.service.port"
	propertySparkService  = "spark.shuffle.service.name"
	propertyMapReducePort = "mapreduce.shuffle.port"
)

const linuxExecutor = "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor"

// Auxiliary services, and the class that Hadoop gives to the first by default.
const (
	mapReduceShuffle = "mapreduce_shuffle"
	sparkShuffleName = "spark_shuffle"
	sparkServiceEnds = "YarnShuffleService"
)

// ofWorkers returns a property of workers. Without their yarn-site.xml, the ResourceManager's is taken for it, and
// without a value, Hadoop's default.
func (in *Input) ofWorkers(property, byDefault string) string {
	if in.Workers != nil {
		return cmp.Or(in.Workers[property], byDefault)
	}
	return cmp.Or(in.Settings[property], byDefault)
}

// logs checks whether the logs of containers outlive their worker. A NodeManager that stops uploads what it has, for 30
// s at most (LogAggregationService.stopAggregators). One that is killed, or whose pod's time is over, does not.
func logs(in *Input, to *findings) {
	if in.Workers == nil {
		if to.unknown = in.missing([]Fact{FactSettings}); to.unknown != "" {
			return
		}
	}
	const pod = "Containers' logs are on the disk of the worker's pod, and go with it."
	if value := in.ofWorkers(propertyLogs, "false"); value != "true" {
		to.add(Finding{
			Code: LogsNotAggregated, Severity: Warning, Property: propertyLogs, Value: value,
			What: "Log aggregation is off.", Why: pod,
			Fix: Fix{propertyLogs, "true", "For workers, by yarn.properties of the pool. " + logTarget},
		})
		return
	}
	dir, files := in.ofWorkers(propertyLogDir, "/tmp/logs"), in.Settings["fs.defaultFS"]
	scheme, _, absolute := strings.Cut(dir, "://")
	if absolute && scheme == "file" || !absolute && strings.HasPrefix(files, "file:") {
		to.add(Finding{
			Code: LogsOnOwnDisk, Severity: Warning, Property: propertyLogDir, Value: dir,
			What: "Logs are aggregated into a directory of the NodeManager's own machine.", Why: pod,
			Fix: Fix{propertyLogDir, "hdfs:///tmp/logs", logTarget},
		})
	}
	if every, err := strconv.ParseInt(in.ofWorkers(propertyLogRoll, "-1"), 10, 64); err != nil || every <= 0 {
		to.add(Finding{
			Code: LogsOnlyAtEnd, Severity: Warning, Property: propertyLogRoll, Value: in.ofWorkers(propertyLogRoll, "-1"),
			What: "Logs are uploaded when their application ends, or its NodeManager stops in order.",
			Why: "At the end of its time, a worker that still runs containers is stopped within a second. Their logs are " +
				"lost, and so are those of a worker that is killed.",
			Fix: Fix{propertyLogRoll, "3600", "Less than 3600 needs " + propertyLogRoll + ".min too."},
		})
	}
}

const logTarget = "Let " + propertyLogDir + " be in a file system that all nodes share."

// auxServices checks the services inside NodeManagers that keep the output of tasks.
func auxServices(in *Input, to *findings) {
	if in.Workers == nil {
		return
	}
	names := words(in.ofWorkers(propertyServices, mapReduceShuffle)) // the pool's default
	serviceClasses(in, names, to)
	servicePorts(in, names, to)
	missingServices(in, names, to)
}

// serviceName is what a NodeManager accepts (AuxServices.validateAuxServiceName).
var serviceName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// classOf returns the property with the class of a service, and its value.
func (in *Input) classOf(service string) (property, class string) {
	property, byDefault := propertyServices+"."+service+".class", ""
	if service == mapReduceShuffle {
		byDefault = "org.apache.hadoop.mapred.ShuffleHandler"
	}
	return property, cmp.Or(in.Workers[property], byDefault)
}

func serviceClasses(in *Input, names []string, to *findings) {
	const why = "NodeManagers of the pool end at their start."
	for _, name := range names {
		property, class := in.classOf(name)
		switch {
		case !serviceName.MatchString(name):
			to.add(Finding{
				Code: AuxServiceInvalid, Severity: Error, Property: propertyServices, Value: strings.Join(names, ","),
				What: fmt.Sprintf("%q is no name of an auxiliary service.", name), Why: why,
				Fix: Fix{Do: "Write letters, digits and underscores. MapReduce's is " + mapReduceShuffle + "."},
			})
		case class == "":
			f := Finding{
				Code: AuxServiceInvalid, Severity: Error, Property: property,
				What: fmt.Sprintf("The auxiliary service %s has no class.", name), Why: why,
				Fix: Fix{property, "<class>", "Its jar must be in the image of the workers. Or take the name out of " +
					propertyServices + "."},
			}
			if name == sparkShuffleName {
				f.Fix.Value = "org.apache.spark.network.yarn.YarnShuffleService"
			}
			to.add(f)
		}
	}
}

// servicePorts finds services that listen on a port of another one, or of the NodeManager. The pool sets that one's.
func servicePorts(in *Input, names []string, to *findings) {
	by := map[string]string{"45454": "The NodeManager", "8040": "The NodeManager", "8042": "The NodeManager",
		"8044": "The NodeManager"}
	for _, name := range names {
		_, class := in.classOf(name)
		property, port := "", ""
		switch {
		case name == mapReduceShuffle:
			property = propertyMapReducePort
			port = cmp.Or(in.Workers[property], in.MapReduce[property], "13562")
		case strings.HasSuffix(class, sparkServiceEnds):
			property = propertySparkPort
			port = cmp.Or(in.Workers[property], "7337")
		}
		if port == "" || port == "0" { // not known, or one that is free
			continue
		}
		if other, taken := by[port]; taken {
			f := Finding{
				Code: AuxServicePort, Severity: Error, Property: property, Value: port,
				What: fmt.Sprintf("%s and the auxiliary service %s listen on the same port.", other, name),
				Why:  "NodeManagers of the pool end at their start.",
				Fix:  Fix{Property: property, Value: "<port>", Do: "Choose a port that nobody uses."},
			}
			if strings.HasSuffix(class, sparkServiceEnds) {
				f.Fix.Do += " Two services of Spark read it from files of their own: spark-shuffle-site.xml in the class path " +
					"of each."
			}
			to.add(f)
		}
		by[port] = "The auxiliary service " + name
	}
}

// missingServices finds services that jobs ask NodeManagers for. One that a worker lacks fails the start of each
// container there (ContainerManagerImpl: InvalidAuxServiceException).
func missingServices(in *Input, names []string, to *findings) {
	wanted := map[string]string{}
	if in.Spark[propertySparkShuffle] == "true" {
		wanted[cmp.Or(in.Spark[propertySparkService], sparkShuffleName)] = "Spark (" + propertySparkShuffle + ")"
	}
	if in.MapReduce != nil {
		wanted[mapReduceShuffle] = "MapReduce"
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if slices.Contains(names, name) {
			continue
		}
		to.add(Finding{
			Code: AuxServiceMissing, Severity: Error, Property: propertyServices, Value: strings.Join(names, ","),
			What: fmt.Sprintf("%s asks NodeManagers for the service %s, which workers do not have.", wanted[name], name),
			Why:  "Its containers do not start on workers.",
			Fix: Fix{propertyServices, strings.Join(append(slices.Clone(names), name), ","),
				"With its class, and its jar in the image of the workers."},
		})
	}
}

// executor checks whether containers of different users are kept apart.
func executor(in *Input, to *findings) {
	value := in.Workers[propertyExecutor]
	if in.Workers == nil || in.Settings["hadoop.security.authentication"] != "kerberos" || value == linuxExecutor {
		return
	}
	to.add(Finding{
		Code: ContainersShareUser, Severity: Error, Property: propertyExecutor, Value: value,
		What: "The cluster is secure, and containers of all users run as the user of the NodeManager.",
		Why:  "Each user's containers can read the files and the tokens of all others on the worker.",
		Fix:  Fix{propertyExecutor, linuxExecutor, "docs/yarn-nodes.md says what the image and the pod need for it."},
	})
}
