package reference

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/observe/kube"
)

// crd is what the API server makes of a custom resource definition of the chart.
type crd struct {
	schema *schema.Structural
	shape  validation.SchemaValidator
	rules  *cel.Validator
}

// readCRD reads a definition as the API server does when it is applied, and fails where that refuses it.
func readCRD(t *testing.T, file string) crd {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var external apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(content, &external); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.Default(&external)
	external.Status.StoredVersions = []string{"v1alpha1"} // as its strategy sets it before validation
	var internal apiextensions.CustomResourceDefinition
	if err := scheme.Convert(&external, &internal, nil); err != nil {
		t.Fatal(err)
	}
	if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), &internal); len(errs) > 0 {
		t.Fatalf("%s: %v", file, errs.ToAggregate())
	}
	properties := internal.Spec.Validation // where all versions have the same
	if properties == nil {
		properties = internal.Spec.Versions[0].Schema
	}
	s, err := schema.NewStructural(properties.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	shape, _, err := validation.NewSchemaValidator(properties.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return crd{schema: s, shape: shape, rules: cel.NewValidator(s, true, celconfig.PerCallLimit)}
}

// refuses returns why the API server refuses an object, strict about unknown fields as kubectl asks it to be.
func (c *crd) refuses(t *testing.T, object map[string]any) field.ErrorList {
	t.Helper()
	object = runtime.DeepCopyJSON(object)
	var errs field.ErrorList
	for _, path := range pruning.PruneWithOptions(object, c.schema, true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Forbidden(field.NewPath(path), "unknown field"))
	}
	defaulting.Default(object, c.schema)
	errs = append(errs, validation.ValidateCustomResource(nil, object, c.shape)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.schema, object)...)
	broken, _ := c.rules.Validate(t.Context(), nil, c.schema, object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, broken...)
}

// TestCRDs checks that the API server takes the definitions, whose rules must not cost too much.
func TestCRDs(t *testing.T) {
	files, err := filepath.Glob("../../deploy/chart/crds/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		readCRD(t, file)
	}
}

// choices are what a random policy may say, in the order of the path that each stands at. A path ends in [] where a
// list has up to two of what stands below it.
var choices = map[string][]any{
	"mode":            {"Observe", "Enforce", "Disabled", "enforce"},
	"priority":        {int64(0), int64(-7), int64(2147483647), int64(2147483648)},
	"nodeSelector":    selectors,
	"rollout.nodes":   percentages,
	"windows[].name":  {"a", "b", "night-1", "Night", "-"},
	"windows[].start": {"00:00", "08:09", "23:59", "22:00", "24:00", "7:00", "07:60"},
	"windows[].end":   {"00:00", "09:00", "06:30", "9", "10:00:00"},
	"windows[].timeZone": {
		"UTC", "Asia/Shanghai", "America/Argentina/Buenos_Aires", "Etc/GMT+8", "Local", "", "Europe/Nowhere", "../UTC",
		"+08:00", "/etc/passwd",
	},
	"windows[].drainBefore": {
		"15m", "0s", "1h30m", "23h59m", "8h59m59s", "24h", "99999h", "-1m", "1d", "15", "1.5h", "1000000s",
	},
	"cpu":                                    {map[string]any{}},
	"cpu.waterline":                          percentages,
	"cpu.method":                             {"Predicted", "Realtime", "Static", "Static", "Static", "static"},
	"cpu.ratio":                              percentages,
	"cpu.mid":                                percentages,
	"cpu.suppression":                        {"OnHarm", "Arithmetic", "None", "Quota"},
	"cpu.batchClass":                         {"Weight", "Idle", "GroupIdentity", "idle"},
	"memory":                                 {map[string]any{}},
	"memory.waterline":                       percentages,
	"memory.method":                          {"Predicted", "Realtime", "Static", "Static", "Static"},
	"memory.ratio":                           percentages,
	"memory.mid":                             percentages,
	"memory.suppression":                     {"Arithmetic"},
	"protect.burst":                          {true, false},
	"protect.memory":                         {true, false},
	"protect.interference":                   {true, false},
	"protect.eviction":                       {map[string]any{}},
	"protect.eviction.perNodePerHour":        {int64(0), int64(600), int64(601), int64(-1)},
	"weight.scope":                           {"Node", "Class", "pod"},
	"weight.quota":                           {"Kubelet", "Unlimited", "none"},
	"weight.max":                             shares,
	"weight.namespaces[].selector":           selectors,
	"weight.namespaces[].max":                shares,
	"weight.overrideGuaranteed":              {true, false},
	"podDefaults[].selector":                 selectors,
	"podDefaults[].namespaceSelector":        selectors,
	"batchPods[].selector":                   selectors,
	"batchPods[].namespaceSelector":          selectors,
	"batchPods[].owners":                     percentages,
	"batchPods[].tier":                       {"Batch", "Mid", "batch"},
	"cpu.minBatch":                           percentages,
	"podDefaults[].cpuShare":                 shares,
	"podDefaults[].cpuManager":               {"None", "Share", "Exclusive", "alone"},
	"podDefaults[].cpuPlacement":             {"Packed", "Spread", "PhysicalCores", "pcpu-only"},
	"podDefaults[].waterline.io/cpu-manager": {"share"},
}

var (
	percentages = []any{
		"65%", "62.5%", "1%", "100%", "100.0%", "0%", "0.9%", "300%", "1000%", "1000.0%", "999.9%", "1000.1%", "100.1%", "65",
		"065%", "6.25%", "-1%", "NaN%", "1e1%", "65 %", "",
	}
	shares    = []any{int64(2), int64(1024), int64(262144), int64(1), int64(262145), int64(-5)}
	selectors = []any{
		map[string]any{},
		map[string]any{"matchLabels": map[string]any{"pool": "web", "example.com/x": ""}},
		map[string]any{"matchLabels": map[string]any{"pool": "a b"}},
		map[string]any{"matchLabels": map[string]any{"a b": "web"}},
		map[string]any{"matchLabels": map[string]any{"a/b/c": "web"}},
		map[string]any{"matchLabels": map[string]any{"-pool": "web"}},
		map[string]any{"matchLabels": map[string]any{strings.Repeat("k", 64): "web"}},
		map[string]any{"matchLabels": map[string]any{"k": strings.Repeat("v", 64)}},
		requirement("pool", "In", "web", "db"),
		requirement("pool", "NotIn", ""),
		requirement("pool", "In"),
		requirement("pool", "Exists"),
		requirement("pool", "DoesNotExist", "web"),
		requirement("pool", "Is", "web"),
		requirement("a b", "Exists"),
		requirement("pool", "In", "a b"),
		requirement("", "Exists"),
	}
)

func requirement(key, operator string, values ...any) map[string]any {
	e := map[string]any{"key": key, "operator": operator}
	if values != nil {
		e["values"] = values
	}
	return map[string]any{"matchExpressions": []any{e}}
}

// likely says what stands in most random policies, so that not all of them lack something.
var likely = map[string]bool{
	"windows[].name": true, "windows[].start": true, "windows[].end": true, "windows[].timeZone": true,
	"weight.namespaces[].selector": true, "weight.namespaces[].max": true, "podDefaults[].selector": true,
	"batchPods[].selector": true, "podDefaults[].cpuShare": true,
}

// fields returns the names that stand directly below a path.
func fields(path string) map[string]bool {
	names := map[string]bool{}
	for choice := range choices {
		rest, below := strings.CutPrefix(choice, path)
		if below && rest != "" && rest[0] != '[' {
			name, _, _ := strings.Cut(strings.TrimPrefix(rest, "."), ".")
			if strings.HasPrefix(rest, ".waterline.io") {
				name = rest[1:]
			}
			names[name] = true
		}
	}
	return names
}

// random returns what may stand at a path. Of the values at a path the first are good, and chosen more often.
func random(r *rand.Rand, path string) any {
	object := map[string]any{}
	for name := range fields(path) {
		at := strings.TrimPrefix(path+"."+name, ".")
		if chance := r.IntN(20); chance > 3 && !likely[at] || chance == 19 {
			continue
		}
		key, list := strings.CutSuffix(name, "[]")
		switch values := choices[at]; {
		case list:
			elements := []any{}
			for range r.IntN(3) {
				elements = append(elements, random(r, at))
			}
			object[key] = elements
		case values == nil, at == "cpu", at == "memory":
			object[key] = random(r, at)
		case r.IntN(8) > 0:
			object[key] = values[r.IntN(min(len(values), 2))]
		default:
			object[key] = values[r.IntN(len(values))]
		}
	}
	return object
}

// TestPolicyRules compares what the API server refuses with what the agent refuses, of documents that are the same:
// what passes one must pass the other, or policies stand in the cluster that no agent follows. The defaults that the
// API server fills in are those of the agent, which reads files too.
func TestPolicyRules(t *testing.T) {
	c := readCRD(t, "../../deploy/chart/crds/waterline.io_colocationpolicies.yaml")
	r := rand.New(rand.NewPCG(7, 8))
	const documents = 20_000
	taken := 0
	for range documents {
		object := map[string]any{
			"apiVersion": "waterline.io/v1alpha1", "kind": "ColocationPolicy", "metadata": map[string]any{"name": "p"},
			"spec": random(r, ""),
		}
		document, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		server := c.refuses(t, object)
		policy, agent := kube.ParsePolicy(document)
		if (len(server) > 0) != (agent != nil) && !lenient(object["spec"]) {
			t.Errorf("%s\nthe API server: %v\nthe agent: %v", document, server.ToAggregate(), agent)
		}
		if len(server) > 0 || agent != nil {
			continue
		}
		taken++
		defaulting.Default(object, c.schema)
		if document, err = json.Marshal(object); err != nil {
			t.Fatal(err)
		}
		if defaulted, err := kube.ParsePolicy(document); err != nil || !reflect.DeepEqual(policy, defaulted) {
			t.Fatalf("%s\nis %+v with the defaults of the API server, and %+v without: %v", document, defaulted, policy, err)
		}
	}
	if t.Logf("%d of %d documents were taken", taken, documents); taken < documents/10 || taken > documents*9/10 {
		t.Error("that is no test")
	}
}

// lenient reports whether something in a document is empty text, which the agent takes for nothing.
func lenient(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			if lenient(v) {
				return true
			}
		}
	case []any:
		for _, v := range value {
			if lenient(v) {
				return true
			}
		}
	}
	return value == ""
}

// TestPolicyMessages checks that the API server says what to write.
func TestPolicyMessages(t *testing.T) {
	c := readCRD(t, "../../deploy/chart/crds/waterline.io_colocationpolicies.yaml")
	window := func(key, value string) string {
		all := map[string]string{"name": "n", "start": "00:00", "end": "09:00", "timeZone": "UTC"}
		all[key] = value
		text, _ := json.Marshal([]any{all})
		return `{"windows":` + string(text) + `}`
	}
	for spec, want := range map[string]string{
		`{"cpu":{"waterline":"65"}}`: `spec.cpu.waterline: Invalid value: "65": write a percentage from 1% to 100%`,
		`{"memory":{"method":"Static"}}`: "spec.memory: Invalid value: write ratio with method Static, and " +
			"only there",
		`{"mode":"all"}`:                    `spec.mode: Unsupported value: "all": supported values: "Observe", "Enforce", "Disabled"`,
		`{"mode":false}`:                    "spec.mode in body must be of type string",
		`{"rollout":{}}`:                    "spec.rollout.nodes: Required value",
		`{"podDefaults":[{"cpuShare":5}]}`:  "spec.podDefaults[0].selector: Required value",
		`{"podDefaults":[{"selector":{}}]}`: "write cpuShare or cpuManager",
		`{"nodeSelector":{"matchLabels":{"a b":""}}}`: "spec.nodeSelector.matchLabels: Invalid value: write names of " +
			"labels, such as pool or example.com/pool",
		window("timeZone", "Europe/Nowhere"): "unknown time zone Europe/Nowhere evaluating rule: write the name " +
			"of a time zone, such as Asia/Shanghai",
		window("drainBefore", "9h"): "drainBefore must be shorter than the window",
	} {
		var object any
		if err := json.Unmarshal([]byte(spec), &object); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(c.refuses(t, map[string]any{
			"apiVersion": "waterline.io/v1alpha1", "kind": "ColocationPolicy", "metadata": map[string]any{"name": "p"},
			"spec": object,
		}).ToAggregate())
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
}
