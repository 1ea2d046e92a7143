package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
)

func number(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// page returns the report of simulated days. The first section is the result.
func (r *clusterRun) page(all *report.Result, days []clusterDay, took time.Duration) report.Page {
	last := &days[len(days)-1]
	use := *all
	use.Name, use.About = "CPU", strings.ToUpper(all.About[:1])+all.About[1:]+"."
	use.Table = report.Table{Head: slices.Clone(all.Table.Head[:7])}
	for _, row := range all.Table.Rows {
		use.Table.Rows = append(use.Table.Rows, row[:7]) // the other sections have the rest
	}
	use.Headline.Value = fmt.Sprintf("%.0f → %.0f %%", last.OnlinePercent, last.CPUPercent)
	sections := []report.Result{use, batchSection(all, days), balanceSection(all, days)}
	if last.Pool != nil {
		sections = append(sections, poolSection(all, days))
	}
	return report.Page{
		Title: "A simulated day", Commit: builtFrom(), Took: took,
		Lead: "Recorded usage, replayed as online pods on nodes that decide as Waterline's agents do. A scheduler places " +
			"all pods, batch pods run on what online pods leave, and the manager grants evictions. Time is virtual.",
		Results: sections,
		Closing: "docs/simulate.md lists all assumptions, and what means of minutes cannot show.",
		Again:   []report.Again{{What: "To see the options", Command: "waterline simulate cluster --help"}},
	}
}

// section returns a section about the same days: a chart of one series, and a table with a row for each day.
func section(
	all *report.Result, days []clusterDay, name, about string, picture chart.Day, series func(*clusterDay) []float64,
	head []string, row func(*clusterDay) []string,
) report.Result {
	r := report.Result{Name: name, About: about, When: all.When, Machine: all.Machine}
	r.Table.Head = append([]string{all.Table.Head[0]}, head...)
	picture.Unit = "%"
	for i := range days {
		d := &days[i]
		picture.Lines = append(picture.Lines, chart.Line{Name: d.text, Values: series(d), Strong: i == len(days)-1})
		r.Table.Rows = append(r.Table.Rows, append([]string{d.text}, row(d)...))
	}
	r.Chart = picture
	return r
}

// batchSection shows what batch was offered and used.
func batchSection(all *report.Result, days []clusterDay) report.Result {
	r := section(all, days, "batch", "CPU that nodes offered to batch, and what became of batch pods.",
		chart.Day{
			Title: "Batch in the course of the day", Desc: "CPU that batch used.",
			Caption: "CPU that batch used, in percent of all CPUs",
		},
		func(d *clusterDay) []float64 { return d.Hours.Batch },
		[]string{
			"offered %", "used %", "core-hours", "ended pods", "evicted", "lost core-h", "memory short min", "writes/s",
		},
		func(d *clusterDay) []string {
			return []string{
				number(d.OfferedPercent, 1), number(d.BatchPercent, 1), number(d.BatchHours, 0), strconv.Itoa(d.Ended),
				strconv.Itoa(d.Evicted), number(d.Lost, 1), number(d.ShortMemory, 1), number(d.NodeWrites+d.ReportWrites, 2),
			}
		})
	r.Headline.Value = number(days[len(days)-1].BatchHours, 0) + " core-hours"
	r.Notes = []string{"Memory short: minutes of a node and day in which online pods used memory that batch pods " +
		"requested. Writes: of all agents to the API."}
	return r
}

// balanceSection shows how equal nodes are.
func balanceSection(all *report.Result, days []clusterDay) report.Result {
	r := section(all, days, "balance", "How much the nodes' CPU by online pods differs, and which weights are met.",
		chart.Day{
			Title: "Balance in the course of the day", Desc: "Standard deviation of the nodes' CPU by online pods.",
			Caption: "standard deviation of the nodes' CPU by online pods, in percent of a node",
		},
		func(d *clusterDay) []float64 { return d.Hours.OnlineSpread },
		[]string{"std.dev. %", "highest node %", "above line min", "lacked core-h", "weights met %"},
		func(d *clusterDay) []string {
			return []string{
				number(d.OnlineSpread, 2), number(d.Highest, 1), number(d.OnlineAbove, 1), number(d.LackedHours, 1),
				number(d.WeightsMet, 1),
			}
		})
	r.Headline.Value = number(days[len(days)-1].OnlineSpread, 1) + " % deviation"
	r.Notes = []string{"Above line: minutes of a node and day in which online pods alone used more than the " +
		"waterline. Lacked: CPU that online pods wanted beyond their whole node. Weights met: pods with a weight that " +
		"would get 90 % of the CPU that it lets them expect, if all pods wanted CPU."}
	return r
}
