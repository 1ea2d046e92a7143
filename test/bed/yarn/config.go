package yarn

import (
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Ports of the daemons, each on its own loopback address. They are Hadoop's defaults, except where that would be a port
// chosen by chance.
const (
	rmWebPort   = 8088
	rmAdminPort = 8033
	nmPort      = 45454
	nmWebPort   = 8042
	zkPort      = 2181
)

// Label is the node label that the queues know. A test has to add it to the cluster.
const Label = "elastic"

// Queues. Both reach the whole default partition and the whole partition of [Label].
const (
	DefaultQueue = "default"
	LabelQueue   = "batch" // its applications go to Label if their client leaves the expression out
)

// Layout says where a cluster's daemons are, and where they have their files.
type Layout struct {
	Conf    string   // directory of the configuration
	Lib     string   // directory of Hadoop's jars
	Tmp     string   // directory for temporary files
	State   string   // directory for what the ResourceManager must not forget
	Staging string   // directory for what jobs' clients give to their containers; all nodes see the same
	Exclude string   // file of the hosts to decommission
	RMs     []string // host names of the ResourceManager, or of two that share a ZooKeeper
	ZK      string   // host:port of that
}

type properties map[string]string

// file returns the properties in Hadoop's XML format.
func (p properties) file() string {
	var b strings.Builder
	b.WriteString("<configuration>\n")
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "  <property><name>%s</name><value>", name)
		_ = xml.EscapeText(&b, []byte(p[name]))
		b.WriteString("</value></property>\n")
	}
	b.WriteString("</configuration>\n")
	return b.String()
}

// definitions returns the properties as options of a Hadoop command.
func (p properties) definitions() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		all = append(all, "-D"+name+"="+p[name])
	}
	return all
}

// configure writes the configuration that daemons, jobs and clients share.
func (b *Bed) configure() error {
	if err := os.MkdirAll(b.layout.Tmp, 0o755); err != nil {
		return err
	}
	core, yarn := properties{}, maps.Clone(b.site)
	if b.secure {
		core, yarn = b.secureCore(), b.secureYARN()
		maps.Copy(yarn, b.site)
	}
	files := b.layout.files(core, yarn)
	files["exclude.xml"] = ExcludeFile()
	if b.secure {
		files["ssl-server.xml"] = b.sslServer("rm1").file()
		files["secret"] = "signs cookies of the test bed"
	}
	for name, content := range files {
		path := filepath.Join(b.layout.Conf, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns the configuration that daemons, jobs and clients share, by name of the file. core and yarn are further
// properties of core-site.xml and yarn-site.xml.
func (l Layout) files(core, yarn properties) map[string]string {
	site, common := l.yarnSite(), properties{
		"fs.defaultFS":                      "file:///",
		"hadoop.tmp.dir":                    l.Tmp,
		"ipc.client.connect.retry.interval": "200",
	}
	maps.Copy(common, core)
	maps.Copy(site, yarn)
	return map[string]string{
		"core-site.xml":          common.file(),
		"yarn-site.xml":          site.file(),
		"mapred-site.xml":        l.mapredSite().file(),
		"capacity-scheduler.xml": capacityScheduler().file(),
		"log4j.properties": "log4j.rootLogger=INFO,out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n" +
			"log4j.appender.out.target=System.err\nlog4j.appender.out.layout=org.apache.log4j.PatternLayout\n" +
			"log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n\n",
	}
}

func (l Layout) classpath(separator string) string {
	return l.Conf + separator + filepath.Join(l.Lib, "*")
}

// store returns the URL of a directory of the ResourceManager's state.
func (l Layout) store(name string) string { return "file://" + filepath.Join(l.State, name) }

func (l Layout) yarnSite() properties {
	site := properties{
		"yarn.resourcemanager.recovery.enabled":                            "true",
		"yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "2000",
		"yarn.resourcemanager.nodes.exclude-path":                          l.Exclude,
		"yarn.resourcemanager.nodemanagers.heartbeat-interval-ms":          "500",
		"yarn.resourcemanager.connect.retry-interval.ms":                   "1000",
		// A master that stops waits for its nodes that are gone; 3 minutes each by default.
		"yarn.client.nodemanager-connect.max-wait-ms": "5000",
		// The default of 10 seconds would leave one attempt.
		"yarn.client.nodemanager-connect.retry-interval-ms": "1000",
		"yarn.resourcemanager.am.max-attempts":              "3",
		"yarn.nm.liveness-monitor.expiry-interval-ms":       "15000",
		// A master that is allocated when the ResourceManager is killed may never start; 10 minutes by default.
		"yarn.am.liveness-monitor.expiry-interval-ms": "60000",
		"yarn.node-labels.enabled":                    "true",
		"yarn.node-attribute.fs-store.root-dir":       l.store("attributes"),
		"yarn.node-labels.fs-store.root-dir":          l.store("labels"),
		"yarn.scheduler.minimum-allocation-mb":        strconv.Itoa(MinMemory),
		"yarn.application.classpath":                  l.classpath(","),
		"yarn.nodemanager.aux-services":               "mapreduce_shuffle",
		"yarn.nodemanager.recovery.enabled":           "true",
		"yarn.nodemanager.vmem-check-enabled":         "false",
		"yarn.nodemanager.disk-health-checker.enable": "false",
		// Disks are looked at once all the same. One that is 90 % full, by default, is as bad as a broken one.
		"yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
		"yarn.nodemanager.env-whitelist":                                                "JAVA_HOME,HADOOP_CONF_DIR,PATH",
		"yarn.nodemanager.container-localizer.java.opts":                                JavaOptions + " -Xmx128m",
		"yarn.resourcemanager.decommissioning-nodes-watcher.poll-interval-secs":         "1",
	}
	if len(l.RMs) == 1 {
		site["yarn.resourcemanager.hostname"] = l.RMs[0]
		site["yarn.resourcemanager.store.class"] =
			"org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
		site["yarn.resourcemanager.fs.state-store.uri"] = l.store("state")
		return site
	}
	site["yarn.resourcemanager.ha.enabled"] = "true"
	site["yarn.resourcemanager.cluster-id"] = "bed"
	site["yarn.resourcemanager.ha.rm-ids"] = "rm1,rm2"
	site["yarn.resourcemanager.hostname.rm1"] = l.RMs[0]
	site["yarn.resourcemanager.hostname.rm2"] = l.RMs[1]
	site["yarn.resourcemanager.store.class"] =
		"org.apache.hadoop.yarn.server.resourcemanager.recovery.ZKRMStateStore"
	site["hadoop.zk.address"] = l.ZK               // for the store of state
	site["yarn.resourcemanager.zk-address"] = l.ZK // for the election
	site["yarn.resourcemanager.ha.automatic-failover.zk-timeout-ms"] = "4000"
	site["hadoop.zk.timeout-ms"] = "4000"
	return site
}

func (l Layout) mapredSite() properties {
	const small = JavaOptions + " -Xmx"
	return properties{
		"mapreduce.map.speculative":          "false", // it would kill maps
		"mapreduce.reduce.speculative":       "false",
		"mapreduce.framework.name":           "yarn",
		"mapreduce.application.classpath":    l.classpath(","),
		"yarn.app.mapreduce.am.staging-dir":  l.Staging,
		"yarn.app.mapreduce.am.resource.mb":  "512",
		"yarn.app.mapreduce.am.command-opts": small + "256m",
		"mapreduce.map.memory.mb":            "256",
		"mapreduce.map.java.opts":            small + "128m",
		"mapreduce.reduce.memory.mb":         "256",
		"mapreduce.reduce.java.opts":         small + "128m",
		// A reduce looks for lost output of maps for minutes by default. When it gives up sooner, it needs more attempts
		// until the master has started the maps again: with the usual 4, a sort was seen to fail.
		"mapreduce.reduce.maxattempts":                    "10",
		"mapreduce.reduce.shuffle.fetch.retry.timeout-ms": "2000",
		"mapreduce.reduce.shuffle.retry-delay.max.ms":     "1000",
		"mapreduce.reduce.shuffle.connect.timeout":        "2000",
		"mapreduce.task.io.sort.mb":                       "16", // the default does not fit into the heap
		"mapreduce.job.reduce.slowstart.completedmaps":    "1.0",
	}
}

func capacityScheduler() properties {
	const calculator = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
	const prefix = "yarn.scheduler.capacity."
	const root = prefix + "root."
	p := properties{
		// The default calculator ignores vcores: then fewer vcores on a node would change nothing.
		prefix + "resource-calculator":                         calculator,
		prefix + "maximum-am-resource-percent":                 "1.0",
		root + "queues":                                        DefaultQueue + "," + LabelQueue,
		root + "accessible-node-labels":                        "*",
		root + "accessible-node-labels." + Label + ".capacity": "100",
		root + LabelQueue + ".default-node-label-expression":   Label,
	}
	for _, queue := range []string{DefaultQueue, LabelQueue} {
		p[root+queue+".capacity"] = "50"
		p[root+queue+".maximum-capacity"] = "100"
		p[root+queue+".user-limit-factor"] = "10"
		p[root+queue+".accessible-node-labels"] = Label
		p[root+queue+".accessible-node-labels."+Label+".capacity"] = "50"
		p[root+queue+".accessible-node-labels."+Label+".maximum-capacity"] = "100"
	}
	return p
}

// Configure changes settings of yarn-site.xml, and takes back earlier changes. They count for daemons that start later.
func (b *Bed) Configure(changes map[string]string) error {
	site := b.layout.yarnSite()
	maps.Copy(site, b.site)
	maps.Copy(site, changes)
	if err := os.WriteFile(filepath.Join(b.layout.Conf, "yarn-site.xml"), []byte(site.file()), 0o644); err != nil {
		return fmt.Errorf("changing settings of YARN: %w", err)
	}
	return nil
}

// nodeSite are the properties of a NodeManager that differ from those of others.
type nodeSite struct {
	host, bind         string
	local, logs, state string // directories
	memory, vcores     string // MiB and number that it offers
	shufflePort        string
}

func (n nodeSite) properties() properties {
	return properties{
		"yarn.nodemanager.hostname":            n.host,
		"yarn.nodemanager.bind-host":           n.bind,
		"yarn.nodemanager.address":             n.host + ":" + strconv.Itoa(nmPort),
		"yarn.nodemanager.localizer.address":   n.host + ":8040",
		"yarn.nodemanager.webapp.address":      n.host + ":" + strconv.Itoa(nmWebPort),
		"mapreduce.shuffle.port":               n.shufflePort,
		"yarn.nodemanager.local-dirs":          n.local,
		"yarn.nodemanager.log-dirs":            n.logs,
		"yarn.nodemanager.recovery.dir":        n.state,
		"yarn.nodemanager.resource.memory-mb":  n.memory,
		"yarn.nodemanager.resource.cpu-vcores": n.vcores,
	}
}

// Exclude tells the ResourceManager, from its next refresh of nodes on, which hosts are to be decommissioned; none if
// there is no host.
func (b *Bed) Exclude(hosts ...string) error {
	if err := os.WriteFile(b.layout.Exclude, []byte(ExcludeFile(hosts...)), 0o644); err != nil {
		return fmt.Errorf("writing the list of hosts to decommission: %w", err)
	}
	return nil
}

// ExcludeFile returns the file of these hosts to decommission.
func ExcludeFile(hosts ...string) string {
	var file strings.Builder
	file.WriteString("<hosts>\n")
	for _, host := range hosts {
		fmt.Fprintf(&file, "  <host><name>%s</name></host>\n", host)
	}
	file.WriteString("</hosts>\n")
	return file.String()
}
