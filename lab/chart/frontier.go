package chart

import (
	"fmt"
	"math"

	"github.com/waterline-io/waterline/internal/report/chart"
)

// Frontier shows what is gained against what it costs, for each of some settings.
type Frontier struct {
	Title, Desc  string
	Gain, Cost   string // names of the axes, with their units
	Curves       []Curve
	CostsNothing string // what is said where all costs are 0
}

// Curve is one of a [Frontier].
type Curve struct {
	Name   string
	Strong bool
	Points []Point
}

// Point is one setting.
type Point struct {
	Label      string // of the setting; "": none
	Gain, Cost float64
}

// The geometry of a frontier.
const (
	frontTop, frontBottom = 44.0, 344.0
	frontLeft, frontRight = 70.0, chart.Width - 130.0
)

// Draw implements [chart.Chart].
func (f Frontier) Draw() *chart.Canvas {
	c := &chart.Canvas{Title: f.Title, Desc: f.Desc, Height: frontBottom + 50}
	gain, cost := 0.0, 0.0
	for _, curve := range f.Curves {
		for _, p := range curve.Points {
			gain, cost = max(gain, p.Gain), max(cost, p.Cost)
		}
	}
	y := chart.Frame{Left: frontLeft, Right: frontRight, Top: frontTop, Bottom: frontBottom}.Scale(c, gain, 1, "")
	costTick, costEnd := chart.Axis(cost, 1)
	x := func(v float64) float64 { return frontLeft + v/costEnd*(frontRight-frontLeft) }
	for i := 0.0; i*costTick < costEnd+costTick/2; i++ {
		c.Text("soft small", "middle", x(i*costTick), frontBottom+18, fmt.Sprintf("%.4g", i*costTick))
	}
	c.Text("soft small", "start", 8, 20, f.Gain)
	c.Text("soft small", "middle", (frontLeft+frontRight)/2, frontBottom+40, f.Cost)
	if cost == 0 && f.CostsNothing != "" {
		c.Text("soft", "middle", (frontLeft+frontRight)/2, (frontTop+frontBottom)/2, f.CostsNothing)
	}
	for i := range f.Curves {
		f.drawCurve(c, &f.Curves[i], x, y)
	}
	return c
}

// drawCurve draws one curve with its points.
func (f Frontier) drawCurve(c *chart.Canvas, curve *Curve, x, y func(float64) float64) {
	class, dot := "line", "other"
	if curve.Strong {
		class, dot = "line heavy", "main"
	}
	var points []float64
	for _, p := range curve.Points {
		points = append(points, x(p.Cost), y(p.Gain))
	}
	if len(points) > 0 {
		c.Path(class, points, false)
	}
	const apart = 13 // between two labels
	labelled := math.Inf(1)
	for i, p := range curve.Points {
		const size = 7
		c.Rect(dot, x(p.Cost)-size/2, y(p.Gain)-size/2, size, size)
		if curve.Strong && p.Label != "" && math.Abs(labelled-y(p.Gain)) >= apart {
			labelled = y(p.Gain)
			c.Text("small", "start", x(p.Cost)+9, y(p.Gain)+14, p.Label)
		}
		if i == len(curve.Points)-1 {
			c.Text("small strong", "start", x(p.Cost)+9, y(p.Gain)-4, curve.Name)
		}
		c.Describe("%s, %s: %.4g for %.4g.", curve.Name, p.Label, p.Gain, p.Cost)
	}
}
