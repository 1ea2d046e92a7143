package chart

import (
	"fmt"
	"math"
)

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
	stackTop, stackBottom  = 34.0, 234.0
	belowTop, belowBottom  = 282.0, 402.0
	stackLeft, stackRight  = 56.0, width - 150.0
	stackLabels            = stackRight + 10
	stackApart, stackHours = 16, 24
)

func (s Stack) draw() *canvas {
	c := &canvas{title: s.Title, desc: s.Desc, height: belowBottom + 44}
	s.drawLayers(c)
	s.drawBelow(c)
	for hour := 0; hour <= stackHours; hour += 4 {
		x := stackLeft + float64(hour)/stackHours*(stackRight-stackLeft)
		c.text("soft small", "middle", x, belowBottom+18, fmt.Sprint(hour))
	}
	c.text("soft small", "middle", (stackLeft+stackRight)/2, belowBottom+36, "hour of the day")
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
		c.path(classes[i], append(level(sum, y), backwards(level(before, y))...), true)
		labels = append(labels, y((last(before)+last(sum))/2))
		c.describe("%s: %.1f %% in the mean.", layer.Name, mean(layer.Values))
	}
	if len(s.Over.Values) > 0 {
		c.path("line over", level(s.Over.Values, y), false)
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

// drawBelow draws the lower part.
func (s Stack) drawBelow(c *canvas) {
	most := 0.0
	for _, line := range s.Below {
		for _, v := range line.Values {
			most = max(most, v)
		}
	}
	end, tick := 1.0, 1.0
	if most > 0 {
		tick = niceStep(2 * most) // two to five of them
		end = tick * math.Ceil(most/tick)
	}
	y := func(v float64) float64 { return belowBottom - v/end*(belowBottom-belowTop) }
	for i := 0.0; i*tick < end+tick/2; i++ {
		c.line("grid", stackLeft, y(i*tick), stackRight, y(i*tick))
		c.text("soft small", "end", stackLeft-8, y(i*tick)+4, fmt.Sprintf("%.4g %s", i*tick, s.Unit))
	}
	c.text("soft small", "start", stackLeft, belowTop-14, s.Caption)
	labels := make([]float64, 0, len(s.Below))
	for _, line := range s.Below {
		class := "line"
		if line.Strong {
			class = "line heavy"
		}
		if len(line.Values) > 0 {
			c.path(class, level(line.Values, y), false)
		}
		labels = append(labels, y(last(line.Values)))
		c.describe("%s: %.2f %s in the mean.", line.Name, mean(line.Values), s.Unit)
	}
	spread(labels, stackApart, belowBottom)
	for i, line := range s.Below {
		class := "small"
		if line.Strong {
			class = "small strong"
		}
		c.text(class, "start", stackLabels, labels[i]+4, line.Name)
	}
}

// level returns the points of values that each hold for a part of the day.
func level(values []float64, y func(float64) float64) []float64 {
	var points []float64
	each := (stackRight - stackLeft) / float64(len(values))
	for i, v := range values {
		points = append(points, stackLeft+float64(i)*each, y(v), stackLeft+float64(i+1)*each, y(v))
	}
	return points
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
