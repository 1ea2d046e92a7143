package chart

import "fmt"

// Stages shows the same day several times, once for each stage: above, the parts of a percentage, and below, what it
// cost at the same times.
type Stages struct {
	Title, Desc string
	Names       [2]string // of the two parts, the lower first
	Caption     string    // of what is below
	Unit        string    // of what is below
	Stages      []Stage   // six at most
}

// Stage is one of [Stages]. All series have one value for each of some parts of the day, which are equally long.
type Stage struct {
	Name         string
	Lower, Upper []float64 // percent
	Below        []float64
}

// The geometry of stages.
const (
	stagesTop, stagesBottom = 70.0, 270.0
	costTop, costBottom     = 316.0, 386.0
	stagesLeft, stagesRight = 56.0, width - 12.0
	stagesGap               = 12.0 // between two of them
)

func (s Stages) draw() *canvas {
	c := &canvas{title: s.Title, desc: s.Desc, height: costBottom + 44}
	y := func(p float64) float64 { return stagesBottom - p/100*(stagesBottom-stagesTop) }
	for p := 0.0; p <= 100; p += 25 {
		c.line("grid", stagesLeft, y(p), stagesRight, y(p))
		c.text("soft small", "end", stagesLeft-8, y(p)+4, fmt.Sprintf("%.0f %%", p))
	}
	most := 0.0
	for _, stage := range s.Stages {
		for _, v := range stage.Below {
			most = max(most, v)
		}
	}
	below := frame{left: stagesLeft, right: stagesRight, top: costTop, bottom: costBottom}.scale(c, most, 3, s.Unit)
	n := float64(max(len(s.Stages), 1))
	each := (stagesRight - stagesLeft - stagesGap*(n-1)) / n
	for i, stage := range s.Stages {
		left := stagesLeft + float64(i)*(each+stagesGap)
		s.drawStage(c, &stage, left, left+each, y, below)
	}
	s.key(c)
	c.text("soft small", "start", stagesLeft, costTop-14, s.Caption)
	c.text("soft small", "middle", (stagesLeft+stagesRight)/2, costBottom+38, "hour of the day")
	return c
}

// drawStage draws one stage between two positions.
func (s Stages) drawStage(c *canvas, stage *Stage, left, right float64, y, below func(float64) float64) {
	at := frame{left: left, right: right}.level
	base, sum := make([]float64, len(stage.Lower)), make([]float64, len(stage.Lower))
	for i, v := range stage.Lower {
		if sum[i] = v; i < len(stage.Upper) {
			sum[i] += stage.Upper[i]
		}
	}
	if len(sum) > 0 {
		c.path("other", append(at(stage.Lower, y), backwards(at(base, y))...), true)
		c.path("main", append(at(sum, y), backwards(at(stage.Lower, y))...), true)
	}
	if len(stage.Below) > 0 {
		c.path("cost", append(at(stage.Below, below), backwards(at(make([]float64, len(stage.Below)), below))...), true)
	}
	c.text("strong", "middle", (left+right)/2, stagesTop-30, fmt.Sprintf("%.0f %%", mean(sum)))
	c.text("soft small", "middle", (left+right)/2, stagesTop-14, stage.Name)
	c.text("soft small", "middle", (left+right)/2, costTop+10, fmt.Sprintf("%.1f %s", mean(stage.Below), s.Unit))
	for hour := 0; hour <= 24; hour += 12 {
		anchor := []string{"start", "middle", "end"}[hour/12]
		c.text("soft small", anchor, left+float64(hour)/24*(right-left), costBottom+18, fmt.Sprint(hour))
	}
	c.describe("%s: %.1f %% in the mean, of it %s %.1f %%; below, %.1f %s.", stage.Name, mean(sum), s.Names[0],
		mean(stage.Lower), mean(stage.Below), s.Unit)
}

// key explains the colours, at the top left.
func (s Stages) key(c *canvas) {
	x := float64(stagesLeft)
	for i, class := range []string{"other", "main"} {
		c.rect(class, x, 9, 10, 10)
		c.text("small", "start", x+16, 18, s.Names[i])
		x += 30 + textWidth(s.Names[i])
	}
}
