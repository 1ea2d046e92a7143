package waterline_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/docs"
)

// rows returns the rows of the tables of a document whose header begins with a word, as cells.
func rows(t *testing.T, file, first string) [][]string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	inside := false
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == first:
			inside = true
		case inside && !strings.HasPrefix(cells[0], "---"):
			all = append(all, cells)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no table of %s", file, first)
	}
	return all
}

// TestTroubleshooting checks that each symptom leads to a command, and that the commands and the reason codes exist.
func TestTroubleshooting(t *testing.T) {
	known := docs.Meanings(docs.Reasons)
	commands := []string{"kubectl get", "kubectl logs"}
	files, err := filepath.Glob("cmd/waterline/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:Use: +|parentCommand\()"([a-z-]+)`).FindAllStringSubmatch(string(content), -1) {
			commands = append(commands, "waterline "+m[1])
		}
	}
	kinds := regexp.MustCompile(`^explain (pod|node|worker|pool|policy) NAME$`)
	for _, row := range rows(t, "docs/troubleshooting.md", "symptom") {
		command := regexp.MustCompile("^`([^`]+)`$").FindStringSubmatch(row[1])
		if command == nil {
			t.Errorf("%s: %q is no command", row[0], row[1])
			continue
		}
		words := strings.Fields(command[1])
		if len(words) < 2 || !slices.Contains(commands, words[0]+" "+words[1]) {
			t.Errorf("%s: there is no command %q", row[0], command[1])
		} else if words[1] == "explain" && !kinds.MatchString(strings.Join(words[1:], " ")) {
			t.Errorf("%s: %q explains nothing", row[0], command[1])
		}
		for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			if known[code[1]].Text == "" {
				t.Errorf("%s: docs/reasons.md has no code %s", row[0], code[1])
			}
		}
	}
}

// TestSizing checks that each figure of docs/sizing.md is that of docs/results.json, rounded.
func TestSizing(t *testing.T) {
	content, err := os.ReadFile("docs/results.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name    string
		Metrics map[string]float64
	}
	if err := json.Unmarshal(content, &all); err != nil {
		t.Fatal(err)
	}
	measured := map[string]float64{}
	for _, document := range all {
		for name, value := range document.Metrics {
			measured[document.Name+"."+name] = value
		}
	}
	for _, row := range rows(t, "docs/sizing.md", "figure") {
		text, _, _ := strings.Cut(row[1], " ")
		said, err := strconv.ParseFloat(text, 64)
		_, decimals, _ := strings.Cut(text, ".")
		value, found := measured[strings.Trim(row[2], "`")]
		if err != nil || !found || strconv.FormatFloat(value, 'f', len(decimals), 64) != text {
			t.Errorf("%s: the page says %s (%v), results.json says %v (found: %v)", row[0], row[1], said, value, found)
		}
	}
}

// TestIndex checks that the index has a link to each document beside it, and that README.md has one to the index.
func TestIndex(t *testing.T) {
	index, err := os.ReadFile("docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("docs/*.md")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		if name := filepath.Base(file); name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil || !strings.Contains(string(readme), "](docs/README.md)") {
		t.Errorf("README.md has no link to docs/README.md: %v", err)
	}
}

// TestPictures checks that each colour of a picture that is a CSS variable has a plain one before it. Viewers that are
// no browser know no variables, and would draw black.
func TestPictures(t *testing.T) {
	files, err := filepath.Glob("docs/*.svg")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	pair := regexp.MustCompile(`(fill|stroke):#[0-9a-f]{3,6};(fill|stroke):var\(`)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pairs := 0
		for _, m := range pair.FindAllStringSubmatch(string(content), -1) {
			if m[1] == m[2] {
				pairs++
			}
		}
		if all := strings.Count(string(content), "var("); all != pairs {
			t.Errorf("%s: %d of %d variables have a plain colour before them", file, pairs, all)
		}
	}
}
