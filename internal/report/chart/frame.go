package chart

import (
	"fmt"
	"math"
	"strings"
)

// frame is the part of a picture in which values stand, in its coordinates.
type frame struct{ left, right, top, bottom float64 }

// axis returns the ticks and the end of an axis for values up to most. It has about eight ticks divided by fewer.
func axis(most, fewer float64) (tick, end float64) {
	if most <= 0 {
		return 1, 1
	}
	tick = niceStep(fewer * most)
	return tick, tick * math.Ceil(most/tick)
}

// scale draws lines across the frame for values up to most. It returns the height at which a value stands.
func (f frame) scale(c *canvas, most, fewer float64, unit string) (y func(float64) float64) {
	tick, end := axis(most, fewer)
	y = func(v float64) float64 { return f.bottom - v/end*(f.bottom-f.top) }
	for i := 0.0; i*tick < end+tick/2; i++ {
		c.line("grid", f.left, y(i*tick), f.right, y(i*tick))
		c.text("soft small", "end", f.left-8, y(i*tick)+4, strings.TrimSpace(fmt.Sprintf("%.4g %s", i*tick, unit)))
	}
	return y
}

// hours draws the hours of a day below the frame.
func (f frame) hours(c *canvas) {
	for hour := 0; hour <= 24; hour += 4 {
		c.text("soft small", "middle", f.left+float64(hour)/24*(f.right-f.left), f.bottom+18, fmt.Sprint(hour))
	}
	c.text("soft small", "middle", (f.left+f.right)/2, f.bottom+36, "hour of the day")
}

// level returns the points of values that each hold for an equal part of the frame's width.
func (f frame) level(values []float64, y func(float64) float64) []float64 {
	var points []float64
	each := (f.right - f.left) / float64(max(len(values), 1))
	for i, v := range values {
		points = append(points, f.left+float64(i)*each, y(v), f.left+float64(i+1)*each, y(v))
	}
	return points
}

// lines draws lines with their names to the right, and describes their means.
func (f frame) lines(c *canvas, lines []Line, unit string, y func(float64) float64, name func(*Line) string) {
	const apart = 16
	labels := make([]float64, 0, len(lines)) // their heights
	for i := range lines {
		line, class := &lines[i], "line"
		if line.Strong {
			class = "line heavy"
		}
		if len(line.Values) > 0 {
			c.path(class, f.level(line.Values, y), false)
		}
		labels = append(labels, y(last(line.Values)))
		c.describe("%s: %.2f %s in the mean.", line.Name, mean(line.Values), unit)
	}
	spread(labels, apart, f.bottom)
	for i := range lines {
		class := "small"
		if lines[i].Strong {
			class = "small strong"
		}
		c.text(class, "start", f.right+10, labels[i]+4, name(&lines[i]))
	}
}

// highest returns the highest value of lines; 0 if there is none above.
func highest(lines []Line) float64 {
	most := 0.0
	for _, line := range lines {
		for _, v := range line.Values {
			most = max(most, v)
		}
	}
	return most
}
