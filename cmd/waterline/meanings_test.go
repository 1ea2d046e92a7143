package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/docs"
)

// codesOf returns the reason codes that a file of the source declares.
func codesOf(t *testing.T, path, pattern string) []string {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(source), -1) {
		codes = append(codes, m[1])
	}
	return codes
}

// TestMeanings walks all reason codes, each with all operands that a golden transcript shows it with, and checks that
// explain has words for the code and for each operand.
func TestMeanings(t *testing.T) {
	operands := map[string][]string{}
	err := filepath.WalkDir("../../internal/decide", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(filepath.Dir(path)) != "testdata" {
			return err
		}
		golden, err := os.ReadFile(path)
		for _, m := range said.FindAllStringSubmatch(string(golden), -1) {
			operands[m[1]] = append(operands[m[1]], strings.Fields(m[2])...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := reasons()
	codes := codesOf(t, "../../internal/model/reason.go", `Code = "(\w+)"`)
	if len(codes) < 100 {
		t.Fatalf("found %d codes", len(codes))
	}
	for _, code := range codes {
		text := strings.Join(append([]string{code}, operands[code]...), " ")
		notes := all.notes(text)
		if len(notes) != 1 || len(strings.Fields(all[code].Text)) < 3 {
			t.Errorf("%s: no words: %+v", code, notes)
			continue
		}
		for _, m := range operandName.FindAllStringSubmatch(text, -1) {
			inRow := strings.Contains(all[code].Row, "`"+m[1]+"`")
			if !inRow && (all[m[1]].Text == "" || !slices.Contains(notes[0].operands, m[1])) {
				t.Errorf("%s: no words for the operand %s", code, m[1])
			}
		}
	}
}

// TestWorkerMeanings checks that explain has words for each phase and reason of a worker.
func TestWorkerMeanings(t *testing.T) {
	for rule, all := range map[string]meanings{"pool": docs.Meanings(docs.YARN), "pool/crew": docs.Meanings(docs.OLAP)} {
		codes := codesOf(t, "../../internal/decide/cluster/"+rule+"/step.go", `(?:Phase|Code) += "(\w+)"`)
		if len(codes) < 25 {
			t.Fatalf("%s: found %d phases and reasons", rule, len(codes))
		}
		for _, code := range codes {
			if len(strings.Fields(all[code].Text)) < 2 {
				t.Errorf("%s: no words for %s", rule, code)
			}
		}
	}
}

// TestExplainText checks what stands below an explanation: each code once, with the operands that its row lacks.
func TestExplainText(t *testing.T) {
	var out strings.Builder
	reasons().explain(&out, "why BatchMinimum left=2000mCPU\nwhy IdleGroup; it is BatchMinimum again, NoSuchCode")
	const want = `
In other words
  BatchMinimum: the CPU that batch keeps by cpu.minBatch, although online pods leave less
    left: the amount that is left for batch under the waterline, or the time that is left
    what to do: lower minBatch if online pods suffer
  IdleGroup: cpu.idle is set on the pod's cgroup, by Waterline (BatchIdle) or by another program,
    and the kernel refuses a weight there. The weight is written when it is cleared
    what to do: if it was not Waterline, find the program
`
	if out.String() != want {
		t.Errorf("got%s", out.String())
	}
}
