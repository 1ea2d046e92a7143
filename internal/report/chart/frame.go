package chart

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Line is a named series.
type Line struct {
	Name   string
	Values []float64 // each for an equal part of the time
	Strong bool      // emphasised
}

// Frame is the part of a picture in which values stand, in its coordinates.
type Frame struct{ Left, Right, Top, Bottom float64 }

// Axis returns the ticks and the end of an axis for values up to most. It has about eight ticks divided by fewer.
func Axis(most, fewer float64) (tick, end float64) {
	if most <= 0 {
		return 1, 1
	}
	tick = NiceStep(fewer * most)
	return tick, tick * math.Ceil(most/tick)
}

// Scale draws lines across the frame for values up to most. It returns the height at which a value stands.
func (f Frame) Scale(c *Canvas, most, fewer float64, unit string) (y func(float64) float64) {
	tick, end := Axis(most, fewer)
	y = func(v float64) float64 { return f.Bottom - v/end*(f.Bottom-f.Top) }
	for i := 0.0; i*tick < end+tick/2; i++ {
		c.Line("grid", f.Left, y(i*tick), f.Right, y(i*tick))
		c.Text("soft small", "end", f.Left-8, y(i*tick)+4, strings.TrimSpace(fmt.Sprintf("%.4g %s", i*tick, unit)))
	}
	return y
}

// Hours draws the hours of a day below the frame.
func (f Frame) Hours(c *Canvas) {
	for hour := 0; hour <= 24; hour += 4 {
		c.Text("soft small", "middle", f.Left+float64(hour)/24*(f.Right-f.Left), f.Bottom+18, fmt.Sprint(hour))
	}
	c.Text("soft small", "middle", (f.Left+f.Right)/2, f.Bottom+36, "hour of the day")
}

// Level returns the points of values that each hold for an equal part of the frame's width.
func (f Frame) Level(values []float64, y func(float64) float64) []float64 {
	var points []float64
	each := (f.Right - f.Left) / float64(max(len(values), 1))
	for i, v := range values {
		points = append(points, f.Left+float64(i)*each, y(v), f.Left+float64(i+1)*each, y(v))
	}
	return points
}

// Lines draws lines with their names to the right, and describes their means.
func (f Frame) Lines(c *Canvas, lines []Line, unit string, y func(float64) float64, name func(*Line) string) {
	const apart = 16
	labels := make([]float64, 0, len(lines)) // their heights
	for i := range lines {
		line, class := &lines[i], "line"
		if line.Strong {
			class = "line heavy"
		}
		if len(line.Values) > 0 {
			c.Path(class, f.Level(line.Values, y), false)
		}
		labels = append(labels, y(Last(line.Values)))
		c.Describe("%s: %.2f %s in the mean.", line.Name, Mean(line.Values), unit)
	}
	Spread(labels, apart, f.Bottom)
	for i := range lines {
		class := "small"
		if lines[i].Strong {
			class = "small strong"
		}
		c.Text(class, "start", f.Right+10, labels[i]+4, name(&lines[i]))
	}
}

// Highest returns the highest value of lines; 0 if there is none above.
func Highest(lines []Line) float64 {
	most := 0.0
	for _, line := range lines {
		for _, v := range line.Values {
			most = max(most, v)
		}
	}
	return most
}

// NiceStep returns a round distance between about eight ticks.
func NiceStep(end float64) float64 {
	rough := end / 8
	p := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= rough {
			return m * p
		}
	}
	return 10 * p
}

// Spread moves heights apart, upwards from the lowest, so that labels do not cover each other.
func Spread(heights []float64, apart, lowest float64) {
	order := make([]int, len(heights))
	for i := range order {
		order[i] = i
	}
	// From the bottom of the picture, where heights are great, to the top. Equals stay in their order.
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(heights[b], heights[a]), b-a) })
	limit := lowest
	for _, i := range order {
		heights[i] = min(heights[i], limit)
		limit = heights[i] - apart
	}
}

// Backwards returns points from the last to the first.
func Backwards(points []float64) []float64 {
	var all []float64
	for i := len(points) - 2; i >= 0; i -= 2 {
		all = append(all, points[i], points[i+1])
	}
	return all
}

// Last returns the last value; 0 if there is none.
func Last(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[len(values)-1]
}

// Mean returns the mean of values; 0 if there is none.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}
