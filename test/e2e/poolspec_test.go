package e2e_test

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestAPIPoolSpecs applies specs of pools: the API server refuses the bad ones, and says which field is wrong.
func TestAPIPoolSpecs(t *testing.T) {
	makeNamespace(t, "specs", "")
	const rm, label = `resourceManagers: ["http://rm1.example:8088"]`, `label: {name: elastic}`
	const yarn = `yarn: {` + rm + `, ` + label + `}`
	const trino = `trino: {coordinator: "http://t:8080"}`
	const impala = `impala: {coordinator: "http://i:28000", stateStore: s, catalog: c}`
	window := func(more string) string {
		return yarn + `, windows: [{name: night, start: "23:00", end: "07:00", timeZone: Asia/Shanghai` + more + `}]`
	}
	const worker = `{name: worker, image: hadoop}`
	apply := func(name, spec string) (string, error) {
		if !strings.Contains(spec, "template:") {
			spec = `template: {spec: {containers: [` + worker + `]}}, ` + spec
		}
		return withManifest(fmt.Sprintf("{apiVersion: waterline.io/v1alpha1, kind: WorkerPool, metadata: {name: %s, "+
			"namespace: specs}, spec: {%s}}", name, spec), "create", "--dry-run=server", "-o", "json")
	}
	for what, spec := range map[string]string{
		"the smallest": yarn,
		"numbers":      yarn + `, size: {floor: {cpu: 2, memory: 2147483648}, ceiling: {cpu: 4, memory: 4Gi}}`,
		"all of size": `yarn: {` + rm + `, ` + label + `, vcoresPerCPU: "2"}, size: {floor: {cpu: 500m, memory: 1Gi}, ` +
			`step: {cpu: 1, memory: 1Gi}, pause: 1m30s, demand: Follow}`,
		"an executor":       `yarn: {` + rm + `, ` + label + `, containerExecutor: Linux}`,
		"a window":          window(`, drainBefore: 30m`),
		"a window for ever": yarn + `, windows: [{name: a, start: "00:00", end: "00:00", timeZone: UTC}]`,
		"a pair":            `yarn: {resourceManagers: ["https://a:8090", "https://b"], admins: ["a:8033", "b:8033"], ` + label + `}`,
		"host network":      yarn + `, template: {spec: {hostNetwork: true, containers: [` + worker + `]}}`,
		"addresses": yarn + `, replicas: 2, identity: {addresses: [192.0.2.1, 192.0.2.2], ` +
			`addressAnnotations: {a: "{address}"}}`,
		"vcores as a number": `yarn: {` + rm + `, ` + label + `, vcoresPerCPU: 2}`,
		"an exclude file":    `yarn: {` + rm + `, ` + label + `, excludeFile: pool.xml}`,
		"Trino":              trino,
		"all of Trino": `trino: {coordinator: "https://t.example:8443/", environment: test_1, user: a@b.c, ` +
			`authSecret: {name: s}, configMap: {name: c}, catalogs: {name: d}, properties: {a: b}, gracePeriod: 1m30s}, ` +
			`replicas: 3, size: {floor: {cpu: 4, memory: 16Gi}}`,
		"Impala": impala,
		"all of Impala": `impala: {coordinator: "http://i.example:28000", web: "https://i.example:25000", stateStore: s.example, ` +
			`catalog: c.example, user: a, authSecret: {name: s}, configMap: {name: c}, flags: {a: b}, gracePeriod: 30s}`,
	} {
		out, err := apply("good", spec)
		if err != nil {
			t.Errorf("%s: %v: %s", what, err, out)
			continue
		}
		for _, p := range documents[v1alpha1.WorkerPool](t, []byte(out)) {
			if _, err := kube.ReadWorkerPool(&p); err != nil {
				t.Errorf("%s: the manager cannot read it: %v", what, err)
			}
		}
	}
	y := func(fields string) string { return `yarn: {` + fields + `}` }
	for _, bad := range []struct{ what, name, spec, field string }{
		{"nothing", "p", ``, "spec.yarn"},
		{"no label", "p", y(rm), "spec.yarn.label"},
		{"an empty label", "p", y(rm + `, label: {name: ""}`), "spec.yarn.label.name"},
		{"a label with a slash", "p", y(rm + `, label: {name: a/b}`), "spec.yarn.label.name"},
		{"no ResourceManager", "p", y(`resourceManagers: [], ` + label), "spec.yarn.resourceManagers"},
		{"one without a scheme", "p", y(`resourceManagers: ["rm1:8088"], ` + label),
			"spec.yarn.resourceManagers[0]"},
		{"one with a path", "p", y(`resourceManagers: ["http://rm1:8088/ws"], ` + label),
			"spec.yarn.resourceManagers[0]"},
		{"two with one admin", "p", y(`resourceManagers: ["http://a", "http://b"], admins: ["a:8033"], ` + label), "admins"},
		{"the same one twice", "p", y(`resourceManagers: ["http://a", "http://a"], ` + label),
			"spec.yarn.resourceManagers[1]: Duplicate value"},
		{"http and https", "p", y(`resourceManagers: ["http://a", "https://b"], ` + label),
			"resourceManagers must all begin"},
		{"an admin without a port", "p", y(rm + `, admins: [a], ` + label), "spec.yarn.admins[0]"},
		{"a user with a space", "p", y(rm + `, user: "a b", ` + label), "spec.yarn.user"},
		{"an exclude file with a path", "p", y(rm + `, ` + label + `, excludeFile: a/b.xml`), "excludeFile"},
		{"an exclude file above", "p", y(rm + `, ` + label + `, excludeFile: ..`), "excludeFile"},
		{"no vcores", "p", y(rm + `, ` + label + `, vcoresPerCPU: 0`), "spec.yarn.vcoresPerCPU"},
		{"too many", "p", y(rm + `, ` + label + `, vcoresPerCPU: 101`), "spec.yarn.vcoresPerCPU"},
		{"a negative overhead", "p", y(rm + `, ` + label + `, overhead: {cpu: -1, memory: 1Gi}`),
			"spec.yarn.overhead.cpu"},
		{"a ceiling below the floor", "p", yarn + `, size: {ceiling: {cpu: 500m, memory: 4Gi}}`, "ceiling"},
		{"memory below the floor", "p", yarn + `, size: {ceiling: {cpu: 4, memory: 1Gi}}`, "ceiling"},
		{"a floor without vcores", "p", yarn + `, size: {floor: {cpu: 100m, memory: 1Gi}}`, "floor"},
		{"a floor without memory", "p", yarn + `, size: {floor: {cpu: 1, memory: 0}}`, "floor"},
		{"a pause of days", "p", yarn + `, size: {pause: 1d}`, "spec.size.pause"},
		{"another demand", "p", yarn + `, size: {demand: Always}`, "spec.size.demand"},
		{"demand of Trino", "p", trino + `, size: {demand: Follow}`, "size.demand"},
		{"another executor", "p", y(rm + `, ` + label + `, containerExecutor: Docker`), "spec.yarn.containerExecutor"},
		{"a window of a day", "p", yarn + `, size: {follow: {window: 24h}}`, "spec.size.follow.window"},
		{"a grace without a unit", "p", yarn + `, drain: {grace: "60"}`, "spec.drain.grace"},
		{"no grace", "p", yarn + `, drain: {grace: 0s}`, "spec.drain.grace"},
		{"no time to drain", "p", yarn + `, drain: {timeout: 0m}`, "spec.drain.timeout"},
		{"a timeout of words", "p", yarn + `, drain: {timeout: long}`, "spec.drain.timeout"},
		{"a negative number", "p", yarn + `, replicas: -1`, "spec.replicas"},
		{"too many workers", "p", yarn + `, replicas: 2001`, "spec.replicas"},
		{"a window without drainBefore", "p", window(``), "windows"},
		{"a window with a drain of nothing", "p", window(`, drainBefore: 0s`), "windows"},
		{"a drain longer than the window", "p", window(`, drainBefore: 8h`), "spec.windows[0]"},
		{"a window at 24:00", "p", strings.Replace(window(`, drainBefore: 1m`), "07:00", "24:00", 1),
			"spec.windows[0].end"},
		{"an unknown time zone", "p", strings.Replace(window(`, drainBefore: 1m`), "Asia/Shanghai", "Asia/Nowhere", 1),
			"spec.windows[0].timeZone"},
		{"no waves", "p", yarn + `, ramp: {waves: 101}`, "spec.ramp.waves"},
		{"a bad interval", "p", yarn + `, ramp: {interval: soon}`, "spec.ramp.interval"},
		{"host network with replicas", "p", yarn + `, replicas: 2, template: {spec: {hostNetwork: true, ` +
			`containers: [` + worker + `]}}`, "template.spec.hostNetwork"},
		{"no template", "p", yarn + `, template: null`, "spec.template: Required value"},
		{"addresses without replicas", "p", yarn + `, identity: {addresses: [192.0.2.1]}`, "identity.addresses"},
		{"fewer addresses than workers", "p", yarn + `, replicas: 2, identity: {addresses: [192.0.2.1]}`, "identity.addresses"},
		{"a Secret without a name", "p", y(rm + `, authSecret: {}, ` + label), "spec.yarn.authSecret.name"},
		{"a negative time", "p", yarn + `, drain: {grace: -1m}`, "spec.drain.grace"},
		{"a name as an address", "p", yarn + `, replicas: 1, identity: {addresses: [worker]}`, "spec.identity.addresses[0]"},
		{"a long name", strings.Repeat("a", 41), yarn, "metadata.name"},
		{"a name with a dot", "a.b", yarn, "metadata.name"},
		{"a name that begins with a digit", "1a", yarn, "metadata.name"},
		{"another engine", "p", `trino: {}`, "trino"},
		{"an image for a guard that is root", "p", `yarn: {` + rm + `, ` + label + `, containerExecutor: Linux, ` +
			`guard: {image: registry.example/guard:2}}`, "leave guard.image out"},
		{"two engines", "p", trino + `, ` + impala, "exactly one"},
		{"YARN and Trino", "p", yarn + `, ` + trino, "exactly one"},
		{"no coordinator", "p", `trino: {}`, "spec.trino.coordinator"},
		{"a coordinator without a scheme", "p", `trino: {coordinator: "t:8080"}`, "spec.trino.coordinator"},
		{"no statestore", "p", `impala: {coordinator: "http://i", catalog: c}`, "spec.impala.stateStore"},
		{"a user that ends a line", "p", `trino: {coordinator: "http://t", user: "a\nb"}`, "spec.trino.user"},
		{"a user with quotes", "p", `trino: {coordinator: "http://t", user: "a'b"}`, "spec.trino.user"},
		{"an environment that ends a line", "p", `trino: {coordinator: "http://t", environment: "a\nb"}`,
			"spec.trino.environment"},
		{"a ceiling of Trino", "p", trino + `, size: {ceiling: {cpu: 4, memory: 4Gi}}`, "size.ceiling"},
		{"a pause of Trino", "p", trino + `, size: {pause: 1m}`, "size.pause"},
		{"a step of Impala", "p", impala + `, size: {step: {cpu: 2, memory: 2Gi}}`, "size.step"},
		{"a floor without room for Java", "p", trino + `, size: {floor: {cpu: 1, memory: 512Mi}}`, "size.floor"},
		{"no grace period", "p", `trino: {coordinator: "http://t", gracePeriod: 0s}`, "spec.trino.gracePeriod"},
	} {
		out, err := apply(bad.name, bad.spec)
		if err == nil || !strings.Contains(out, bad.field) {
			t.Errorf("%s: want a refusal that names %s, have %v: %.300s", bad.what, bad.field, err, out)
		}
	}
	for _, c := range readTemplates(t) {
		out, err := apply("p", yarn+`, template: `+c.Template)
		switch {
		case c.Where == "" && err != nil:
			t.Errorf("%s: %v: %s", c.Name, err, out)
		case c.Where != "" && !c.ManagerOnly && (err == nil || !strings.Contains(out, cmp.Or(c.Server, c.Where)) ||
			!strings.Contains(out, cmp.Or(c.ServerFix, c.Fix))):
			t.Errorf("%s: want a refusal that names %s and says %q, have %v: %.400s", c.Name, c.Where, c.Fix, err, out)
		}
	}
}

// templateCase is a template of testdata/templates.yaml in internal/observe/kube.
type templateCase struct {
	Name, Template, Where, Fix string
	Server, ServerFix          string
	ManagerOnly                bool
}

func readTemplates(t *testing.T) []templateCase {
	t.Helper()
	content, err := os.ReadFile("../../internal/observe/kube/testdata/templates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []templateCase
	if err := yaml.UnmarshalStrict(content, &all); err != nil || len(all) < 30 {
		t.Fatalf("%d templates: %v", len(all), err)
	}
	return all
}
