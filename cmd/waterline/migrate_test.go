package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestRenames checks each rename alone: the policy with the old word is refused, and accepted once it is rewritten.
// Only renames by hand are left out. docs/upgrade.md lists all of them.
func TestRenames(t *testing.T) {
	docs, err := os.ReadFile("../../docs/upgrade.md")
	if err != nil {
		t.Fatal(err)
	}
	// A value that each field accepts, where the rename is of the field.
	fits := map[string]string{
		"windows[].preDrain": "15m", "cpu.suppressBy": "Arithmetic", "cpu.floor": "5%",
		"protect.culprit": "true", "protect.evict": "{}", "batch": "[{selector: {}}]",
		"pods": "[{selector: {}, cpuShare: 2}]",
	}
	// What else the entries of lists need.
	needs := map[string]string{
		"windows": `name: w, start: "00:00", end: "09:00", timeZone: UTC`, "batch": "selector: {}",
		"pods": "selector: {}, cpuShare: 2, cpuManager: Share",
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:`([^`]+)`|all) \\|")
	documented := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(docs), -1) {
		documented[m[1]] = true
	}
	fields := map[string]bool{}
	for _, r := range renames() {
		fields[r.field] = true
		if r.hand != "" {
			continue
		}
		t.Run(r.field+" "+r.value, func(t *testing.T) {
			value := r.value
			if value == "" {
				value = fits[r.field]
			}
			old := spec(r.field, value, needs)
			if _, err := kube.ParsePolicy([]byte(old)); err == nil {
				t.Fatalf("the old policy is accepted:\n%s", old)
			}
			m := migration{out: io.Discard}
			rewritten, err := m.document("policy", []byte(old))
			if err != nil || m.changed != 1 {
				t.Fatalf("%d lines changed: %v", m.changed, err)
			}
			if _, err := kube.ParsePolicy(rewritten); err != nil {
				t.Errorf("%v in\n%s", err, rewritten)
			}
		})
	}
	for field := range fields {
		if !documented[field] {
			t.Errorf("docs/upgrade.md does not list %s", field)
		}
	}
	for field := range documented {
		if !fields[field] {
			t.Errorf("docs/upgrade.md lists %s, which the command does not know", field)
		}
	}
}

// spec returns a policy that has one field with a value, on one line.
func spec(field, value string, needs map[string]string) string {
	first, rest, deeper := strings.Cut(field, ".")
	name, list := strings.CutSuffix(first, "[]")
	text := value
	if deeper {
		text = fmt.Sprintf("{%s: %s}", rest, value)
		if value == "static" {
			text = fmt.Sprintf("{ratio: 50%%, %s: %s}", rest, value)
		}
	}
	if list {
		more := needs[name]
		if i := strings.Index(more, ", "+rest+":"); i >= 0 {
			more = more[:i]
		}
		text = fmt.Sprintf("[{%s, %s: %s}]", more, rest, value)
	}
	if rest == "cpuPlacement" {
		text = fmt.Sprintf("[{%s, %s: %s}]", needs[name], rest, value)
	}
	return fmt.Sprintf("apiVersion: waterline.io/v1alpha1\nkind: ColocationPolicy\nmetadata: {name: p}\nspec: {%s: %s}\n",
		name, text)
}
