package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// section is one table of the page.
type section struct {
	title   string
	note    string // below the table; empty: none
	figures []figure
}

// figure is one row of a table.
type figure struct {
	title  string
	doc    string  // name of the document
	metric string  // or several, with spaces between them, which are shown one after the other; the goal is the last one's
	format string  // of a value, with its unit
	scale  float64 // the metric is multiplied by it; 0: by 1
	goal   goal
	peer   string // best known peer's figure; empty: none known
}

// goal is what a figure is to be. The zero value is no goal.
type goal struct {
	text string
	met  func(value float64, metrics map[string]float64) bool
}

// number writes a limit with its unit.
func number(limit float64, unit string) string {
	return strings.TrimSpace(fmt.Sprintf("%v %s", limit, unit))
}

// atMost is the goal of a figure that is to be small.
func atMost(limit float64, unit string) goal {
	return goal{"≤ " + number(limit, unit), func(v float64, _ map[string]float64) bool { return v <= limit }}
}

// atLeast is the goal of a figure that is to be large.
func atLeast(limit float64, unit string) goal {
	return goal{"≥ " + number(limit, unit), func(v float64, _ map[string]float64) bool { return v >= limit }}
}

// zero is the goal of a count of errors.
func zero() goal { return goal{"0", func(v float64, _ map[string]float64) bool { return v == 0 }} }

// about is the goal of a figure that is to be within some percent of a value.
func about(want, percent float64) goal {
	met := func(v float64, _ map[string]float64) bool { return near(v, want, percent) }
	return goal{fmt.Sprintf("%v ± %v %%", want, percent), met}
}

// theory is the goal of a share that is to be within some percent of another metric of its document, both from 0 to 1.
func theory(metric string, percent float64) goal {
	met := func(v float64, m map[string]float64) bool { return near(v, 100*m[metric], percent) }
	return goal{fmt.Sprintf("theory ± %v %%", percent), met}
}

func near(v, want, percent float64) bool {
	return v >= want*(1-percent/100) && v <= want*(1+percent/100)
}

// render returns the page. Machines have letters, in the order in which figures name them.
func render(sections []section, docs []document) string {
	var b strings.Builder
	b.WriteString(`# Results

The newest measurement of each figure, its goal, and the best known peer's figure. Bold figures miss
their goal. Machines are shared and noisy: ratios hold better than absolute times. Peers' figures
are from their manifests, sources and articles, unless a row says measured. Column run has the date
and the [machine](#machines). ` + "`make results`" + ` writes this page from results.json and out/bench;
git keeps earlier figures.

![CPU of the machine in the course of a day, and p99 of Redis](headline.svg)
`)
	var machines, missing []string
	for _, s := range sections {
		var rows strings.Builder
		for _, f := range s.figures {
			i := slices.IndexFunc(docs, func(d document) bool { return d.Name == f.doc })
			if i < 0 {
				missing = append(missing, f.title)
				continue
			}
			d := &docs[i]
			value, measured := f.values(d.Metrics)
			if !measured {
				missing = append(missing, f.title)
				continue
			}
			machine := slices.Index(machines, d.Machine)
			if machine < 0 {
				machine = len(machines)
				machines = append(machines, d.Machine)
			}
			fmt.Fprintf(&rows, "| %s | %s | %s | %s | %s %c | `%s` |\n", f.title, value, f.goal.text,
				f.peer, d.When.Format(time.DateOnly), 'A'+machine, d.command())
		}
		if rows.Len() == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n| figure | measured | goal | best known peer | run | command "+
			"|\n|---|---|---|---|---|---|\n%s",
			s.title, &rows)
		if s.note != "" {
			fmt.Fprintf(&b, "\n%s\n", s.note)
		}
	}
	b.WriteString("\n## Machines\n\n")
	for i, machine := range machines {
		fmt.Fprintf(&b, "* %c: %s\n", 'A'+i, machine)
	}
	if len(missing) > 0 {
		b.WriteString("\nNot measured yet:\n\n")
		for _, title := range missing {
			fmt.Fprintf(&b, "* %s\n", title)
		}
	}
	return b.String()
}

// values writes the metrics of the figure; false if one was not measured.
func (f figure) values(metrics map[string]float64) (text string, measured bool) {
	var all []string
	names := strings.Fields(f.metric)
	for i, name := range names {
		v, measured := metrics[name]
		if !measured {
			return "", false
		}
		one := f
		if i < len(names)-1 {
			one.goal = goal{}
		}
		all = append(all, one.value(v, metrics))
	}
	return strings.Join(all, " → "), true
}

// value writes a metric; bold if it misses the goal.
func (f figure) value(v float64, metrics map[string]float64) string {
	if f.scale != 0 {
		v *= f.scale
	}
	text := fmt.Sprintf(f.format, v)
	if f.goal.met != nil && !f.goal.met(v, metrics) {
		return "**" + text + "**"
	}
	return text
}
