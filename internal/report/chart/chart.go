// Package chart draws the few kinds of charts that reports need. The charts are SVG with a text for screen readers.
// They take their colours from the page, so that they fit light and dark ones.
package chart

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Chart is a chart that can be drawn as SVG.
type Chart interface {
	Draw() *Canvas
}

// Theme declares the colours as CSS variables, and the classes that charts use. A page with charts needs it once, in a
// style element.
const Theme = `:root{--wl-page:#fbfcfd;--wl-card:#fff;--wl-ink:#13222d;--wl-soft:#566876;--wl-line:#e1e8ed;--wl-main:#0879a0;--wl-other:#9db6c5;--wl-mark:#c2410c;--wl-good:#15803d;--wl-bad:#b42318}
@media (prefers-color-scheme:dark){:root{--wl-page:#0c1318;--wl-card:#131c23;--wl-ink:#e6edf2;--wl-soft:#97a9b6;--wl-line:#273641;--wl-main:#3cbfea;--wl-other:#557183;--wl-mark:#fb9a5b;--wl-good:#4ade80;--wl-bad:#f97066}}
.wl-chart{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums}
.wl-chart text{fill:var(--wl-ink)}
.wl-chart .soft{fill:var(--wl-soft)}
.wl-chart .small{font-size:11.5px}
.wl-chart .strong{font-weight:600}
.wl-chart .grid{stroke:var(--wl-line);stroke-width:1}
.wl-chart .main{fill:var(--wl-main)}
.wl-chart .other{fill:var(--wl-other)}
.wl-chart .rest{fill:var(--wl-soft)}
.wl-chart .cost{fill:var(--wl-mark)}
.wl-chart .area{fill:var(--wl-main);opacity:.12}
.wl-chart .line{fill:none;stroke:var(--wl-other);stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round}
.wl-chart .line.heavy{stroke:var(--wl-main);stroke-width:2.75}
.wl-chart .line.over{stroke:var(--wl-ink)}
.wl-chart .mark{stroke:var(--wl-mark);stroke-width:2}
.wl-chart .dash{stroke:var(--wl-mark);stroke-width:1.5;stroke-dasharray:5 4}
.wl-chart .marktext{fill:var(--wl-mark)}
`

// Inline returns the chart for a page that has [Theme].
func Inline(c Chart) string { return c.Draw().svg("") }

// Standalone returns the chart as a file of its own.
func Standalone(c Chart) string {
	style := "<style>" + html.EscapeString(plain(Theme+".back{fill:var(--wl-card)}")) + "</style>"
	return `<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
		c.Draw().svg(style+`<rect class="back" width="100%" height="100%"/>`)
}

var (
	variable = regexp.MustCompile(`--wl-([a-z]+):(#[0-9a-f]+)`)
	coloured = regexp.MustCompile(`(fill|stroke):var\(--wl-([a-z]+)\)`)
)

// plain puts the light colour before each variable, for viewers that are no browser and know no variables: they drop
// the declaration that they do not understand, and would draw everything black.
func plain(css string) string {
	light := map[string]string{}
	for _, m := range variable.FindAllStringSubmatch(css, -1) {
		if light[m[1]] == "" {
			light[m[1]] = m[2]
		}
	}
	return coloured.ReplaceAllStringFunc(css, func(declaration string) string {
		m := coloured.FindStringSubmatch(declaration)
		return m[1] + ":" + light[m[2]] + ";" + declaration
	})
}

// Width is the width of every chart; pages scale it.
const Width = 720

// Canvas collects the elements of a chart.
type Canvas struct {
	Title, Desc string
	Height      float64
	body        strings.Builder
}

func (c *Canvas) svg(prelude string) string {
	id := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(c.Title))
	return fmt.Sprintf(`<svg class="wl-chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" role="img"`+
		` aria-labelledby="%s-t %s-d"><title id="%s-t">%s</title><desc id="%s-d">%s</desc>%s`+"\n%s</svg>\n",
		Width, c.Height, id, id, id, html.EscapeString(c.Title), id, html.EscapeString(c.Desc), prelude, c.body.String())
}

// Describe adds to the text for screen readers.
func (c *Canvas) Describe(format string, args ...any) { c.Desc += " " + fmt.Sprintf(format, args...) }

// Line draws a line between two points.
func (c *Canvas) Line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.body, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x1, y1, x2, y2)
}

// Rect draws a rectangle from its upper left corner.
func (c *Canvas) Rect(class string, x, y, w, h float64) {
	fmt.Fprintf(&c.body, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3"/>`+"\n",
		class, x, y, max(w, 0), h)
}

// Text writes at a point; anchor is "start", "middle" or "end".
func (c *Canvas) Text(class, anchor string, x, y float64, s string) {
	fmt.Fprintf(&c.body, `<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`+"\n",
		class, anchor, x, y, html.EscapeString(s))
}

// Path draws through points that are given as x and y in turn.
func (c *Canvas) Path(class string, points []float64, closed bool) {
	fmt.Fprintf(&c.body, `<path class="%s" d="`, class)
	for i := 0; i+1 < len(points); i += 2 {
		letter := 'L'
		if i == 0 {
			letter = 'M'
		}
		fmt.Fprintf(&c.body, "%c%.1f %.1f", letter, points[i], points[i+1])
	}
	if closed {
		c.body.WriteByte('Z')
	}
	c.body.WriteString(`"/>` + "\n")
}

// TextWidth estimates the width of a text.
func TextWidth(s string) float64 { return 7 * float64(utf8.RuneCountInString(s)) }

// Legend explains the mark, at the top right.
func (c *Canvas) Legend(class, text string) {
	c.Line(class, Width-TextWidth(text)-34, 14, Width-TextWidth(text)-12, 14)
	c.Text("soft small", "end", Width-4, 18, text)
}
