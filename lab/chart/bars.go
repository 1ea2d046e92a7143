// Package chart draws charts of measurements.
package chart

import (
	"fmt"
	"math"

	"github.com/waterline-io/waterline/internal/report/chart"
)

// Bars compares values, each with its theory or its reference.
type Bars struct {
	Title, Desc string
	Caption     string // names the values in the picture itself; "": none
	Unit        string // of the values; "": percent
	Mark        string // name of Theory in the legend; "": theory
	Bars        []Bar
}

// Bar is one of [Bars].
type Bar struct {
	Label  string
	Note   string  // below the label; "": none
	Value  float64 // not negative, like Theory
	Theory float64
	Strong bool // emphasised
}

// Draw implements [chart.Chart].
func (b Bars) Draw() *chart.Canvas {
	const top, row, thick, right = 34, 50, 26, 84
	left := 0.0
	for _, bar := range b.Bars {
		label := 1.1 * chart.TextWidth(bar.Label)
		if bar.Strong {
			label = 1.25 * chart.TextWidth(bar.Label)
		}
		left = max(left, label, chart.TextWidth(bar.Note))
	}
	left += 18
	bottom := float64(top + row*len(b.Bars))
	c := &chart.Canvas{Title: b.Title, Desc: b.Desc, Height: bottom + 26}
	end, tick := b.axis()
	x := func(v float64) float64 { return left + v/end*(chart.Width-right-left) }
	for i := 0.0; i*tick < end+tick/2; i++ {
		c.Line("grid", x(i*tick), top-4, x(i*tick), bottom)
		c.Text("soft small", "middle", x(i*tick), bottom+17, fmt.Sprintf("%.4g %s", i*tick, b.unit()))
	}
	for i, bar := range b.Bars {
		y := top + float64(row*i) + (row-thick)/2
		class, text := "other", ""
		if bar.Strong {
			class, text = "main", "strong"
		}
		labelY := y + thick/2 + 4.5
		if bar.Note != "" {
			c.Text("soft small", "end", left-12, labelY+9, bar.Note)
			labelY -= 6
		}
		c.Text(text, "end", left-12, labelY, bar.Label)
		c.Rect(class, x(0), y, x(bar.Value)-x(0), thick)
		c.Line("mark", x(bar.Theory), y-5, x(bar.Theory), y+thick+5)
		c.Text(text, "start", max(x(bar.Value), x(bar.Theory))+9, y+thick/2+4.5, b.text(bar.Value))
		c.Describe("%s: %s, %s %s.", bar.Label, b.text(bar.Value), b.mark(), b.text(bar.Theory))
	}
	if b.Caption != "" {
		c.Text("soft small", "start", left, 18, b.Caption)
	}
	c.Legend("mark", b.mark())
	return c
}

// axis returns the end of the axis and the distance of its ticks. For percentages the end is 100 if no value is
// greater.
func (b Bars) axis() (end, tick float64) {
	most := 0.0
	for _, bar := range b.Bars {
		most = max(most, bar.Value, bar.Theory)
	}
	switch {
	case b.Unit == "" && most <= 100:
		return 100, 25
	case most == 0:
		return 1, 1
	}
	tick = chart.NiceStep(1.2 * most) // four to seven of them
	return tick * math.Ceil(most/tick), tick
}

func (b Bars) unit() string {
	if b.Unit == "" {
		return "%"
	}
	return b.Unit
}

func (b Bars) mark() string {
	if b.Mark == "" {
		return "theory"
	}
	return b.Mark
}

func (b Bars) text(v float64) string {
	if b.Unit == "" {
		return fmt.Sprintf("%.1f %%", v)
	}
	return fmt.Sprintf("%.2f %s", v, b.Unit)
}
