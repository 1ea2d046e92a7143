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
	stagesLeft, stagesRight = 56.0, Width - 12.0
	stagesGap               = 12.0 // between two of them
)

// Draw implements [Chart].
func (s Stages) Draw() *Canvas {
	c := &Canvas{Title: s.Title, Desc: s.Desc, Height: costBottom + 44}
	y := func(p float64) float64 { return stagesBottom - p/100*(stagesBottom-stagesTop) }
	for p := 0.0; p <= 100; p += 25 {
		c.Line("grid", stagesLeft, y(p), stagesRight, y(p))
		c.Text("soft small", "end", stagesLeft-8, y(p)+4, fmt.Sprintf("%.0f %%", p))
	}
	most := 0.0
	for _, stage := range s.Stages {
		most = max(most, Highest([]Line{{Values: stage.Below}}))
	}
	below := Frame{Left: stagesLeft, Right: stagesRight, Top: costTop, Bottom: costBottom}.Scale(c, most, 3, s.Unit)
	n := float64(max(len(s.Stages), 1))
	each := (stagesRight - stagesLeft - stagesGap*(n-1)) / n
	for i, stage := range s.Stages {
		left := stagesLeft + float64(i)*(each+stagesGap)
		s.drawStage(c, &stage, left, left+each, y, below)
	}
	s.key(c)
	c.Text("soft small", "start", stagesLeft, costTop-14, s.Caption)
	c.Text("soft small", "middle", (stagesLeft+stagesRight)/2, costBottom+38, "hour of the day")
	return c
}

// drawStage draws one stage between two positions.
func (s Stages) drawStage(c *Canvas, stage *Stage, left, right float64, y, below func(float64) float64) {
	at := Frame{Left: left, Right: right}.Level
	base, sum := make([]float64, len(stage.Lower)), make([]float64, len(stage.Lower))
	for i, v := range stage.Lower {
		if sum[i] = v; i < len(stage.Upper) {
			sum[i] += stage.Upper[i]
		}
	}
	if len(sum) > 0 {
		c.Path("other", append(at(stage.Lower, y), Backwards(at(base, y))...), true)
		c.Path("main", append(at(sum, y), Backwards(at(stage.Lower, y))...), true)
	}
	if len(stage.Below) > 0 {
		c.Path("cost", append(at(stage.Below, below), Backwards(at(make([]float64, len(stage.Below)), below))...), true)
	}
	c.Text("strong", "middle", (left+right)/2, stagesTop-30, fmt.Sprintf("%.0f %%", Mean(sum)))
	c.Text("soft small", "middle", (left+right)/2, stagesTop-14, stage.Name)
	c.Text("soft small", "middle", (left+right)/2, costTop+10, fmt.Sprintf("%.1f %s", Mean(stage.Below), s.Unit))
	for hour := 0; hour <= 24; hour += 12 {
		anchor := []string{"start", "middle", "end"}[hour/12]
		c.Text("soft small", anchor, left+float64(hour)/24*(right-left), costBottom+18, fmt.Sprint(hour))
	}
	c.Describe("%s: %.1f %% in the mean, of it %s %.1f %%; below, %.1f %s.", stage.Name, Mean(sum), s.Names[0],
		Mean(stage.Lower), Mean(stage.Below), s.Unit)
}

// key explains the colours, at the top left.
func (s Stages) key(c *Canvas) {
	x := float64(stagesLeft)
	for i, class := range []string{"other", "main"} {
		c.Rect(class, x, 9, 10, 10)
		c.Text("small", "start", x+16, 18, s.Names[i])
		x += 30 + TextWidth(s.Names[i])
	}
}
