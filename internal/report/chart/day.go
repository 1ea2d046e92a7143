package chart

import "fmt"

// Day shows values in the course of a day. All lines have one value for each of some parts of the day, which are
// equally long.
type Day struct {
	Title, Desc string
	Lines       []Line // only Name, Values and Strong are used
	Unit        string
	Caption     string
}

// dayFrame is the geometry of a day. Names stand to the right.
var dayFrame = frame{left: 56, right: width - 170, top: 44, bottom: 264}

func (d Day) draw() *canvas {
	f := dayFrame
	c := &canvas{title: d.Title, desc: d.Desc, height: f.bottom + 44}
	y := f.scale(c, highest(d.Lines), 1, d.Unit)
	f.hours(c)
	c.text("soft small", "start", f.left, 20, d.Caption)
	f.lines(c, d.Lines, d.Unit, y, func(l *Line) string {
		return fmt.Sprintf("%s %.1f %s", l.Name, mean(l.Values), d.Unit)
	})
	return c
}
