package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/test/golden"
)

// TestNames checks the names of what commands print as JSON and YAML, over all tags of this package: they are spelled
// as those of the API, the same field has the same name everywhere, and none is a synonym of a name of the NodeReport.
func TestNames(t *testing.T) {
	synonyms := map[string]string{
		"allowed": "allowance", "offered": "offer", "sold": "bound", "used": "online or batch", "suppressed": "throttledCPU",
		"at": "changed, or what happened then",
	}
	events := map[string]bool{"podEvent": true, "roundDiffers": true} // things that happened at a time
	spelling := regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	names := map[string]string{} // by field
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	tags := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			s, isType := n.(*ast.TypeSpec)
			if !isType {
				return true
			}
			structure, isStruct := s.Type.(*ast.StructType)
			if !isStruct {
				return true
			}
			for _, f := range structure.Fields.List {
				name := jsonName(t, f)
				if name == "" {
					continue
				}
				tags++
				field := f.Names[0].Name
				if !spelling.MatchString(name) {
					t.Errorf("%s.%s is printed as %q", s.Name.Name, field, name)
				}
				if better := synonyms[name]; better != "" && !events[s.Name.Name] {
					t.Errorf("%s.%s is printed as %q: write %s", s.Name.Name, field, name, better)
				}
				if before, known := names[field]; known && before != name {
					t.Errorf("%s.%s is printed as %q, and elsewhere as %q", s.Name.Name, field, name, before)
				}
				names[field] = name
			}
			return true
		})
	}
	if tags < 80 {
		t.Errorf("only %d tags were found", tags)
	}
}

// jsonName returns the name that a field's tag sets; "": none.
func jsonName(t *testing.T, f *ast.Field) string {
	t.Helper()
	if f.Tag == nil || len(f.Names) == 0 {
		return ""
	}
	text, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(reflect.StructTag(text).Get("json"), ",")
	return name
}

// TestNamesOfReports checks that status and top print amounts under the names and with the types of the NodeReport.
func TestNamesOfReports(t *testing.T) {
	same := func(printed, reported reflect.Type, names ...string) {
		t.Helper()
		of := map[string]reflect.Type{}
		for f := range reported.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			of[name] = f.Type
		}
		plain := func(in reflect.Type) reflect.Type {
			if in != nil && in.Kind() == reflect.Pointer {
				return in.Elem()
			}
			return in
		}
		found := 0
		for f := range printed.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if len(names) > 0 && !strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") {
				continue
			}
			found++
			if plain(of[name]) != plain(f.Type) {
				t.Errorf("%s.%s is a %v, and in %v a %v", printed.Name(), name, f.Type, reported, of[name])
			}
		}
		if found == 0 || len(names) > 0 && found != len(names) {
			t.Errorf("%v has %d of these: %v", printed, found, names)
		}
	}
	same(reflect.TypeFor[totals](), reflect.TypeFor[v1alpha1.ResourceReport]())
	same(reflect.TypeFor[nodeStatus](), reflect.TypeFor[v1alpha1.NodeReportStatus](), "policy", "throttledCPU")
	same(reflect.TypeFor[clusterStatus](), reflect.TypeFor[v1alpha1.NodeReportStatus](), "throttledCPU")
	for f := range reflect.TypeFor[serve.PodUsage]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !strings.EqualFold(name, f.Name) {
			t.Errorf("top pods prints %s as %q: an agent of another version has the field's name", f.Name, name)
		}
	}
}

// TestWide checks that wide answers have more columns: of top, of top pods, and of doctor a line for each finding.
func TestWide(t *testing.T) {
	var out strings.Builder
	s := inventoryOf(t).status(noon)
	if err := topNodes(&out, s.Each, true, noon); err != nil {
		t.Fatal(err)
	}
	out.WriteString("\n")
	if err := topPods(&out, []serve.PodUsage{{Namespace: "shop", Name: "web-0", Age: 1500e6}}, true); err != nil {
		t.Fatal(err)
	}
	out.WriteString("\n")
	d := doctor{out: &out, output: &output{form: formWide}}
	d.ok("kubelet 1.36")
	d.bad("stop it", "%s writes cgroup files", "koordlet")
	if err := d.result(); err == nil || err.Error() != "1 of the checks failed" {
		t.Errorf("the error is %v", err)
	}
	golden.Compare(t, "testdata/cluster/wide.txt", out.String())
}

// TestSpelled checks how names of Go become those of the API.
func TestSpelled(t *testing.T) {
	var got strings.Builder
	value := map[string]any{
		"Why": 1, "CPU": 2, "CPUs": 3, "CPUSet": 4, "L3": 5, "cpu.shares": 6, "UID": []string{"CPU"}, "A B": 7,
	}
	if err := printJSON(&got, spelled(value)); err != nil {
		t.Fatal(err)
	}
	const want = `{
  "A B": 7,
  "cpu": 2,
  "cpuSet": 4,
  "cpus": 3,
  "l3": 5,
  "uid": [
    "CPU"
  ],
  "why": 1,
  "cpu.shares": 6
}
`
	if got.String() != want {
		t.Errorf("got %s", got.String())
	}
}
