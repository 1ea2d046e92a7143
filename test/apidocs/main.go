// Command apidocs writes docs/api.md: every kind, field, label, annotation and resource of api/v1alpha1, from its
// source.
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	text, err := page("api/v1alpha1")
	if err == nil {
		err = os.WriteFile("docs/api.md", []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apidocs:", err)
		os.Exit(1)
	}
}

const head = `# API reference

Every kind, field, label, annotation and resource of the API group ` + "`waterline.io/v1alpha1`" + `.
` + "`make generate`" + ` writes this page from api/v1alpha1; ` + "`kubectl explain`" + ` prints the same.
[policy.md](policy.md) explains policies by topic, with examples.
`

// source is the API package.
type source struct {
	types map[string]*ast.TypeSpec
	docs  map[string]*ast.CommentGroup
	order []string // names of types, as they stand in the files
	used  []string // types of fields, in the order in which they are reached
}

// page returns the document about the package in a directory.
func page(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("%s has no files: %w", dir, err)
	}
	s := source{types: map[string]*ast.TypeSpec{}, docs: map[string]*ast.CommentGroup{}}
	var names []string
	for _, path := range files {
		if strings.HasPrefix(filepath.Base(path), "zz_") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return "", fmt.Errorf("reading the API: %w", err)
		}
		for _, d := range file.Decls {
			g, isGroup := d.(*ast.GenDecl)
			if !isGroup {
				continue
			}
			switch g.Tok {
			case token.TYPE:
				s.add(g)
			case token.CONST:
				names = append(names, constants(g)...)
			}
		}
	}
	var b strings.Builder
	b.WriteString(head)
	for _, name := range s.order {
		if slices.Contains(markers(s.docs[name]), "kubebuilder:object:root=true") && !strings.HasSuffix(name, "List") {
			s.kind(&b, name)
		}
	}
	slices.Sort(names)
	b.WriteString("\n## Labels, annotations and resources\n\n| name | constant | meaning |\n|---|---|---|\n" +
		strings.Join(names, ""))
	return b.String(), nil
}

func (s *source) add(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		t, isType := spec.(*ast.TypeSpec)
		if !isType {
			continue
		}
		s.types[t.Name.Name], s.docs[t.Name.Name] = t, cmp.Or(t.Doc, g.Doc)
		s.order = append(s.order, t.Name.Name)
	}
}

// kind writes a kind and the types that its fields have.
func (s *source) kind(b *strings.Builder, name string) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", name, wrap(prose(s.docs[name])))
	s.used = []string{name + "Spec", name + "Status"}
	for i := 0; i < len(s.used); i++ {
		s.table(b, s.used[i])
	}
}

// table writes the fields of a type.
func (s *source) table(b *strings.Builder, name string) {
	t := s.types[name]
	if t == nil {
		return
	}
	fields, isStruct := t.Type.(*ast.StructType)
	if !isStruct {
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n| field | type | values | meaning |\n|---|---|---|---|\n", name,
		wrap(prose(s.docs[name])))
	for _, f := range fields.Fields.List {
		tag := ""
		if f.Tag != nil {
			unquoted, _ := strconv.Unquote(f.Tag.Value)
			tag, _, _ = strings.Cut(reflect.StructTag(unquoted).Get("json"), ",")
		}
		if tag == "" || tag == "-" {
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", tag, s.typeOf(f.Type), s.values(f), cell(prose(f.Doc)))
	}
}

// typeOf names a type, with a link if this page has it.
func (s *source) typeOf(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return s.typeOf(t.X)
	case *ast.ArrayType:
		return "list of " + s.typeOf(t.Elt)
	case *ast.MapType:
		return "map of " + s.typeOf(t.Value)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.Ident:
		known := s.types[t.Name]
		if known == nil {
			return t.Name
		}
		if _, isStruct := known.Type.(*ast.StructType); !isStruct {
			return s.typeOf(known.Type)
		}
		if !slices.Contains(s.used, t.Name) {
			s.used = append(s.used, t.Name)
		}
		return fmt.Sprintf("[%s](#%s)", t.Name, strings.ToLower(t.Name))
	}
	return "?"
}

var (
	marker = regexp.MustCompile(`^// \+(.*)$`)
	rule   = regexp.MustCompile(`message=("(?:[^"\\]|\\.)*")`)
)

// markers returns the lines of a comment that are for generators.
func markers(g *ast.CommentGroup) []string {
	var all []string
	if g == nil {
		return nil
	}
	for _, c := range g.List {
		if m := marker.FindStringSubmatch(c.Text); m != nil {
			all = append(all, m[1])
		}
	}
	return all
}

// values says which values a field takes, by the markers of the field and of its type.
func (s *source) values(f *ast.Field) string {
	all := markers(f.Doc)
	e := f.Type
	if list, isList := e.(*ast.ArrayType); isList {
		e = list.Elt
	}
	if name, isName := e.(*ast.Ident); isName && s.types[name.Name] != nil {
		if _, isStruct := s.types[name.Name].Type.(*ast.StructType); !isStruct {
			all = append(all, markers(s.docs[name.Name])...)
		}
	}
	var parts []string
	for _, m := range all {
		name, value, _ := strings.Cut(strings.TrimPrefix(m, "kubebuilder:"), "=")
		switch name {
		case "required":
			parts = append(parts, "required")
		case "default":
			parts = append(parts, "default `"+value+"`")
		case "validation:Enum":
			parts = append(parts, "`"+strings.ReplaceAll(value, ";", "`, `")+"`")
		case "validation:Minimum":
			parts = append(parts, "≥ "+value)
		case "validation:Maximum":
			parts = append(parts, "≤ "+value)
		case "validation:MaxItems", "validation:MaxProperties":
			parts = append(parts, "at most "+value+" items")
		case "validation:XValidation":
			if found := rule.FindStringSubmatch(m); found != nil {
				if message, err := strconv.Unquote(found[1]); err == nil {
					parts = append(parts, message)
				}
			}
		}
	}
	return cell(strings.Join(parts, "; "))
}

// prose returns a comment without markers, in one paragraph. Links between Go names lose their brackets.
func prose(g *ast.CommentGroup) string {
	if g == nil {
		return ""
	}
	var kept []string
	for line := range strings.Lines(g.Text()) {
		if !strings.HasPrefix(line, "+") {
			kept = append(kept, line)
		}
	}
	var p comment.Parser
	text := (&comment.Printer{TextWidth: -1}).Text(p.Parse(strings.Join(kept, "")))
	return goLink.ReplaceAllString(strings.Join(strings.Fields(string(text)), " "), "$1")
}

// goLink is a link between Go names.
var goLink = regexp.MustCompile(`\[([A-Z]\w+)\]`)

// cell makes a text fit into a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(text)
}

// wrap breaks a text into lines of at most 100 columns.
func wrap(text string) string {
	const most = 100
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > most {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}

var documented = regexp.MustCompile(`^(Label|Annotation|Resource|PriorityClass)[A-Z]`)

// constants returns rows about labels, annotations and resources. A comment of a group is that of its first constant.
func constants(g *ast.GenDecl) []string {
	var rows []string
	for _, spec := range g.Specs {
		v, isValue := spec.(*ast.ValueSpec)
		if !isValue || len(v.Values) != 1 || !documented.MatchString(v.Names[0].Name) {
			continue
		}
		value, isText := v.Values[0].(*ast.BasicLit)
		if !isText {
			continue
		}
		says := prose(cmp.Or(v.Doc, v.Comment))
		switch {
		case says != "":
		case len(rows) == 0:
			says = prose(g.Doc)
		default:
			says = "as the others of its kind"
		}
		rows = append(rows, fmt.Sprintf("| %s | `%s` | %s |\n", strings.ReplaceAll(value.Value, `"`, "`"), v.Names[0].Name,
			cell(says)))
	}
	return rows
}
