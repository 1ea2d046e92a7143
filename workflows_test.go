package waterline_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWorkflows checks that the forge's workflows call what exists: targets of the Makefile, with variables that it
// knows, other workflows, and scripts.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	called := regexp.MustCompile(`(?m)^ *make ([a-z-]+)(.*)$`)
	script := regexp.MustCompile(`\.ci/\S+`)
	found := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var workflow struct {
			Jobs map[string]struct {
				Uses  string
				Steps []struct {
					Uses, Run string
					With      struct {
						FetchDepth *int `json:"fetch-depth"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(content, &workflow); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for name, job := range workflow.Jobs {
			paths := []string{}
			if job.Uses != "" {
				paths = append(paths, job.Uses)
			}
			for _, step := range job.Steps {
				// Tests build the version before, which a clone of one commit does not have.
				if depth := step.With.FetchDepth; strings.HasPrefix(step.Uses, "actions/checkout@") &&
					(depth == nil || *depth != 0) {
					t.Errorf("%s: job %s checks out one commit without those before it", file, name)
				}
				paths = append(paths, script.FindAllString(step.Run, -1)...)
				for _, m := range called.FindAllStringSubmatch(step.Run, -1) {
					found++
					if !strings.Contains(string(makefile), "\n"+m[1]+":") {
						t.Errorf("%s: job %s calls make %s, which the Makefile does not have", file, name, m[1])
					}
					for _, variable := range regexp.MustCompile(`([A-Z_]+)=`).FindAllStringSubmatch(m[2], -1) {
						if !strings.Contains(string(makefile), "$("+variable[1]+")") {
							t.Errorf("%s: job %s sets %s, which the Makefile does not use", file, name, variable[1])
						}
					}
				}
			}
			for _, path := range paths {
				found++
				if _, err := os.Stat(path); err != nil {
					t.Errorf("%s: job %s: %v", file, name, err)
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("found only %d calls in workflows", found)
	}
}

// TestReleaseOrder checks that a release without a section in the changelog, or whose parts do not work, fails before
// anything is pushed.
func TestReleaseOrder(t *testing.T) {
	content, err := os.ReadFile(".github/workflows/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pushed := strings.Index(string(content), "make release")
	for _, step := range []string{"CHANGELOG.md >", "make test-release", "make vuln"} {
		if at := strings.Index(string(content), step); at < 0 || pushed < at {
			t.Errorf("%q is at %d, and images are pushed at %d", step, at, pushed)
		}
	}
}
