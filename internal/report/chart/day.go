package chart

import "fmt"

// Day shows values in the course of a day. All lines have one value for each of some parts of the day, which are
// equally long.
type Day struct {
	Title, Desc string
	Lines       []Line
	Unit        string
	Caption     string
}

// dayFrame is the geometry of a day. Names stand to the right.
var dayFrame = Frame{Left: 56, Right: Width - 170, Top: 44, Bottom: 264}

// Draw implements [Chart].
func (d Day) Draw() *Canvas {
	f := dayFrame
	c := &Canvas{Title: d.Title, Desc: d.Desc, Height: f.Bottom + 44}
	y := f.Scale(c, Highest(d.Lines), 1, d.Unit)
	f.Hours(c)
	c.Text("soft small", "start", f.Left, 20, d.Caption)
	f.Lines(c, d.Lines, d.Unit, y, func(l *Line) string {
		return fmt.Sprintf("%s %.1f %s", l.Name, Mean(l.Values), d.Unit)
	})
	return c
}
