// Package hadoop says what the pods of NodeManagers are made of, for the controller of worker pools.
package hadoop

import (
	"encoding/xml"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/yarncheck"
	"github.com/waterline-io/waterline/internal/yarn"
)

// Paths and ports in a worker's pod.
const (
	ConfDir = "/etc/hadoop/waterline"
	// baseDir holds the configuration of the pool's ConfigMap. Our yarn-site.xml includes that one.
	baseDir = "base"
	WorkDir = "/waterline"
	Port    = 45454 // of the NodeManager's id: the same for all pods of a worker, so that its id is too
	// hostVariable is the environment variable with the worker's host name, to which yarn-site.xml refers.
	hostVariable = "WATERLINE_HOST"
	// MemoryVariable and VCoresVariable are those with the size with which the NodeManager of a pod starts. The file is
	// the same for all pods of a pool, and its size may change while they run; what a pod requests does not.
	MemoryVariable = "WATERLINE_MEMORY_MIB"
	VCoresVariable = "WATERLINE_VCORES"
)

// Configuration returns the volume with the worker's Hadoop configuration: the pool's own files, and those of the
// user's ConfigMap beside them, except yarn-site.xml, which ours includes. given and own are names of ConfigMaps; given
// may be "".
func Configuration(given, own string) *corev1.ProjectedVolumeSource {
	from := func(name string, items ...corev1.KeyToPath) corev1.VolumeProjection {
		return corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items,
		}}
	}
	volume := &corev1.ProjectedVolumeSource{}
	if given != "" {
		// Of two sources with the same path, the later one counts.
		volume.Sources = append(volume.Sources, from(given),
			from(given, corev1.KeyToPath{Key: "yarn-site.xml", Path: baseDir + "/yarn-site.xml"}))
		volume.Sources[1].ConfigMap.Optional = new(true)
	}
	volume.Sources = append(volume.Sources, from(own))
	return volume
}

// Site returns the yarn-site.xml of workers. A later property goes before an earlier one: first what follows from
// the pool if nobody says otherwise, then the pool's ConfigMap, then the pool's properties, and at last what the
// controller relies on.
func Site(spec *v1alpha1.YARNSpec) string {
	var b strings.Builder
	b.WriteString("<?xml version=\"1.0\"?>\n<configuration xmlns:xi=\"http://www.w3.org/2001/XInclude\">\n")
	properties := func(all map[string]string) { writeProperties(&b, all) }
	properties(resourceManagers(spec.ResourceManagers))
	properties(map[string]string{
		"yarn.nodemanager.aux-services":       "mapreduce_shuffle",
		"yarn.nodemanager.vmem-check-enabled": "false", // Java reserves far more than it uses
		"yarn.nodemanager.env-whitelist":      "JAVA_HOME,HADOOP_COMMON_HOME,HADOOP_HDFS_HOME,HADOOP_CONF_DIR,PATH,LANG,TZ",
	})
	if spec.ConfigMap != nil {
		fmt.Fprintf(&b, "  <xi:include href=\"%s/%s/yarn-site.xml\"><xi:fallback/></xi:include>\n", ConfDir, baseDir)
	}
	properties(map[string]string{
		"yarn.nodemanager.local-dirs": WorkDir + "/local",
		"yarn.nodemanager.log-dirs":   WorkDir + "/logs",
	})
	properties(spec.Properties)
	if kind := string(spec.ContainerExecutor); kind != "" { // otherwise the pool's ConfigMap and properties say it
		properties(map[string]string{"yarn.nodemanager.container-executor.class": "org.apache.hadoop.yarn.server." +
			"nodemanager." + kind + "ContainerExecutor"})
	}
	host := "${env." + hostVariable + "}"
	properties(map[string]string{
		"yarn.nodemanager.hostname":                              host,
		"yarn.nodemanager.bind-host":                             "0.0.0.0",
		"yarn.nodemanager.address":                               host + ":" + strconv.Itoa(Port),
		"yarn.nodemanager.localizer.address":                     host + ":8040",
		"yarn.nodemanager.webapp.address":                        host + ":" + strconv.Itoa(yarn.WebPort),
		"yarn.nodemanager.webapp.https.address":                  host + ":" + strconv.Itoa(yarn.SecureWebPort),
		"yarn.nodemanager.resource.memory-mb":                    "${env." + MemoryVariable + "}",
		"yarn.nodemanager.resource.cpu-vcores":                   "${env." + VCoresVariable + "}",
		"yarn.nodemanager.recovery.enabled":                      "false", // containers end with the NodeManager's container
		"yarn.nodemanager.resource.detect-hardware-capabilities": "false",
	})
	b.WriteString("</configuration>\n")
	return b.String()
}

// writeProperties writes properties as Hadoop's configuration files have them.
func writeProperties(b *strings.Builder, all map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.WriteString("  <property><name>")
		_ = xml.EscapeText(b, []byte(name))
		b.WriteString("</name><value>")
		_ = xml.EscapeText(b, []byte(all[name]))
		b.WriteString("</value></property>\n")
	}
}

// resourceManagers returns the properties that follow from the addresses of ResourceManagers.
func resourceManagers(addresses []string) map[string]string {
	all := map[string]string{}
	var ids []string
	for i, address := range addresses {
		u, err := url.Parse(address)
		if err != nil {
			continue // refused when the pool was read
		}
		if len(addresses) == 1 {
			return map[string]string{"yarn.resourcemanager.hostname": u.Hostname()}
		}
		id := "rm" + strconv.Itoa(i+1)
		ids = append(ids, id)
		all["yarn.resourcemanager.hostname."+id] = u.Hostname()
	}
	all["yarn.resourcemanager.ha.enabled"], all["yarn.resourcemanager.ha.rm-ids"] = "true", strings.Join(ids, ",")
	return all
}

// Files with the settings for clients of shuffle servers. In a NodeManager's directory, nothing reads files of these
// names.
const (
	sparkFile     = "spark-shuffle.conf"
	mapReduceFile = "mapred-shuffle.xml"
)

// ShuffleFiles returns the files with the settings for clients of a remote shuffle service, by name.
func ShuffleFiles(s *v1alpha1.ShuffleSpec) map[string]string {
	var spark, mapReduce map[string]string
	switch {
	case s == nil:
		return map[string]string{}
	case s.Uniffle != nil:
		spark, mapReduce = yarncheck.UniffleClients(s.Uniffle.Coordinators)
	case s.Celeborn != nil:
		spark, mapReduce = yarncheck.CelebornClients(s.Celeborn.Masters)
	}
	var conf, site strings.Builder
	for _, name := range slices.Sorted(maps.Keys(spark)) {
		fmt.Fprintf(&conf, "%s %s\n", name, spark[name])
	}
	site.WriteString("<?xml version=\"1.0\"?>\n<configuration>\n")
	writeProperties(&site, mapReduce)
	site.WriteString("</configuration>\n")
	return map[string]string{sparkFile: conf.String(), mapReduceFile: site.String()}
}
