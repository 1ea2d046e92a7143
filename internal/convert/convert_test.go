package convert_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/convert"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/test/golden"
)

type converter func([]convert.Document, convert.Options) (*convert.Result, error)

func read(t *testing.T, files ...string) []convert.Document {
	t.Helper()
	var all []convert.Document
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		documents, err := convert.Read(filepath.Base(file), content)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, documents...)
	}
	return all
}

// TestConvert checks whole outputs, and that each policy in them can be used.
func TestConvert(t *testing.T) {
	for name, test := range map[string]struct {
		do      converter
		files   []string
		options convert.Options
	}{
		"koordinator": {convert.Koordinator, []string{"koordinator/config.yaml", "koordinator/profiles.yaml"},
			convert.Options{}},
		"nodeslos":     {convert.Koordinator, []string{"koordinator/nodeslos.yaml"}, convert.Options{}},
		"crane":        {convert.Crane, []string{"crane/objects.yaml"}, convert.Options{}},
		"crane-canary": {convert.Crane, []string{"crane/objects.yaml"}, convert.Options{NodeLabel: "canary=true"}},
		"cpu-share-syncer": {convert.CPUShareSyncer, []string{"cpu-share-syncer/objects.yaml"},
			convert.Options{NodeLabel: "example.com/canary=yes"}},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := test.do(read(t, test.files...), test.options)
			if err != nil {
				t.Fatal(err)
			}
			got, err := result.YAML("Converted.")
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, "testdata/"+name+".yaml", got)
			documents, err := convert.Read("output", []byte(got))
			if err != nil || len(documents) != len(result.Policies) {
				t.Errorf("%d policies are %d documents: %v", len(result.Policies), len(documents), err)
			}
			all, err := result.Documents()
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range all {
				if _, err := kube.ParsePolicy([]byte(document)); err != nil {
					t.Errorf("%v\n%s", err, document)
				}
			}
		})
	}
}

// TestErrors checks that bad input names the document, the key, the value and what to write.
func TestErrors(t *testing.T) {
	config := func(section, content string) string {
		return "kind: ConfigMap\nmetadata: {name: slo-controller-config}\ndata:\n  " + section + ": |\n    " +
			strings.ReplaceAll(content, "\n", "\n    ") + "\n"
	}
	for _, test := range []struct {
		do    converter
		input string
		want  string
	}{
		{convert.Koordinator, config("colocation-config", "{\"enable\": true,\n\"degradeTimeMinutes\": 15,}"),
			`in, document 1, ConfigMap slo-controller-config: colocation-config: invalid character '}' looking for ` +
				`beginning of object key string in line 2, at "\"degradeTimeMinutes\": 15,}"; ` +
				`write JSON: no comma after the last item`},
		{convert.Koordinator, config("colocation-config", `{"cpuReclaimThresholdPercent": "sixty"}`),
			`in, document 1, ConfigMap slo-controller-config: colocation-config cpuReclaimThresholdPercent: "sixty" cannot be ` +
				`used: write a number, at least 0`},
		{convert.Koordinator, config("resource-threshold-config",
			`{"clusterStrategy": {}, "nodeStrategies": [{"nodeSelector": {"matchLabels": "x"}}]}`),
			`resource-threshold-config nodeStrategies[0].nodeSelector: {"matchLabels":"x"} cannot be used: write a selector`},
		{convert.Koordinator, config("resource-threshold-config", `{"clusterStrategy": {"cpuSuppressPolicy": "idle"}}`),
			`resource-threshold-config cpuSuppressPolicy: "idle" cannot be used: write cpuset or cfsQuota`},
		{convert.Koordinator, "kind: ClusterColocationProfile\nmetadata: {name: p}\nspec: {probability: 130%}",
			`ClusterColocationProfile p: ClusterColocationProfile probability: "130%" cannot be used: write a percentage`},
		{convert.Koordinator, "kind: Node\nmetadata: {name: n1, labels: {node.koordinator.sh/cpu-reclaim-ratio: much}}",
			`Node n1: label node.koordinator.sh/cpu-reclaim-ratio: "much" cannot be used: write a ratio, such as 0.65`},
		{convert.Koordinator, "[1]", `in, document 1: "[1]" is no object; write an object of Kubernetes`},
		{convert.Koordinator, "a: b: c", `in, document 1: `},
		{convert.Koordinator, "a: b", `in, document 1: no kind; write an object of Kubernetes`},
		{convert.Crane, "kind: NodeQOS\nmetadata: {name: q}\nspec: {rules: [{strategy: Later}]}",
			`in, document 1, NodeQOS q: NodeQOS rules[].strategy: "Later" cannot be used: write None or Preview`},
		{convert.Crane, "kind: NodeQOS\nmetadata: {name: q}\nspec: {rules: [{metricRule: " +
			"{name: cpu_total_utilization, value: much}}]}",
			`NodeQOS q: NodeQOS rules[].metricRule.value: "much" cannot be used: write a quantity, such as 75`},
		{convert.Crane, "kind: PodQOS\nmetadata: {name: q}\nspec: {resourceQOS: {cpuQOS: {cpuSet: {cpuSet: all}}}}",
			`"all" cannot be used: write none or exclusive or share`},
		{convert.Crane, "kind: DaemonSet\nmetadata: {name: crane-agent}\nspec: {template: {spec: {containers: " +
			"[{args: [--node-resource-reserved=cpu=40]}]}}}",
			`crane-agent --node-resource-reserved: "cpu=40" cannot be used: write cpu or memory and a percentage`},
		{convert.Crane, "kind: NodeQOSEnsurancePolicy\nmetadata: {name: old}", `cannot be used: write NodeQOS or PodQOS`},
		{convert.CPUShareSyncer, "kind: Pod\nmetadata: {name: p, annotations: {iqiyi.com/cpu-share: lots}}",
			`in, document 1, Pod p: annotation iqiyi.com/cpu-share: "lots" cannot be used: write an integer from 2 to 262144`},
		{convert.CPUShareSyncer, "kind: KubeletConfiguration\ncpuCFSQuota: maybe",
			`KubeletConfiguration cpuCFSQuota: "maybe" cannot be used: write true or false`},
	} {
		documents, err := convert.Read("in", []byte(test.input))
		if err == nil {
			_, err = test.do(documents, convert.Options{})
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\ngot  %v\nwant %s", test.input, err, test.want)
		}
	}
	_, err := convert.CPUShareSyncer(nil, convert.Options{NodeLabel: "canary"})
	if err == nil || !strings.Contains(err.Error(), `node label "canary": write KEY=VALUE`) {
		t.Errorf("got %v", err)
	}
}

// TestCraneLimits checks that limits of the CPU that batch uses stay limits: by default, batch may use the whole
// machine while no online pod waits. What is reserved is not offered, and may be used.
func TestCraneLimits(t *testing.T) {
	const reserved = "\n---\nkind: DaemonSet\nmetadata: {name: crane-agent}\nspec: {template: {spec: {containers: " +
		"[{args: [--node-resource-reserved=cpu=40%]}]}}}"
	rule := func(name, value string) string {
		return fmt.Sprintf("{rules: [{metricRule: {name: %s, value: %s}}]}", name, value)
	}
	for _, test := range []struct{ spec, more, suppression, waterline string }{
		{"{elasticCpuLimit: {elasticNodeCpuLimit: {percent: 80}}}", "", "Arithmetic", "80%"},
		{"{elasticCpuLimit: {elasticNodeCpuLimit: {percent: 80}}}", reserved, "Arithmetic", "60%"},
		{"{elasticCpuLimit: {elasticNodeCpuLimit: {percent: 100}}}", "", "OnHarm", ""},
		{rule("cpu_total_utilization", "75"), "", "Arithmetic", "75%"},
		{rule("cpu_total_utilization", "67500m"), "", "Arithmetic", "67.5%"},
		{rule("memory_total_utilization", "75"), "", "OnHarm", ""},
		{rule("memory_total_usage", "60Gi"), "", "OnHarm", ""},
		{"{}", reserved, "OnHarm", "60%"},
	} {
		result, err := convert.Crane(parse(t, "kind: NodeQOS\nmetadata: {name: q}\nspec: "+test.spec+test.more),
			convert.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cpu := result.Policies[0].Spec.CPU
		if string(cpu.Suppression) != test.suppression || cpu.Waterline != test.waterline {
			t.Errorf("%s%s: suppression %q and waterline %q", test.spec, test.more, cpu.Suppression, cpu.Waterline)
		}
	}
}

// TestCanary checks that what keeps the other system off the canary's nodes is no part of the canary's policies: they
// are made of the same configuration, while both run.
func TestCanary(t *testing.T) {
	options := convert.Options{NodeLabel: "canary=yes"}
	result, err := convert.Koordinator(parse(t, `kind: ConfigMap
data:
  colocation-config: |
    {"enable": true, "nodeConfigs": [
      {"name": "off", "nodeSelector": {"matchLabels": {"canary": "yes"}}, "enable": false},
      {"name": "big", "nodeSelector": {"matchLabels": {"size": "big"}}, "cpuReclaimThresholdPercent": 80}]}`), options)
	if err != nil || len(result.Policies) != 2 || len(result.Notes) != 1 {
		t.Fatalf("%+v, %v", result, err)
	}
	for i, want := range []string{"80%", "60%"} {
		s := result.Policies[i].Spec
		if s.CPU == nil || s.CPU.Waterline != want || s.NodeSelector.MatchLabels["canary"] != "yes" {
			t.Errorf("%+v, want %s", s, want)
		}
	}
	result, err = convert.CPUShareSyncer(parse(t, `kind: DaemonSet
metadata: {name: cpu-share-syncer}
spec: {template: {spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: canary, operator: NotIn, values: ["yes"]}, {key: gpu, operator: DoesNotExist}]}]}}}}}}`),
		options)
	if err != nil {
		t.Fatal(err)
	}
	nodes := result.Policies[0].Spec.NodeSelector
	if len(nodes.MatchExpressions) != 1 || nodes.MatchExpressions[0].Key != "gpu" || nodes.MatchLabels["canary"] != "yes" {
		t.Errorf("%+v", nodes)
	}
}

func parse(t *testing.T, text string) []convert.Document {
	t.Helper()
	documents, err := convert.Read("text", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// TestFixtures checks that the fixtures have every key of the tables, so that each is converted at least once.
func TestFixtures(t *testing.T) {
	for page, test := range map[string]struct {
		keys  []convert.Key
		files string
	}{
		"koordinator":      {convert.KoordinatorKeys(), "koordinator/*.yaml"},
		"crane":            {convert.CraneKeys(), "crane/*.yaml"},
		"cpu-share-syncer": {convert.CPUShareSyncerKeys(), "cpu-share-syncer/*.yaml"},
	} {
		files, _ := filepath.Glob("testdata/" + test.files)
		var all strings.Builder
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(content)
		}
		for _, key := range test.keys {
			for _, name := range key.Names {
				names := regexp.MustCompile(`[.\[\]]+`).Split(name, -1)
				last := names[len(names)-1]
				if strings.Contains(name, "/") {
					last = name
				}
				if last != "*" && !regexp.MustCompile(`\b`+regexp.QuoteMeta(last)+`\b`).MatchString(all.String()) {
					t.Errorf("no fixture of %s has %s %s", page, key.Where, name)
				}
			}
		}
	}
}

// TestFirstSelectorCounts checks, with random configurations, that the policy that governs a node says what Koordinator
// would apply there: in each section, the first strategy that selects the node, over that of the cluster.
func TestFirstSelectorCounts(t *testing.T) {
	for seed := range uint64(300) {
		c := randomConfig(seed)
		result, err := convert.Koordinator(c.documents(t), convert.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range c.nodes() {
			policy := governing(t, result, node)
			cpu, minBatch := c.expect(node)
			if policy.Spec.CPU.Waterline != cpu || policy.Spec.CPU.MinBatch != minBatch {
				t.Fatalf("seed %d, node %v: policy %s has %s and %s, want %s and %s", seed, node, policy.Name,
					policy.Spec.CPU.Waterline, policy.Spec.CPU.MinBatch, cpu, minBatch)
			}
		}
	}
}

// governing returns the policy of the highest priority that selects a node.
func governing(t *testing.T, r *convert.Result, node map[string]string) *convert.Policy {
	t.Helper()
	var best *convert.Policy
	for i := range r.Policies {
		p := &r.Policies[i]
		selects := p.Spec.NodeSelector == nil
		if !selects {
			policy, err := kube.Policy(&v1alpha1.ColocationPolicy{Spec: v1alpha1.ColocationPolicySpec{
				NodeSelector: p.Spec.NodeSelector,
			}})
			if err != nil {
				t.Fatal(err)
			}
			selects = policy.Nodes.Matches(node)
		}
		if selects && (best == nil || p.Priority > best.Priority) {
			best = p
		}
	}
	if best == nil {
		t.Fatalf("no policy governs %v", node)
	}
	return best
}

// tableOf writes keys as a table of Markdown.
func tableOf(keys []convert.Key) string {
	var b strings.Builder
	b.WriteString("| where | key | cover | field of a policy | what differs, or what to use |\n|---|---|---|---|---|\n")
	for _, k := range keys {
		to := ""
		if k.To != "" {
			to = "`" + strings.ReplaceAll(k.To, ", ", "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", k.Where, strings.Join(k.Names, "`, `"), k.Cover, to, k.Note)
	}
	return b.String()
}

// TestPages checks that the pages about moving have the tables of keys as they are.
func TestPages(t *testing.T) {
	for page, keys := range map[string][]convert.Key{
		"migrate-koordinator": convert.KoordinatorKeys(), "migrate-crane": convert.CraneKeys(),
		"migrate-cpu-share-syncer": convert.CPUShareSyncerKeys(),
	} {
		file := "../../docs/" + page + ".md"
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(content), "\n")
		isHead := func(line string) bool { return strings.HasPrefix(line, "| where | key |") }
		from := slices.IndexFunc(lines, isHead)
		if from < 0 {
			t.Fatalf("%s has no table of keys", page)
		}
		to := from
		for to < len(lines) && strings.HasPrefix(lines[to], "|") {
			to++
		}
		golden.Compare(t, file, strings.Join(lines[:from], "")+tableOf(keys)+strings.Join(lines[to:], ""))
		totals := totalsOf(keys)
		if !strings.Contains(strings.Join(strings.Fields(string(content)), " "), totals) {
			t.Errorf("%s does not say %q", page, totals)
		}
		comparison, err := os.ReadFile("../../docs/comparison.md")
		if err != nil {
			t.Fatal(err)
		}
		if row := fmt.Sprintf("](%s.md#keys) | %s |", page, counts(keys, " | ")); !strings.Contains(string(comparison), row) {
			t.Errorf("comparison.md does not say %q", row)
		}
	}
}

// totalsOf says how many keys of a table are covered, and how.
func totalsOf(keys []convert.Key) string {
	n := strings.Split(counts(keys, " "), " ")
	return fmt.Sprintf("Of %s keys, %s have an equal, %s a nearest, and %s none.", n[0], n[1], n[2], n[3])
}

// counts returns the number of keys, and of those with each cover.
func counts(keys []convert.Key, between string) string {
	of, all := map[convert.Cover]int{}, 0
	for _, k := range keys {
		of[k.Cover] += len(k.Names)
		all += len(k.Names)
	}
	var text []string
	for _, n := range []int{all, of[convert.Equal], of[convert.Nearest], of[convert.None]} {
		text = append(text, strconv.Itoa(n))
	}
	return strings.Join(text, between)
}
