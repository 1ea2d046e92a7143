package kube

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestDocumentedPolicies checks that every policy in the documents can be used as it stands there, and that the last
// example of docs/policy.md has every field.
func TestDocumentedPolicies(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	var last string
	for _, file := range []string{"README.md", "docs/policy.md"} {
		content, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range block.FindAllStringSubmatch(string(content), -1) {
			for _, document := range strings.Split(found[1], "\n---\n") {
				if !strings.Contains(document, "kind: ColocationPolicy") {
					continue
				}
				last = document
				if _, err := ParsePolicy([]byte(document)); err != nil {
					t.Errorf("%s: %v\n%s", file, err, document)
				}
			}
		}
	}
	for _, name := range fieldNames(reflect.TypeFor[v1alpha1.ColocationPolicySpec]()) {
		if !regexp.MustCompile(`\b` + name + `:`).MatchString(last) {
			t.Errorf("the last example of docs/policy.md lacks %s", name)
		}
	}
}

// fieldNames returns the names of all fields of a type and of the types in it, as YAML has them.
func fieldNames(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[v1alpha1.LabelSelector]() {
		return nil
	}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		names = append(names, fieldNames(t.Field(i).Type)...)
	}
	return names
}

// TestDocumentedPools checks that every worker pool in the documents can be used as it stands there.
func TestDocumentedPools(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, file := range []string{"README.md", "docs/yarn.md", "docs/yarn-nodes.md", "docs/yarn-path.md", "docs/olap.md"} {
		content, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, m := range block.FindAllStringSubmatch(string(content), -1) {
			if !strings.Contains(m[1], "kind: WorkerPool") {
				continue
			}
			found++
			if _, _, err := ParseWorkerPool([]byte(m[1])); err != nil {
				t.Errorf("%s: %v\n%s", file, err, m[1])
			}
		}
		if found == 0 {
			t.Errorf("%s has no worker pool", file)
		}
	}
}

// TestReadEngine checks that a pool has one engine, and that workers of one size have no other.
func TestReadEngine(t *testing.T) {
	const ceiling = `size: {ceiling: {cpu: 8, memory: 8Gi}}`
	for _, test := range []struct {
		spec  string
		grace time.Duration
		word  string // of the error
	}{
		{`trino: {}`, 30 * time.Second, ""},
		{`impala: {gracePeriod: 1m}`, time.Minute, ""},
		{`yarn: {}, ` + ceiling, 0, ""},
		{``, 0, "exactly one"},
		{`trino: {}, impala: {}`, 0, "exactly one"},
		{`yarn: {}, impala: {}`, 0, "exactly one"},
		{`trino: {}, ` + ceiling, 0, "spec.size.ceiling"},
		{`trino: {gracePeriod: 0s}`, 0, "spec.trino.gracePeriod"},
		{`trino: {gracePeriod: soon}`, 0, `invalid duration "soon"`},
		{`trino: {}, drain: {timeout: 59s}`, 0, "write 1m0s or more"},
		{`trino: {}, drain: {timeout: 60s}`, 30 * time.Second, ""},
	} {
		_, read, err := ParseWorkerPool(poolDocument(test.spec))
		switch {
		case test.word == "" && (err != nil || read.GracePeriod != test.grace):
			t.Errorf("%s: %s, %v; want %s", test.spec, read.GracePeriod, err, test.grace)
		case test.word != "" && (err == nil || !strings.Contains(err.Error(), test.word)):
			t.Errorf("%s: want an error with %q, have %v", test.spec, test.word, err)
		}
	}
}
