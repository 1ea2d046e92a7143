package chart

import (
	"fmt"

	"github.com/waterline-io/waterline/internal/report/chart"
)

// Lines shows percentages second by second.
type Lines struct {
	Title, Desc string
	Lines       []Line
	Mark        float64 // the second of an event
	MarkLabel   string  // name of the event; "": none
}

// Line is one of [Lines].
type Line struct {
	Name   string
	Values []float64 // percent, one a second; the first second ends at 1
	Theory float64   // percent, from the mark on
	Strong bool      // emphasised
}

// Draw implements [chart.Chart].
func (l Lines) Draw() *chart.Canvas {
	const top, bottom, left, right, apart = 34, 270, 48, 140, 16
	c := &chart.Canvas{Title: l.Title, Desc: l.Desc, Height: bottom + 44}
	seconds := 1
	for _, line := range l.Lines {
		seconds = max(seconds, len(line.Values))
	}
	x := func(s float64) float64 { return left + s/float64(seconds)*(chart.Width-right-left) }
	y := func(p float64) float64 { return bottom - p/100*(bottom-top) }
	for p := 0.0; p <= 100; p += 25 {
		c.Line("grid", left, y(p), chart.Width-right, y(p))
		c.Text("soft small", "end", left-8, y(p)+4, fmt.Sprintf("%.0f %%", p))
	}
	for s := 0; s <= seconds; s += max(1, seconds/10) {
		c.Text("soft small", "middle", x(float64(s)), bottom+18, fmt.Sprint(s))
	}
	c.Text("soft small", "middle", (left+chart.Width-right)/2, bottom+36, "seconds")
	if l.MarkLabel != "" {
		c.Line("grid", x(l.Mark), top-10, x(l.Mark), bottom)
		c.Text("soft small", "middle", x(l.Mark), top-14, l.MarkLabel)
	}
	labels := make([]float64, len(l.Lines)) // their heights
	for i, line := range l.Lines {
		if len(line.Values) == 0 {
			continue
		}
		class := "line"
		if line.Strong {
			class = "line heavy"
		}
		// A value is the mean of a second, so it is level for as long.
		var points []float64
		for s, value := range line.Values {
			points = append(points, x(float64(s)), y(value), x(float64(s+1)), y(value))
		}
		c.Path(class, points, false)
		c.Line("dash", x(l.Mark), y(line.Theory), chart.Width-right, y(line.Theory))
		labels[i] = y(chart.Last(line.Values))
		c.Describe("%s ends at %.1f %%, theory %.1f %%.", line.Name, chart.Last(line.Values), line.Theory)
	}
	chart.Spread(labels, apart, bottom)
	for i, line := range l.Lines {
		if len(line.Values) == 0 {
			continue
		}
		class := "small"
		if line.Strong {
			class = "small strong"
		}
		text := fmt.Sprintf("%s %.1f %%", line.Name, chart.Last(line.Values))
		c.Text(class, "start", chart.Width-right+10, labels[i]+4, text)
	}
	c.Legend("dash", "theory")
	return c
}
