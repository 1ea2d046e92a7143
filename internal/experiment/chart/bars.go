package chart

import "fmt"

// Bars compares percentages, each with what it should be in theory.
type Bars struct {
	Title, Desc string
	Bars        []Bar
}

// Bar is one of [Bars].
type Bar struct {
	Label  string
	Note   string  // below the label; "": none
	Value  float64 // percent
	Theory float64 // percent
	Strong bool    // it is the one to look at
}

func (b Bars) draw() *canvas {
	const top, row, thick, right = 34, 50, 26, 84
	left := 0.0
	for _, bar := range b.Bars {
		left = max(left, textWidth(bar.Label), 0.9*textWidth(bar.Note))
	}
	left += 18
	bottom := float64(top + row*len(b.Bars))
	c := &canvas{title: b.Title, desc: b.Desc, height: bottom + 26}
	x := func(percent float64) float64 { return left + percent/100*(width-right-left) }
	for p := 0.0; p <= 100; p += 25 {
		c.line("grid", x(p), top-4, x(p), bottom)
		c.text("soft small", "middle", x(p), bottom+17, fmt.Sprintf("%.0f %%", p))
	}
	for i, bar := range b.Bars {
		y := top + float64(row*i) + (row-thick)/2
		class, text := "other", ""
		if bar.Strong {
			class, text = "main", "strong"
		}
		labelY := y + thick/2 + 4.5
		if bar.Note != "" {
			c.text("soft small", "end", left-12, labelY+9, bar.Note)
			labelY -= 6
		}
		c.text(text, "end", left-12, labelY, bar.Label)
		c.rect(class, x(0), y, x(bar.Value)-x(0), thick)
		c.line("mark", x(bar.Theory), y-5, x(bar.Theory), y+thick+5)
		c.text(text, "start", max(x(bar.Value), x(bar.Theory))+9, y+thick/2+4.5, fmt.Sprintf("%.1f %%", bar.Value))
		c.describe("%s: %.1f %%, theory %.1f %%.", bar.Label, bar.Value, bar.Theory)
	}
	c.legend("mark", "theory")
	return c
}
