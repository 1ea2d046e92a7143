package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"time"

	"github.com/waterline-io/waterline/internal/report/chart"
)

//go:embed page.html
var page string

// Page is an HTML page that shows results. It needs nothing else: no scripts, no fonts, no network.
type Page struct {
	Title   string
	Lead    string // what was measured, and how
	Results []Result
	Commit  string
	Took    time.Duration
	Closing string  // what a reader must know of all results
	Again   []Again // how to repeat them
}

// Again is a command that repeats something.
type Again struct{ What, Command string }

// Write writes the page into a file, and makes the directory of the file if it is missing.
func (p Page) Write(file string) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"chart": func(c chart.Chart) template.HTML { return template.HTML(chart.Inline(c)) }, // it escapes all text
		"theme": func() template.CSS { return chart.Theme },
		"has":   func(m map[string]float64, name string) bool { _, found := m[name]; return found },
		"day":   func(t time.Time) string { return t.Local().Format("2 January 2006, 15:04") },
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("reading the report's template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return fmt.Errorf("composing the report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("making the report's directory: %w", err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
