package yarncheck

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/golden"
)

// good returns a cluster in which nothing is wrong.
func good() *Input {
	size := Size{51200, 40}
	queue := func(path, label string) model.Queue {
		q := model.Queue{Path: path, Labels: []string{"elastic"}, DefaultLabel: label}
		for _, label := range []string{"", "elastic"} {
			q.Partitions = append(q.Partitions, model.Partition{
				Label: label, Capacity: 50, MaxCapacity: 100, Min: size, MasterPercent: 10, MasterLimit: Size{5120, 4},
			})
		}
		return q
	}
	host := func(name, address string) Host {
		return Host{Name: name, Addresses: []string{address}, Back: []string{name + "."}}
	}
	return &Input{
		Label: "elastic", Floor: Size{1024, 1}, User: "yarn",
		Managers: []Manager{{"http://rm1:8088", "ACTIVE", "3.5.0", ""}, {"http://rm2:8088", "STANDBY", "3.5.0", ""}},
		Settings: map[string]string{
			"yarn.node-labels.enabled":                              "true",
			"yarn.node-labels.configuration-type":                   "centralized",
			"yarn.node-labels.fs-store.root-dir":                    "hdfs:///yarn/node-labels",
			"yarn.scheduler.minimum-allocation-mb":                  "1024",
			"yarn.scheduler.minimum-allocation-vcores":              "1",
			"yarn.resourcemanager.ha.enabled":                       "true",
			"yarn.resourcemanager.ha.rm-ids":                        "rm1,rm2",
			"yarn.resourcemanager.webapp.address.rm1":               "rm1:8088",
			"yarn.resourcemanager.webapp.address.rm2":               "rm2:8088",
			"yarn.resourcemanager.recovery.enabled":                 "true",
			"yarn.nm.liveness-monitor.expiry-interval-ms":           "60000",
			"yarn.resourcemanager.nodes.exclude-path":               "/etc/hadoop/exclude.xml",
			"yarn.admin.acl":                                        "hdfs,yarn hadoop",
			"hadoop.security.authentication":                        "kerberos",
			"hadoop.http.authentication.type":                       "kerberos",
			propertyMasters:                                         " ",
			propertyLogs:                                            "true",
			propertyLogDir:                                          "hdfs:///logs",
			propertyLogRoll:                                         "3600",
			"yarn.resourcemanager.work-preserving-recovery.enabled": "true",
		},
		Scheduler: Scheduler{"capacityScheduler", model.Queue{Path: "root", Queues: []model.Queue{
			queue("root.default", ""), queue("root.batch", "elastic"),
		}}},
		Labels: []model.NodeLabel{{Name: "elastic", Exclusive: true}},
		Nodes:  []Node{{"n1", "", true, size}, {"n2", "", true, size}, {"w1", "elastic", true, Size{1024, 1}}},
		Hosts:  []Host{host("n1", "10.0.0.1"), host("n2", "10.0.0.2"), host("w1", "10.0.1.1")},
	}
}

// goodSpark returns the properties of Spark with which nothing is wrong.
func goodSpark() map[string]string {
	return map[string]string{
		"spark.decommission.enabled":         "true",
		"spark.storage.decommission.enabled": "true",
		propertySparkFallback:                "hdfs:///spark-fallback/",
		propertySparkExecutor:                "elastic",
	}
}

// TestCases runs the golden cases. Each begins with a cluster in which nothing is wrong.
//
//	pool label=L floor=MIB,VCORES user=U
//	rm ADDRESS STATE                              a state of - means that it does not answer
//	set PROPERTY [VALUE]                          blank stands for one blank
//	scheduler KIND
//	calculator default                            limits of masters as the DefaultResourceCalculator computes them
//	queue PATH labels=A,B default=L               change a queue, or add one without capacity
//	queue PATH LABEL CAPACITY MAX MASTERS         in percent; a capacity of - takes the partition away, a label of - is
//	                                              the default partition
//	queue PATH amounts, queue PATH stopped
//	label NAME exclusive, label NAME shared, label NAME gone
//	node HOST LABEL, node HOST LABEL lost         a label of - means the default partition
//	host NAME ADDRESS BACK                        - means that there is none
//	spark PROPERTY VALUE                          change a property of spark-defaults.conf; a value of - takes it away
//	worker [PROPERTY VALUE]                       set a property of the workers' yarn-site.xml
//	mapred PROPERTY VALUE                         set a property of mapred-site.xml
//	missing FACT WHY
//	notes                                         show notes in full
func TestCases(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		in, notes := good(), false
		do := func(line string) error {
			if line == "notes" {
				notes = true
				return nil
			}
			return command(in, strings.Fields(line))
		}
		return golden.Blocks(t, content, do, func() string {
			r := Check(in)
			all := text(&r, notes)
			in, notes = good(), false
			return all
		})
	}, "testdata/*.case")
}

func text(r *Report, notes bool) string {
	var b strings.Builder
	for _, s := range r.Partitions {
		fmt.Fprintf(&b, "partition %q: %d nodes, %d MiB, %d vcores\n", s.Label, s.Nodes, s.Total.MemoryMiB, s.Total.VCores)
	}
	for _, f := range r.Findings {
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Severity, f.Code, strings.Join(f.Where, " "))))
		if f.Severity == Note && !notes {
			continue
		}
		if f.Property+f.Value != "" {
			fmt.Fprintf(&b, "    found  %s = %q\n", f.Property, f.Value)
		}
		fmt.Fprintf(&b, "    what   %s\n    why    %s\n", f.What, f.Why)
		if f.Fix.Property != "" {
			fmt.Fprintf(&b, "    set    %s = %q\n", f.Fix.Property, f.Fix.Value)
		}
		if f.Fix.Do != "" {
			fmt.Fprintf(&b, "    do     %s\n", f.Fix.Do)
		}
	}
	for _, u := range r.Unchecked {
		fmt.Fprintf(&b, "not checked: %v: %s\n", u.Codes, u.Why)
	}
	errors, warnings := r.Bad()
	fmt.Fprintf(&b, "%d errors, %d warnings\n", errors, warnings)
	return b.String()
}

func command(in *Input, words []string) error {
	arg := func(i int) string {
		if i < len(words) && words[i] != "-" {
			return words[i]
		}
		return ""
	}
	switch words[0] {
	case "pool":
		return pool(in, words[1:])
	case "rm":
		in.Managers = slices.DeleteFunc(in.Managers, func(m Manager) bool { return m.Address == arg(1) })
		in.Managers = append(in.Managers, Manager{Address: arg(1), State: arg(2)})
	case "set":
		in.Settings[arg(1)] = strings.Replace(arg(2), "blank", " ", 1)
	case "spark":
		if in.Spark == nil {
			in.Spark = goodSpark()
		}
		if in.Spark[arg(1)] = arg(2); arg(2) == "" {
			delete(in.Spark, arg(1))
		}
	case "worker":
		if in.Workers == nil {
			in.Workers = map[string]string{propertyExecutor: linuxExecutor, propertyLogs: "true", propertyLogRoll: "3600"}
		}
		if arg(1) != "" {
			in.Workers[arg(1)] = arg(2)
		}
	case "mapred":
		if in.MapReduce == nil {
			in.MapReduce = map[string]string{}
		}
		in.MapReduce[arg(1)] = strings.Join(words[2:], " ")
	case "scheduler":
		in.Scheduler.Kind = arg(1)
	case "calculator":
		for _, q := range in.Scheduler.Root.Queues {
			for i := range q.Partitions {
				q.Partitions[i].MasterLimit.VCores = 1
			}
		}
	case "queue":
		return changeQueue(in, words)
	case "label":
		in.Labels = slices.DeleteFunc(in.Labels, func(l model.NodeLabel) bool { return l.Name == arg(1) })
		if arg(2) != "gone" {
			in.Labels = append(in.Labels, model.NodeLabel{Name: arg(1), Exclusive: arg(2) == "exclusive"})
		}
	case "node":
		in.Nodes = slices.DeleteFunc(in.Nodes, func(n Node) bool { return n.Host == arg(1) })
		in.Nodes = append(in.Nodes, Node{arg(1), arg(2), arg(3) != "lost", Size{51200, 40}})
	case "host":
		h := Host{Name: arg(1)}
		if arg(2) != "" {
			h.Addresses = []string{arg(2)}
		}
		if arg(3) != "" {
			h.Back = []string{arg(3)}
		}
		in.Hosts = append(in.Hosts, h)
	case "missing":
		if in.Missing == nil {
			in.Missing = map[Fact]string{}
		}
		in.Missing[Fact(arg(1))] = strings.Join(words[2:], " ")
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

func pool(in *Input, words []string) (err error) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "label":
			in.Label = value
		case "user":
			in.User = value
		case "floor":
			_, err = fmt.Sscanf(value, "%d,%d", &in.Floor.MemoryMiB, &in.Floor.VCores)
		}
	}
	return err
}

func changeQueue(in *Input, words []string) error {
	all := &in.Scheduler.Root.Queues
	i := slices.IndexFunc(*all, func(q model.Queue) bool { return q.Path == words[1] })
	if i < 0 {
		i, *all = len(*all), append(*all, model.Queue{Path: words[1]})
	}
	q := &(*all)[i]
	if len(words) == 6 {
		label := strings.Replace(words[2], "-", "", 1)
		q.Partitions = slices.DeleteFunc(q.Partitions, func(p model.Partition) bool { return p.Label == label })
		if words[3] == "-" {
			return nil
		}
		p := model.Partition{Label: label, Min: Size{51200, 40}, MasterLimit: Size{5120, 4}}
		for n, into := range []*float64{&p.Capacity, &p.MaxCapacity, &p.MasterPercent} {
			var err error
			if *into, err = strconv.ParseFloat(words[3+n], 64); err != nil {
				return err
			}
		}
		q.Partitions = append(q.Partitions, p)
		return nil
	}
	for _, word := range words[2:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "labels":
			q.Labels = strings.Split(value, ",")
		case "default":
			q.DefaultLabel = value
		case "amounts":
			q.ByAmount = true
		case "stopped":
			q.State = "STOPPED"
		default:
			return fmt.Errorf("unknown word %q", word)
		}
	}
	return nil
}

// TestCodes checks that each code belongs to a check, is shown by a golden case, and has a section in the manual, which
// has no other.
func TestCodes(t *testing.T) {
	read := func(path string) string {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	set := func(pattern, text string) []string {
		found := map[string]bool{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found[m[1]] = true
		}
		return slices.Sorted(maps.Keys(found))
	}
	want := set(`Code = "(\w+)"`, read("codes.go"))
	var checked []string
	for _, code := range Codes() {
		checked = append(checked, string(code))
	}
	slices.Sort(checked)
	for what, got := range map[string][]string{
		"the checks":       checked,
		"the golden cases": set(`(?m)^(?:error|warning|note) (\w+)`, read("testdata/findings.case")),
		"the manual":       set("(?m)^### `(\\w+)`", read("../../../../docs/yarn-check.md")),
	} {
		if !slices.Equal(got, want) {
			t.Errorf("%s have %q, the code has %q", what, got, want)
		}
	}
}

// TestNothingKnown checks that no check of the cluster passes when nothing could be read.
func TestNothingKnown(t *testing.T) {
	in := &Input{Label: "elastic", Missing: map[Fact]string{}}
	for _, f := range []Fact{
		FactManagers, FactSettings, FactScheduler, FactQueues, FactLabels, FactNodes, FactHosts,
	} {
		in.Missing[f] = "away"
	}
	ofCluster := slices.DeleteFunc(Codes(), func(c Code) bool {
		return slices.ContainsFunc([]string{"Spark", "Shuffle", "AuxService"}, func(of string) bool {
			return strings.HasPrefix(string(c), of)
		})
	})
	r := Check(in)
	if len(r.Findings) != 0 || len(r.Unchecked) != 1 || !slices.Equal(r.Unchecked[0].Codes, ofCluster) {
		t.Errorf("%+v", r)
	}
}

// TestClients checks that the settings for clients of shuffle servers pass the checks of shuffle servers.
func TestClients(t *testing.T) {
	for name, clients := range map[string]func([]string) (spark, mapReduce map[string]string){
		"Uniffle": UniffleClients, "Celeborn": CelebornClients,
	} {
		in := &Input{}
		in.Spark, in.MapReduce = clients([]string{"a.example:1", "b.example:1"})
		for _, c := range []*client{sparkClient(in), mapReduceClient(in)} {
			if c == nil || c.name != name {
				t.Fatalf("%s: a client of %+v", name, c)
			}
			if property, value := c.get(c.servers); value != "a.example:1,b.example:1" {
				t.Errorf("%s: %s is %q", name, property, value)
			}
		}
		var to findings
		shuffle(in, &to)
		sparkShuffle(in, &to)
		if len(to.all) > 0 {
			t.Errorf("%s: %+v", name, to.all)
		}
	}
}
