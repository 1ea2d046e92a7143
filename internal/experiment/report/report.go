// Package report writes what experiments found as one HTML page that needs nothing else: no scripts, no fonts, no network.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"time"

	"github.com/waterline-io/waterline/internal/experiment"
	"github.com/waterline-io/waterline/internal/experiment/chart"
)

//go:embed report.html
var page string

// Page is a report.
type Page struct {
	Results []experiment.Result
	Commit  string
	Took    time.Duration
}

// Write writes the report into a file, making its directory if need be.
func Write(file string, p Page) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"chart": func(c chart.Chart) template.HTML { return template.HTML(chart.Inline(c)) }, // made by us, all text escaped
		"theme": func() template.CSS { return chart.Theme },
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
