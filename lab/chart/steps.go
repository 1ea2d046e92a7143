package chart

import (
	"fmt"
	"math"

	"github.com/waterline-io/waterline/internal/report/chart"
)

// Steps is a percentile chart: it shows which part of all values is below each value.
type Steps struct {
	Title, Desc string
	Values      []float64 // sorted, not negative
	Unit        string
	Goal        float64 // for the 99th percentile; the axis reaches beyond
}

// Draw implements [chart.Chart].
func (s Steps) Draw() *chart.Canvas {
	const top, bottom, left, right = 34, 270, 48, 30
	c := &chart.Canvas{Title: s.Title, Desc: s.Desc, Height: bottom + 44}
	end := 1.2 * s.Goal
	if n := len(s.Values); n > 0 {
		end = max(end, 1.05*s.Values[n-1])
	}
	tick := chart.NiceStep(end)
	x := func(v float64) float64 { return left + v/end*(chart.Width-right-left) }
	y := func(p float64) float64 { return bottom - p/100*(bottom-top) }
	for p := 0.0; p <= 100; p += 25 {
		c.Line("grid", left, y(p), chart.Width-right, y(p))
		c.Text("soft small", "end", left-8, y(p)+4, fmt.Sprintf("%.0f %%", p))
	}
	for v := 0.0; v <= end; v += tick {
		c.Text("soft small", "middle", x(v), bottom+18, fmt.Sprintf("%g", v))
	}
	c.Text("soft small", "middle", (left+chart.Width-right)/2, bottom+36, s.Unit)
	c.Line("dash", x(s.Goal), top-10, x(s.Goal), bottom)
	c.Text("marktext small", "middle", x(s.Goal), top-16, fmt.Sprintf("goal %g %s", s.Goal, s.Unit))
	if len(s.Values) == 0 {
		return c
	}
	points := []float64{x(0), y(0)}
	for i, v := range s.Values {
		n := float64(len(s.Values))
		points = append(points, x(v), y(100*float64(i)/n), x(v), y(100*float64(i+1)/n))
	}
	points = append(points, x(end), y(100))
	c.Path("area", append(points, x(end), y(0)), true)
	c.Path("line heavy", points, false)
	wordsX := x(s.Goal) - 24
	if wordsX < left+260 {
		wordsX = min(x(s.Goal)+200, chart.Width-right)
	}
	for i, p := range []float64{50, 99, 100} {
		v := s.Values[max(int(math.Ceil(p/100*float64(len(s.Values))))-1, 0)]
		name := fmt.Sprintf("p%.0f", p)
		if p == 100 {
			name = "slowest"
		}
		wordsY := y(62) + float64(i)*22
		c.Text("strong", "end", wordsX, wordsY, fmt.Sprintf("%.2f %s", v, s.Unit))
		c.Text("soft", "end", wordsX-80, wordsY, name)
		c.Describe("%s: %.2f %s.", name, v, s.Unit)
	}
	return c
}
