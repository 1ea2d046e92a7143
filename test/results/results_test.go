package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPage checks that docs/results.md is what docs/results.json gives, and that it stays one page.
func TestPage(t *testing.T) {
	docs, err := readAll("../../docs/results.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/results.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := render(pageTemplate, docs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(page), want); diff != "" {
		t.Errorf("docs/results.md is out of date; run make results (-page +generated):\n%s", diff)
	}
	const most = 150
	if lines := strings.Count(string(page), "\n"); lines > most {
		t.Errorf("docs/results.md has %d lines, at most %d are one page", lines, most)
	}
}

// TestBenches checks that make bench writes the document of each figure. Documents of byHand are taken from the logs of
// tests and benches.
func TestBenches(t *testing.T) {
	byHand := []string{
		"annotations", "batch-pods", "colocate-pods", "go", "go-weight", "kills", "node-weights", "scale-1000", "sell",
		"sell-faults", "simulate", "writes",
	}
	script, err := os.ReadFile("../bench.sh")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`\{\{row "[^"]+" "([^"]+?)(-hog)?" `).FindAllStringSubmatch(pageTemplate, -1)
	if len(rows) < 80 {
		t.Fatalf("found %d figures", len(rows))
	}
	for _, row := range rows {
		name := strings.TrimPrefix(row[1], "experiment-") // it has a prefix where another document has its name
		writes := regexp.MustCompile(`(?m)^(bench|for name in) (.* )?` + name + `[ ;]`).Match(script)
		if writes == slices.Contains(byHand, name) {
			t.Errorf("%s: that a bench writes it, and that byHand has it, are both %v", name, writes)
		}
	}
}

// TestRender checks how a figure is shown that meets its goal, misses it, has none, or was not measured, and that the
// goal of several values is the last one's.
func TestRender(t *testing.T) {
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	docs := []document{
		{Name: "agent", When: day, Machine: "one", Metrics: map[string]float64{
			"cpu": 1.5, "memory": 21, "share": 0.25, "theory": 0.24,
		}},
		{Name: "other", When: day, Machine: "two", Command: "go test", Metrics: map[string]float64{"n": 0}},
	}
	page, err := render(`{{head}}
{{row "CPU" "agent" "cpu" "%.1f mCPU" "≤ 2 mCPU" "5 mCPU"}}
{{row "memory" "agent" "memory" "%.0f MiB" "≤ 20 MiB" ""}}
{{row "part" "agent" "100*share" "%.0f %%" "" ""}}
{{row "both" "agent" "cpu memory" "%.1f" "" ""}}
{{row "less" "agent" "memory cpu" "%.1f" "≤ 2" ""}}
{{row "more" "agent" "cpu memory" "%.1f" "≥ 22" ""}}
{{row "near" "agent" "cpu" "%.1f" "1.4 ± 10 %" ""}}
{{row "far" "agent" "cpu" "%.1f" "1.4 ± 5 %" ""}}
{{row "as computed" "agent" "100*share" "%.0f %%" "theory ± 5 %" ""}}
{{row "errors" "other" "n" "%.0f" "0" ""}}
{{row "latency" "agent" "latency" "%.0f ms" "" ""}}
{{row "speed" "missing" "speed" "%.0f" "" ""}}

A note.

{{machines}}{{missing}}
`, docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| CPU | 1.5 mCPU | ≤ 2 mCPU | 5 mCPU | 2026-11-23 A | `make bench` |\n",
		"| memory | **21 MiB** | ≤ 20 MiB |  | 2026-11-23 A | `make bench` |\n",
		"| part | 25 % |  |  | 2026-11-23 A | `make bench` |\n",
		"| both | 1.5 → 21.0 |  |  | 2026-11-23 A | `make bench` |\n",
		"| less | 21.0 → 1.5 | ≤ 2 |  | 2026-11-23 A | `make bench` |\n",
		"| more | 1.5 → **21.0** | ≥ 22 |  | 2026-11-23 A | `make bench` |\n",
		"| near | 1.5 | 1.4 ± 10 % |", "| far | **1.5** | 1.4 ± 5 % |", "| as computed | 25 % | theory ± 5 % |",
		"| errors | 0 | 0 |  | 2026-11-23 B | `go test` |\n\nA note.\n",
		"* A: one\n* B: two\n", "\nNot measured yet:\n\n* latency\n* speed\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for _, bad := range []string{"≤", "at most 3", "theory ± 3 %", "2 ± x %", "three"} {
		_, err := render(`{{row "n" "other" "n" "%.0f" "`+bad+`" ""}}`, docs)
		if err == nil {
			t.Errorf("no error for the goal %q", bad)
		}
	}
}

// TestUpdate checks that a newer document replaces an older one of the same name, and an older one does not.
func TestUpdate(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	old := []document{{Name: "a", When: day(2)}, {Name: "b", When: day(2)}}
	got := update(old, []document{{Name: "a", When: day(3)}, {Name: "b", When: day(1)}, {Name: "c", When: day(1)}})
	want := []document{{Name: "a", When: day(3)}, {Name: "b", When: day(2)}, {Name: "c", When: day(1)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
