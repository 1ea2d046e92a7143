package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// pageTemplate is the template of docs/results.md. A row of it is one figure, see [renderer.row].
//
//go:embed page.tmpl
var pageTemplate string

// render returns the page that a template makes of documents.
func render(from string, docs []document) (string, error) {
	r := renderer{docs: docs}
	t, err := template.New("page").Funcs(template.FuncMap{
		"head": r.head, "row": r.row, "machines": r.listMachines, "missing": r.listMissing,
	}).Parse(from)
	if err != nil {
		return "", fmt.Errorf("reading the page's template: %w", err)
	}
	var b strings.Builder
	if err := t.Execute(&b, nil); err != nil {
		return "", fmt.Errorf("composing the page: %w", err)
	}
	return strings.ReplaceAll(b.String(), noRow+"\n", ""), nil
}

// noRow stands for the row of a figure that was not measured.
const noRow = "\x00"

// renderer makes the parts of the page.
type renderer struct {
	docs     []document
	machines []string // they have letters, in the order in which rows name them
	missing  []string // titles of figures that were not measured
}

func (*renderer) head() string {
	return "| figure | measured | goal | best known peer | run | command |\n|---|---|---|---|---|---|"
}

// row returns the row of a figure. The document is that with this name, and the metrics are one of its metrics, or
// several with spaces between them, which are shown one after the other. One that begins with 100* goes from 0 to 1 and
// is shown in percent. The format is that of a value, with its unit. The goal is that of the last metric, see [goal].
// The peer is the best known peer's figure; empty: none is known.
func (r *renderer) row(title, doc, metrics, format string, goal goal, peer string) (string, error) {
	i := slices.IndexFunc(r.docs, func(d document) bool { return d.Name == doc })
	if i < 0 {
		r.missing = append(r.missing, title)
		return noRow, nil
	}
	d := &r.docs[i]
	var values []string
	names := strings.Fields(metrics)
	for i, name := range names {
		name, percent := strings.CutPrefix(name, "100*")
		v, measured := d.Metrics[name]
		if !measured {
			r.missing = append(r.missing, title)
			return noRow, nil
		}
		if percent {
			v *= 100
		}
		text := fmt.Sprintf(format, v)
		if i == len(names)-1 {
			met, err := goal.met(v, d.Metrics)
			if err != nil {
				return "", fmt.Errorf("%q: %w", title, err)
			}
			if !met {
				text = "**" + text + "**"
			}
		}
		values = append(values, text)
	}
	machine := slices.Index(r.machines, d.Machine)
	if machine < 0 {
		machine = len(r.machines)
		r.machines = append(r.machines, d.Machine)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s %c | `%s` |", title, strings.Join(values, " → "), goal, peer,
		d.When.Format(time.DateOnly), 'A'+machine, d.command()), nil
}

// listMachines returns the machines that the rows before it named.
func (r *renderer) listMachines() string {
	var all []string
	for i, machine := range r.machines {
		all = append(all, fmt.Sprintf("* %c: %s", 'A'+i, machine))
	}
	return strings.Join(all, "\n")
}

// listMissing returns the figures before it that were not measured.
func (r *renderer) listMissing() string {
	if len(r.missing) == 0 {
		return ""
	}
	return "\n\nNot measured yet:\n\n* " + strings.Join(r.missing, "\n* ")
}

// goal is what a figure is to be, as the page has it: "≤ 2 mCPU", "≥ 97 %", "0", "2 ± 3 %", or "theory ± 3 %". There
// theory is a metric from 0 to 1 of the same document; empty: it has no goal.
type goal string

// met reports whether a value meets the goal.
func (g goal) met(v float64, metrics map[string]float64) (bool, error) {
	words := strings.Fields(string(g))
	if len(words) == 0 {
		return true, nil
	}
	number := func(i int) (float64, error) {
		if i >= len(words) {
			return 0, fmt.Errorf("goal %q has too few words", g)
		}
		return strconv.ParseFloat(words[i], 64)
	}
	switch {
	case words[0] == "≤" || words[0] == "≥":
		limit, err := number(1)
		if words[0] == "≤" {
			return v <= limit, err
		}
		return v >= limit, err
	case len(words) == 1:
		want, err := number(0)
		return v == want, err
	case words[1] == "±":
		want, err := number(0)
		if theory, found := metrics[words[0]]; found {
			want, err = 100*theory, nil
		}
		if err != nil {
			return false, err
		}
		percent, err := number(2)
		return v >= want*(1-percent/100) && v <= want*(1+percent/100), err
	}
	return false, fmt.Errorf("goal %q is not understood", g)
}
