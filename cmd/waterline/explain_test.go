package main

import (
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/agent/serve"
)

// TestPrintHint checks that what came of a hint is printed, and nothing about hints of a pod without one.
func TestPrintHint(t *testing.T) {
	for _, hint := range []string{"", "it has the CPUs that it was hinted, 4-7"} {
		var out strings.Builder
		if err := printFiles(&out, &serve.Explanation{Namespace: "shop", Name: "web", Hint: hint}); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.Contains(got, hint) || hint == "" && strings.Contains(got, "hint") {
			t.Errorf("hint %q: %q", hint, got)
		}
	}
}
