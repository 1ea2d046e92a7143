// Package waterline_test holds the fences of the whole code base: what may import what, who owns which cgroup file, and
// that what users are told about is documented.
package waterline_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/waterline-io/waterline/"

// mayImport lists, for each folder, the folders that its code may import. The longest prefix counts. Imports go one
// way: model ← cgroup ← decide, observe, act ← shells ← cmd.
var mayImport = map[string][]string{
	"api":                   {},
	"cmd":                   {"api", "cmd", "docs", "internal"},
	"cmd/waterline":         {"api", "docs", "internal", "lab/experiment", "lab/sandbox"}, // the demo
	"deploy":                {"deploy"},
	"docs":                  {},
	"internal/model":        {},
	"internal/cgroup":       {"internal/model"},
	"internal/decide":       {"internal/model", "internal/cgroup", "internal/decide"},
	"internal/observe":      {"api", "internal/model", "internal/cgroup", "internal/observe"},
	"internal/checkpoint":   {},
	"internal/convert":      {"api"},
	"internal/program":      {"api", "internal/program/limited"},
	"internal/act":          {"api", "internal/model", "internal/cgroup", "internal/checkpoint", "internal/act"},
	"internal/act/yarn":     {"internal/model", "internal/yarn"},
	"internal/observe/yarn": {"internal/model", "internal/yarn"},
	"internal/nri":          {"internal/model"},
	"internal/yarn":         {"internal/model"},
	"internal/drain":        {"internal/drain"},
	"internal/guard": {
		"internal/model", "internal/cgroup", "internal/decide/node/shed", "internal/yarn", "internal/guard",
	},
	"internal/journal": {"internal/model", "internal/decide"},
	"internal/agent": {
		"api", "internal/model", "internal/cgroup", "internal/decide", "internal/observe", "internal/act", "internal/journal",
		"internal/checkpoint", "internal/agent",
	},
	"internal/manager": {
		"api", "internal/model", "internal/decide", "internal/observe/kube", "internal/act/kube",
		"internal/observe/yarn", "internal/act/yarn", "internal/yarn", "internal/drain", "internal/guard/guardlog",
		"internal/manager",
	},
	"internal/web":      {"api", "docs", "internal/model", "internal/observe/kube", "internal/manager/cache"},
	"internal/sim":      {"internal/model", "internal/decide", "internal/sim"},
	"internal/progress": {},
	"internal/report":   {"internal/report"},
	"test":              {"api", "internal", "test"},
	"lab": {
		"api", "internal/model", "internal/cgroup", "internal/observe", "internal/decide/node",
		"internal/decide/cluster/pool", "internal/journal", "internal/sim", "internal/report", "internal/progress", "lab",
	},
}

// mayUseKubernetes lists the folders in which types of the Kubernetes API may appear.
var mayUseKubernetes = []string{
	"api", "cmd", "internal/observe/kube", "internal/act/kube", "internal/convert", "internal/manager", "internal/program",
	"internal/web", "lab", "test",
}

// source is one Go file of the repository that is not a test.
type source struct {
	path string // relative to the root
	file *ast.File
}

func (s source) dir() string { return filepath.Dir(s.path) }

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "k8s" || path == "out" || path != "." && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err == nil {
			all = append(all, source{path, file})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func imports(s source) []string {
	var all []string
	for _, i := range s.file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		all = append(all, path)
	}
	return all
}

// ruleOf returns the folder of the rule that a folder belongs to; "" for any other, such as internal/decide/node, which
// calls the rules.
func ruleOf(dir string) string {
	for _, scope := range []string{"internal/decide/node/", "internal/decide/cluster/"} {
		if rest, inside := strings.CutPrefix(dir, scope); inside {
			rule, _, _ := strings.Cut(rest, "/")
			return scope + rule
		}
	}
	if below(dir, "internal/decide/policy") {
		return "internal/decide/policy"
	}
	return ""
}

// standard reports whether a package belongs to the standard library.
func standard(imported string) bool { return !strings.Contains(strings.Split(imported, "/")[0], ".") }

func below(dir, room string) bool { return dir == room || strings.HasPrefix(dir, room+"/") }

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		room := ""
		for r := range mayImport {
			if below(s.dir(), r) && len(r) > len(room) {
				room = r
			}
		}
		if room == "" {
			t.Errorf("%s: mayImport has no entry for its folder", s.path)
			continue
		}
		rule := ruleOf(s.dir())
		for _, imported := range imports(s) {
			ours, isOurs := strings.CutPrefix(imported, module)
			switch {
			case isOurs && !slices.ContainsFunc(mayImport[room], func(r string) bool { return below(ours, r) }):
				t.Errorf("%s imports %s, which mayImport does not allow in %s", s.path, ours, room)
			case isOurs && rule != "" && below(ours, "internal/decide") && !below(ours, rule):
				t.Errorf("%s: a rule imports another: %s", s.path, ours)
			case !isOurs && room == "internal/model" && !standard(imported) && imported != "k8s.io/utils/cpuset":
				t.Errorf("%s: the model imports %s", s.path, imported)
			case strings.HasPrefix(imported, "k8s.io/kubernetes"):
				t.Errorf("%s imports %s: only the module in k8s may", s.path, imported)
			case (strings.HasPrefix(imported, "k8s.io/api") || strings.HasPrefix(imported, "k8s.io/client-go")) &&
				!slices.ContainsFunc(mayUseKubernetes, func(r string) bool { return below(s.dir(), r) }):
				t.Errorf("%s imports %s: Kubernetes types are allowed only in the folders of mayUseKubernetes", s.path, imported)
			}
		}
	}
}

// TestPure checks that decisions use no clock, logger, randomness or I/O.
func TestPure(t *testing.T) {
	clock := []string{"Now", "Since", "Until", "After", "Sleep", "NewTimer"}
	forbidden := []string{"log", "log/slog", "os", "io", "net", "net/http", "math/rand", "math/rand/v2", "sync", "context"}
	for _, s := range sources(t) {
		if !below(s.dir(), "internal/decide") && !below(s.dir(), "internal/model") && !below(s.dir(), "internal/cgroup") {
			continue
		}
		for _, imported := range imports(s) {
			if slices.Contains(forbidden, imported) {
				t.Errorf("%s imports %s", s.path, imported)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, sel.Sel.Name) {
					t.Errorf("%s calls time.%s", s.path, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// TestNoExits checks that only commands end the process, and that no code panics.
func TestNoExits(t *testing.T) {
	for _, s := range sources(t) {
		if s.file.Name.Name == "main" || below(s.dir(), "test") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch f := call.Fun.(type) {
			case *ast.Ident:
				if f.Name == "panic" {
					t.Errorf("%s panics", s.path)
				}
			case *ast.SelectorExpr:
				x, ok := f.X.(*ast.Ident)
				if ok && (x.Name == "os" && f.Sel.Name == "Exit" || x.Name == "log" && strings.HasPrefix(f.Sel.Name, "Fatal")) {
					t.Errorf("%s ends the process", s.path)
				}
			}
			return true
		})
	}
}

// TestOwners checks the table of docs/files.md against the code: each knob is set by exactly one rule.
func TestOwners(t *testing.T) {
	table, err := os.ReadFile("docs/files.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{} // knob → rule
	owner := regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\|.*\\| `decide/node/([a-z]+)` \\|")
	for _, row := range owner.FindAllStringSubmatch(string(table), -1) {
		if old, twice := documented[row[1]]; twice && old != row[2] {
			t.Errorf("docs/files.md lists two owners of %s: %s and %s", row[1], old, row[2])
		}
		documented[row[1]] = row[2]
	}
	names := map[string]string{
		"Shares": "cpu.shares", "Quota": "cpu.quota", "Cpuset": "cpuset.cpus", "MemoryMax": "memory.max",
		"Burst": "cpu.burst", "Idle": "cpu.idle", "Identity": "cpu.bvt_warp_ns", "MemoryMin": "memory.min",
		"MemoryLow": "memory.low", "MemoryHigh": "memory.high",
	}
	found := map[string]string{}
	for _, s := range sources(t) {
		rule, isRule := strings.CutPrefix(ruleOf(s.dir()), "internal/decide/node/")
		if !isRule {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			kv, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			key, isIdent := kv.Key.(*ast.Ident)
			value, isSelector := kv.Value.(*ast.SelectorExpr)
			if isIdent && isSelector && key.Name == "Knob" {
				knob := names[value.Sel.Name]
				if knob == "" {
					t.Errorf("%s: add knob %s to this test", s.path, value.Sel.Name)
				}
				if other := found[knob]; other != "" && other != rule {
					t.Errorf("%s is set by %s and by %s", knob, other, rule)
				}
				found[knob] = rule
			}
			return true
		})
	}
	if !maps.Equal(documented, found) {
		t.Errorf("docs/files.md has the owners %v, the code %v", documented, found)
	}
}

// TestReasons checks that each reason appears in a golden transcript and in docs/reasons.md, and that docs/reasons.md
// has no other.
func TestReasons(t *testing.T) {
	code, err := os.ReadFile("internal/model/reason.go")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	var golden strings.Builder
	err = filepath.WalkDir("internal/decide", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(filepath.Dir(path)) != "testdata" {
			return err
		}
		content, err := os.ReadFile(path)
		golden.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, m := range regexp.MustCompile(`Code = "(\w+)"`).FindAllStringSubmatch(string(code), -1) {
		codes = append(codes, m[1])
		if !strings.Contains(string(docs), "| `"+m[1]+"` |") {
			t.Errorf("docs/reasons.md does not explain %s", m[1])
		}
		if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(golden.String()) {
			t.Errorf("no golden transcript shows %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]\\w+)` \\|").FindAllStringSubmatch(string(docs), -1) {
		if !slices.Contains(codes, m[1]) {
			t.Errorf("docs/reasons.md explains %s, which does not exist", m[1])
		}
	}
}

// TestPoolReasons checks that the document about a kind of pool explains each phase and each reason of a worker, that
// the one about the scheduler explains each reason of a refusal, and that a golden case shows it.
func TestPoolReasons(t *testing.T) {
	for rule, about := range map[string]struct {
		document, file string
		least          int // phases and reasons
	}{
		"pool":      {"docs/yarn.md", "step.go", 30},
		"pool/crew": {"docs/olap.md", "step.go", 25},
		"shuffle":   {"docs/shuffle.md", "step.go", 10},
		"place":     {"docs/scheduler.md", "reason.go", 14},
	} {
		code, err := os.ReadFile("internal/decide/cluster/" + rule + "/" + about.file)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := os.ReadFile(about.document)
		if err != nil {
			t.Fatal(err)
		}
		var golden strings.Builder
		files, _ := filepath.Glob("internal/decide/cluster/" + rule + "/testdata/*.case")
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden.Write(content)
		}
		found := regexp.MustCompile(`(?:Phase|Code) += "(\w+)"`).FindAllStringSubmatch(string(code), -1)
		if len(found) < about.least {
			t.Fatalf("%s: found %d phases and reasons", rule, len(found))
		}
		for _, m := range found {
			if !regexp.MustCompile("(?m)^\\| .*`" + m[1] + "`.* \\|").Match(docs) {
				t.Errorf("%s does not explain %s", about.document, m[1])
			}
			if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(golden.String()) {
				t.Errorf("no golden case of %s shows %s", rule, m[1])
			}
		}
	}
}

// TestMetrics checks that docs/metrics.md lists exactly the metrics of the code.
func TestMetrics(t *testing.T) {
	code, err := os.ReadFile("api/v1alpha1/names.go")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`Metric\w+\s*= "(\w+)"`).FindAllStringSubmatch(string(code), -1) {
		names = append(names, m[1])
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(waterline_\\w+)` \\|").FindAllStringSubmatch(string(docs), -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(names)
	slices.Sort(documented)
	if !slices.Equal(names, documented) {
		t.Errorf("docs/metrics.md has %v, the code %v", documented, names)
	}
}

// TestMonitoring checks that alert rules and the dashboard query only metrics and recorded series that exist.
func TestMonitoring(t *testing.T) {
	read := func(path string) string {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	rules := read("deploy/chart/rules/waterline.yaml")
	known := map[string]bool{}
	metric := regexp.MustCompile(`Metric\w+\s*= "(\w+)"`)
	for _, m := range metric.FindAllStringSubmatch(read("api/v1alpha1/names.go"), -1) {
		known[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^ *- record: (\S+)$`).FindAllStringSubmatch(rules, -1) {
		known[m[1]] = true
	}
	dashboard := "deploy/chart/dashboards/waterline.json"
	for path, content := range map[string]string{"the rules": rules, dashboard: read(dashboard)} {
		names := regexp.MustCompile(`\bwaterline[_:][\w:]+`).FindAllString(content, -1)
		if len(names) == 0 {
			t.Errorf("%s: no metric is queried", path)
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s has %s, which does not exist", path, name)
			}
		}
	}
}
