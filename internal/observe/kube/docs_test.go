package kube

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

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
