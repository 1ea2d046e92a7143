package chart

import (
	"fmt"

	"github.com/waterline-io/waterline/internal/report/chart"
)

// Stack shows the parts of a percentage in the course of a day, and below them other values in the course of the same
// day. All have one value for each of some parts of the day, which are equally long.
type Stack struct {
	Title, Desc string
	Layers      []Layer // one upon the other, the first at the bottom; three at most
	Over        Layer   // a line across them
	Goal        float64 // percent that the layers should reach together
	Below       []chart.Line
	Unit        string // of Below
	Caption     string // of Below
}

// Layer is one of a [Stack].
type Layer struct {
	Name   string
	Values []float64 // percent
}

// The geometry of a stack. Both parts have the same hours.
const (
	stackTop, stackBottom = 34.0, 234.0
	stackLeft, stackRight = 56.0, chart.Width - 150.0
	stackLabels           = stackRight + 10
	stackApart            = 16
)

var (
	stackFrame = chart.Frame{Left: stackLeft, Right: stackRight, Top: stackTop, Bottom: stackBottom}
	belowFrame = chart.Frame{Left: stackLeft, Right: stackRight, Top: 282, Bottom: 402}
)

// Draw implements [chart.Chart].
func (s Stack) Draw() *chart.Canvas {
	c := &chart.Canvas{Title: s.Title, Desc: s.Desc, Height: belowFrame.Bottom + 44}
	s.drawLayers(c)
	s.drawBelow(c)
	belowFrame.Hours(c)
	return c
}

// drawLayers draws the upper part.
func (s Stack) drawLayers(c *chart.Canvas) {
	y := func(p float64) float64 { return stackBottom - p/100*(stackBottom-stackTop) }
	for p := 0.0; p <= 100; p += 25 {
		c.Line("grid", stackLeft, y(p), stackRight, y(p))
		c.Text("soft small", "end", stackLeft-8, y(p)+4, fmt.Sprintf("%.0f %%", p))
	}
	classes := []string{"main", "other", "rest"}
	var sum, labels []float64
	for i, layer := range s.Layers {
		before := make([]float64, len(layer.Values))
		copy(before, sum)
		sum = make([]float64, len(layer.Values))
		for j, v := range layer.Values {
			sum[j] = before[j] + v
		}
		c.Path(classes[i], append(stackFrame.Level(sum, y), chart.Backwards(stackFrame.Level(before, y))...), true)
		labels = append(labels, y((chart.Last(before)+chart.Last(sum))/2))
		c.Describe("%s: %.1f %% in the mean.", layer.Name, chart.Mean(layer.Values))
	}
	if len(s.Over.Values) > 0 {
		c.Path("line over", stackFrame.Level(s.Over.Values, y), false)
		c.Describe("%s: %.1f %% in the mean.", s.Over.Name, chart.Mean(s.Over.Values))
	}
	chart.Spread(labels, stackApart, stackBottom)
	for i, layer := range s.Layers {
		c.Rect(classes[i], stackLabels, labels[i]-5, 10, 10)
		c.Text("small", "start", stackLabels+16, labels[i]+4, fmt.Sprintf("%s %.0f %%", layer.Name, chart.Mean(layer.Values)))
	}
	c.Line("dash", stackLeft, y(s.Goal), stackRight, y(s.Goal))
	c.Text("soft small", "start", stackLeft, 18, "CPU of the machine")
	at := float64(stackRight)
	legend := []struct{ class, text string }{
		{"dash", fmt.Sprintf("goal for the mean, %.0f %%", s.Goal)}, {"line over", s.Over.Name},
	}
	for _, l := range legend {
		if l.text == "" {
			continue
		}
		c.Text("soft small", "end", at, 18, l.text)
		at -= chart.TextWidth(l.text) - 4
		c.Line(l.class, at-22, 14, at, 14)
		at -= 38
	}
}

// drawBelow draws the lower part, with two to five ticks.
func (s Stack) drawBelow(c *chart.Canvas) {
	f := belowFrame
	y := f.Scale(c, chart.Highest(s.Below), 2, s.Unit)
	c.Text("soft small", "start", f.Left, f.Top-14, s.Caption)
	f.Lines(c, s.Below, s.Unit, y, func(l *chart.Line) string { return l.Name })
}
