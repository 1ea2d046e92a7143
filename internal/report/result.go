// Package report presents what an experiment or a simulation measured: as a table, as JSON, as a chart, and as an HTML
// page.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/waterline-io/waterline/internal/report/chart"
)

// Result is what an experiment measured.
type Result struct {
	Name     string
	About    string // the experiment, in one sentence
	When     time.Time
	Machine  string
	Metrics  map[string]float64   // each key ends in its unit, unless it is a ratio
	Series   map[string][]float64 // values over time or by run
	Headline Headline
	Table    Table
	Chart    chart.Chart
	Notes    []string // what a reader must know to judge the figures
}

// Headline is the one figure that an experiment is run for.
type Headline struct {
	Value string
	Goal  string // "": there is none
	Met   bool
}

// String returns the headline in one line.
func (h Headline) String() string {
	verdict := "met"
	if !h.Met {
		verdict = "NOT met"
	}
	return fmt.Sprintf("%s (goal: %s; %s)", h.Value, h.Goal, verdict)
}

// Begin returns the result of an experiment that begins now.
func Begin(name, about string) Result {
	return Result{
		Name: name, About: about, When: time.Now().UTC().Truncate(time.Second),
		Metrics: map[string]float64{}, Series: map[string][]float64{},
	}
}

// JSON returns the result in the form of all Waterline's figures. The commit is that of the measured build.
func (r *Result) JSON(commit string) ([]byte, error) {
	text, err := json.MarshalIndent(struct {
		Name    string               `json:"name"`
		When    time.Time            `json:"when"`
		Machine string               `json:"machine"`
		Commit  string               `json:"commit"`
		Metrics map[string]float64   `json:"metrics"`
		Series  map[string][]float64 `json:"series,omitempty"`
	}{r.Name, r.When, r.Machine, commit, r.Metrics, r.Series}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the result of %s: %w", r.Name, err)
	}
	return append(text, '\n'), nil
}

// Save writes the figures and the chart into files. A name of "" means that the file is not wanted.
func (r *Result) Save(jsonFile, svgFile, commit string) error {
	if jsonFile != "" {
		text, err := r.JSON(commit)
		if err != nil {
			return err
		}
		if err := os.WriteFile(jsonFile, text, 0o644); err != nil {
			return fmt.Errorf("writing the figures: %w", err)
		}
	}
	if svgFile != "" {
		if err := os.WriteFile(svgFile, []byte(chart.Standalone(r.Chart)), 0o644); err != nil {
			return fmt.Errorf("writing the chart: %w", err)
		}
	}
	return nil
}

// Print writes the result for a person.
func (r *Result) Print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\n%s\n", r.Name, r.About, r.Table)
	if r.Headline.Value != "" {
		fmt.Fprintln(w, r.Headline)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, note)
	}
}

// Table is a result in rows. The first column is text, the others are numbers.
type Table struct {
	Head []string
	Rows [][]string
}

// String lays the table out for a terminal: the first column to the left, the others to the right.
func (t Table) String() string {
	const gap = 2
	lines := append([][]string{t.Head}, t.Rows...)
	first := 0
	for _, cells := range lines {
		first = max(first, utf8.RuneCountInString(cells[0]))
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, gap, ' ', tabwriter.AlignRight)
	for _, cells := range lines {
		// tabwriter aligns all columns alike. The first is as wide as its widest cell already.
		fmt.Fprintf(w, "%-*s\t", first, cells[0])
		for _, cell := range cells[1:] {
			fmt.Fprint(w, cell, "\t")
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // a Builder takes everything
	rows := strings.SplitAfter(b.String(), "\n")
	for i := range rows {
		rows[i] = strings.TrimPrefix(rows[i], strings.Repeat(" ", gap))
	}
	return strings.Join(rows, "")
}
