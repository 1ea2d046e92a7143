package chart

import (
	"fmt"
	"slices"
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

func (l Lines) draw() *canvas {
	const top, bottom, left, right, apart = 34, 270, 48, 140, 16
	c := &canvas{title: l.Title, desc: l.Desc, height: bottom + 44}
	seconds := 1
	for _, line := range l.Lines {
		seconds = max(seconds, len(line.Values))
	}
	x := func(s float64) float64 { return left + s/float64(seconds)*(width-right-left) }
	y := func(p float64) float64 { return bottom - p/100*(bottom-top) }
	for p := 0.0; p <= 100; p += 25 {
		c.line("grid", left, y(p), width-right, y(p))
		c.text("soft small", "end", left-8, y(p)+4, fmt.Sprintf("%.0f %%", p))
	}
	for s := 0; s <= seconds; s += max(1, seconds/10) {
		c.text("soft small", "middle", x(float64(s)), bottom+18, fmt.Sprint(s))
	}
	c.text("soft small", "middle", (left+width-right)/2, bottom+36, "seconds")
	if l.MarkLabel != "" {
		c.line("grid", x(l.Mark), top-10, x(l.Mark), bottom)
		c.text("soft small", "middle", x(l.Mark), top-14, l.MarkLabel)
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
		c.path(class, points, false)
		c.line("dash", x(l.Mark), y(line.Theory), width-right, y(line.Theory))
		labels[i] = y(last(line.Values))
		c.describe("%s ends at %.1f %%, theory %.1f %%.", line.Name, last(line.Values), line.Theory)
	}
	spread(labels, apart, bottom)
	for i, line := range l.Lines {
		if len(line.Values) == 0 {
			continue
		}
		class := "small"
		if line.Strong {
			class = "small strong"
		}
		text := fmt.Sprintf("%s %.1f %%", line.Name, last(line.Values))
		c.text(class, "start", width-right+10, labels[i]+4, text)
	}
	c.legend("dash", "theory")
	return c
}

// spread moves heights apart, upwards from the lowest, so that labels do not cover each other.
func spread(heights []float64, apart, lowest float64) {
	order := make([]int, len(heights))
	for i := range order {
		order[i] = i
	}
	// From the bottom of the picture, where heights are great, to the top. Equals stay in their order.
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case heights[a] > heights[b]:
			return -1
		case heights[a] < heights[b]:
			return 1
		}
		return b - a
	})
	limit := lowest
	for _, i := range order {
		heights[i] = min(heights[i], limit)
		limit = heights[i] - apart
	}
}
