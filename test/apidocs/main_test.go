package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestFresh checks that docs/api.md is what the API's source says.
func TestFresh(t *testing.T) {
	want, err := page("../../api/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/api.md is out of date: run make generate")
	}
}

// TestComplete checks that each field of the custom resource definitions stands in the document, with a meaning.
func TestComplete(t *testing.T) {
	text, err := page("../../api/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"colocationpolicies", "nodereports", "workerpools"} {
		crd, err := os.ReadFile("../../deploy/chart/crds/waterline.io_" + kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		// kubectl explain pod has the fields of a pool's template.
		crd = regexp.MustCompile(`(?ms)^ {14}template:$.*?^ {14}(\w)`).ReplaceAll(crd, []byte("              $1"))
		fields := regexp.MustCompile(`(?m)^ {16,}([a-z]\w+):$`).FindAllStringSubmatch(string(crd), -1)
		if len(fields) < 20 {
			t.Fatalf("%s: found %d fields", kind, len(fields))
		}
		for _, f := range fields {
			// Schemas have words of their own, and conditions are those of Kubernetes.
			if !strings.Contains(text, "| `"+f[1]+"` |") && !regexp.MustCompile(`^(description|items|properties|`+
				`additionalProperties|required|type|format|enum|anyOf|default|status|lastTransitionTime)$`).MatchString(f[1]) {
				t.Errorf("%s has %s, which the document lacks", kind, f[1])
			}
		}
	}
	for _, row := range regexp.MustCompile(`(?m)^\| .* \|\s*\|$`).FindAllString(text, -1) {
		t.Errorf("nothing explains %s", row)
	}
}
