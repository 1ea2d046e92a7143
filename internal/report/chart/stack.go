package chart

import "fmt"

// Stack shows the parts of a percentage in the course of a day, and below them other values in the course of the same
// day. All have one value for each of some parts of the day, which are equally long.
type Stack struct {
	Title, Desc string
	Layers      []Layer // one upon the other, the first at the bottom; three at most
	Over        Layer   // a line across them
	Goal        float64 // percent that the layers should reach together
	Below       []Line  // only Name, Values and Strong are used
	Unit        string  // of Below
	Caption     string  // of Below
}

// Layer is one of a [Stack].
type Layer struct {
	Name   string
	Values []float64 // percent
}

// The geometry of a stack. Both parts have the same hours.
const (
	stackTop, stackBottom = 34.0, 234.0
	stackLeft, stackRight = 56.0, width - 150.0
	stackLabels           = stackRight + 10
	stackApart            = 16
)

var (
	stackFrame = frame{left: stackLeft, right: stackRight, top: stackTop, bottom: stackBottom}
	belowFrame = frame{left: stackLeft, right: stackRight, top: 282, bottom: 402}
)

func (s Stack) draw() *canvas {
	c := &canvas{title: s.Title, desc: s.Desc, height: belowFrame.bottom + 44}
	s.drawLayers(c)
	s.drawBelow(c)
	belowFrame.hours(c)
	return c
}

// drawLayers draws the upper part.
func (s Stack) drawLayers(c *canvas) {
	y := func(p float64) float64 { return stackBottom - p/100*(stackBottom-stackTop) }
	for p := 0.0; p <= 100; p += 25 {
		c.line("grid", stackLeft, y(p), stackRight, y(p))
		c.text("soft small", "end", stackLeft-8, y(p)+4, fmt.Sprintf("%.0f %%", p))
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
		c.path(classes[i], append(stackFrame.level(sum, y), backwards(stackFrame.level(before, y))...), true)
		labels = append(labels, y((last(before)+last(sum))/2))
		c.describe("%s: %.1f %% in the mean.", layer.Name, mean(layer.Values))
	}
	if len(s.Over.Values) > 0 {
		c.path("line over", stackFrame.level(s.Over.Values, y), false)
		c.describe("%s: %.1f %% in the mean.", s.Over.Name, mean(s.Over.Values))
	}
	spread(labels, stackApart, stackBottom)
	for i, layer := range s.Layers {
		c.rect(classes[i], stackLabels, labels[i]-5, 10, 10)
		c.text("small", "start", stackLabels+16, labels[i]+4, fmt.Sprintf("%s %.0f %%", layer.Name, mean(layer.Values)))
	}
	c.line("dash", stackLeft, y(s.Goal), stackRight, y(s.Goal))
	c.text("soft small", "start", stackLeft, 18, "CPU of the machine")
	at := float64(stackRight)
	legend := []struct{ class, text string }{
		{"dash", fmt.Sprintf("goal for the mean, %.0f %%", s.Goal)}, {"line over", s.Over.Name},
	}
	for _, l := range legend {
		if l.text == "" {
			continue
		}
		c.text("soft small", "end", at, 18, l.text)
		at -= textWidth(l.text) - 4
		c.line(l.class, at-22, 14, at, 14)
		at -= 38
	}
}

// drawBelow draws the lower part, with two to five ticks.
func (s Stack) drawBelow(c *canvas) {
	f := belowFrame
	y := f.scale(c, highest(s.Below), 2, s.Unit)
	c.text("soft small", "start", f.left, f.top-14, s.Caption)
	f.lines(c, s.Below, s.Unit, y, func(l *Line) string { return l.Name })
}

// backwards returns points from the last to the first.
func backwards(points []float64) []float64 {
	var all []float64
	for i := len(points) - 2; i >= 0; i -= 2 {
		all = append(all, points[i], points[i+1])
	}
	return all
}

func last(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[len(values)-1]
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}
