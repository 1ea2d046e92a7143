package waterline_test

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestClocks checks that tests judge the program and not the machine: outside files with the build tag bench, no test
// compares a clock that it reads, or reads how much CPU time or memory a process used. Tests wait with poll.Until, and
// assert values, orders of events and counts.
//
// What imitates a component, such as a kubelet that restarts a container after a pause, may need a clock: the comment
// "clock: REASON" on the line excuses it.
func TestClocks(t *testing.T) {
	files, found := 0, 0
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "out" || path == "test/poll" || path != "." && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for _, complaint := range clockReadings(t, path, source) {
			found++
			t.Error(complaint)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("only %d files with tests", files)
	}
	if found > 0 {
		t.Logf("%d readings: a figure belongs into a file with //go:build bench, a wait is a poll.Until", found)
	}
}

// TestClockReadings checks the check.
func TestClockReadings(t *testing.T) {
	const head = "package p\n"
	for name, c := range map[string]struct {
		source string
		found  int
	}{
		"since":     {head + "func f() { if time.Since(began) > time.Second { panic(1) } }", 1},
		"through":   {head + "func f() { b := time.Now(); g(); took := time.Since(b); _ = float64(took) < 3 }", 1},
		"method":    {head + "func f() { b := time.Now(); _ = end.Sub(b).Seconds() >= 3 }", 1},
		"deadline":  {head + "func f() { for end := time.Now().Add(5); time.Now().Before(end); {} }", 1},
		"usage":     {head + "func f() { unix.Getrusage(0, &u); _ = c.ProcessState.UserTime() }", 2},
		"value":     {head + "func f() { now := time.Now(); decide(now); t.Log(time.Since(now)) }", 0},
		"fake":      {head + "func f() {\n\t_ = time.Since(ended) < pause // clock: a kubelet's pause\n}", 0},
		"bench":     {"//go:build bench\n\n" + head + "func f() { _ = time.Since(began) > 3 }", 0},
		"bench too": {"//go:build linux && bench\n\n" + head + "func f() { _ = time.Since(began) > 3 }", 0},
		"no bench":  {"//go:build !bench\n\n" + head + "func f() { _ = time.Since(began) > 3 }", 1},
		"or bench":  {"//go:build linux || bench\n\n" + head + "func f() { _ = time.Since(began) > 3 }", 1},
		"benches":   {"//go:build benches\n\n" + head + "func f() { _ = time.Since(began) > 3 }", 1},
		"no build":  {head + "//go:build bench\nfunc f() { _ = time.Since(began) > 3 }", 1},
		"variable":  {head + "func f() { var b, c = time.Now(), 3; _ = end.Sub(b) > 3; _ = c > 3 }", 1},
		"of all":    {head + "var b = time.Now()\nfunc f() { _ = end.After(b) }", 1},
		"field":     {head + "func f() { s.began = time.Now(); _ = s.end.Before(s.began); _ = s.end.Before(r.began) }", 1},
	} {
		if got := clockReadings(t, name+".go", []byte(c.source)); len(got) != c.found {
			t.Errorf("%s: %q, want %d", name, got, c.found)
		}
	}
}

// clockReadings returns a complaint for each reading that a file's tests must not have.
func clockReadings(t *testing.T, path string, source []byte) []string {
	t.Helper()
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, path, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	excused := map[int]bool{} // lines
	for _, group := range file.Comments {
		for _, c := range group.List {
			if c.Pos() < file.Package && constraint.IsGoBuild(c.Text) {
				line, err := constraint.Parse(c.Text)
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				if requires(line, "bench") {
					return nil
				}
			}
			if strings.HasPrefix(c.Text, "// clock: ") {
				excused[positions.Position(c.Pos()).Line] = true
			}
		}
	}
	var complaints []string
	global := clocks{}
	for _, d := range file.Decls {
		if d, isGeneral := d.(*ast.GenDecl); isGeneral {
			for _, spec := range d.Specs {
				global.assigned(spec)
			}
		}
	}
	for _, d := range file.Decls {
		function, isFunction := d.(*ast.FuncDecl)
		if !isFunction || function.Body == nil {
			continue
		}
		read := maps.Clone(global)
		ast.Inspect(function.Body, func(n ast.Node) bool {
			read.assigned(n)
			if what := read.judged(n); what != "" && !excused[positions.Position(n.Pos()).Line] {
				complaints = append(complaints, positions.Position(n.Pos()).String()+": "+what)
			}
			return true
		})
	}
	return complaints
}

// requires reports whether files with a build constraint are only built with a tag.
func requires(e constraint.Expr, tag string) bool {
	switch e := e.(type) {
	case *constraint.TagExpr:
		return e.Tag == tag
	case *constraint.AndExpr:
		return requires(e.X, tag) || requires(e.Y, tag)
	case *constraint.OrExpr:
		return requires(e.X, tag) && requires(e.Y, tag)
	}
	return false
}

// clocks has the variables of a function, and the fields such as s.began, that hold a reading of the clock or are
// computed from one.
type clocks map[string]bool

// assigned learns from an assignment or a declaration.
func (c clocks) assigned(n ast.Node) {
	var left, right []ast.Expr
	switch n := n.(type) {
	case *ast.AssignStmt:
		left, right = n.Lhs, n.Rhs
	case *ast.ValueSpec:
		for _, name := range n.Names {
			left = append(left, name)
		}
		right = n.Values
	}
	if len(left) != len(right) {
		return
	}
	for i := range left {
		switch left[i].(type) {
		case *ast.Ident, *ast.SelectorExpr:
			if c.read(right[i]) {
				c[types.ExprString(left[i])] = true
			}
		}
	}
}

// judged says which reading an expression compares or makes; "": none.
func (c clocks) judged(n ast.Node) string {
	switch e := n.(type) {
	case *ast.BinaryExpr:
		order := []token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ}
		if slices.Contains(order, e.Op) && (c.read(e.X) || c.read(e.Y)) {
			return "compares a clock that it reads"
		}
	case *ast.CallExpr:
		s, isSelector := e.Fun.(*ast.SelectorExpr)
		switch {
		case !isSelector:
		case slices.Contains([]string{"Before", "After", "Compare"}, s.Sel.Name) &&
			(c.read(s.X) || len(e.Args) == 1 && c.read(e.Args[0])):
			return "compares a clock that it reads"
		case slices.Contains([]string{"Getrusage", "UserTime", "SystemTime", "SysUsage", "ReadMemStats"}, s.Sel.Name):
			return "reads what a process used, by " + s.Sel.Name
		}
	}
	return ""
}

// read reports whether an expression is a reading of the clock or computed from one.
func (c clocks) read(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return c.read(e.X)
	case *ast.Ident, *ast.SelectorExpr:
		return c[types.ExprString(e)]
	case *ast.BinaryExpr:
		return c.read(e.X) || c.read(e.Y)
	case *ast.CallExpr:
		argument := slices.ContainsFunc(e.Args, c.read)
		switch f := e.Fun.(type) {
		case *ast.Ident: // a conversion, or the smaller one
			return argument && slices.Contains([]string{"float64", "int", "int64", "min", "max"}, f.Name)
		case *ast.SelectorExpr:
			if p, isName := f.X.(*ast.Ident); isName && p.Name == "time" {
				return slices.Contains([]string{"Now", "Since", "Until"}, f.Sel.Name) || argument && f.Sel.Name == "Duration"
			}
			moves := []string{"Add", "Sub", "Seconds", "Minutes", "Milliseconds", "Microseconds", "Round", "Truncate"}
			return slices.Contains(moves, f.Sel.Name) && (argument || c.read(f.X))
		}
	}
	return false
}
