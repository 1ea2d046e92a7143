package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/report/chart"
)

func charts() map[string]chart.Chart {
	return map[string]chart.Chart{
		"bars": Bars{Title: "A <b> & title", Desc: "d", Bars: []Bar{
			{Label: `"quoted"`, Note: "<note>", Value: 33.3, Theory: 33, Strong: true}, {Label: "all", Value: 100, Theory: 100},
		}},
		"no bars": Bars{Title: "t", Desc: "d"},
		"bars with a unit": Bars{Title: "t", Desc: "d", Caption: "<p99>", Unit: "ms", Mark: "alone", Bars: []Bar{
			{Label: "a", Value: 7.31, Theory: 2}, {Label: "b", Value: 0},
		}},
		"no bars with a unit": Bars{Title: "t", Desc: "d", Unit: "ms"},
		"lines": Lines{Title: "t", Desc: "d", Mark: 1, MarkLabel: "&", Lines: []Line{
			{Name: "<a>", Values: []float64{0, 90, 91}, Theory: 89, Strong: true},
			{Name: "b", Values: []float64{50, 3, 3}, Theory: 4},
			{Name: "none"},
		}},
		"no lines": Lines{Title: "t", Desc: "d"},
		"steps":    Steps{Title: "t", Desc: "d", Values: []float64{0.1, 0.2, 7}, Unit: "ms", Goal: 20},
		"slow":     Steps{Title: "t", Desc: "d", Values: []float64{1, 4000}, Unit: "ms", Goal: 20},
		"stack": Stack{Title: "t", Desc: "d", Goal: 60, Unit: "ms", Caption: "p99", Over: Layer{"<a>", []float64{3, 4}},
			Layers: []Layer{{"a", []float64{1, 2}}, {"<b>", []float64{90, 80}}, {"c", []float64{9, 9}}},
			Below:  []chart.Line{{Name: "&", Values: []float64{1, 0}, Strong: true}, {Name: "none"}}},
		"no stack": Stack{Title: "t", Desc: "d"},
		"frontier": Frontier{Title: "t", Desc: "d", Gain: "<g>", Cost: "c", Curves: []Curve{
			{Name: "&", Strong: true, Points: []Point{{"<1>", 1, 2}, {"", 3, 4}}}, {Name: "none"},
			{Name: "b", Points: []Point{{"x", 0, 0}}},
		}},
		"free frontier": Frontier{Title: "t", Desc: "d", CostsNothing: "<nothing>", Curves: []Curve{
			{Name: "a", Points: []Point{{"x", 5, 0}}},
		}},
		"no steps": Steps{Title: "t", Desc: "d", Unit: "ms", Goal: 20},
	}
}

func TestWellFormed(t *testing.T) {
	for name, c := range charts() {
		for kind, text := range map[string]string{"inline": chart.Inline(c), "standalone": chart.Standalone(c)} {
			decoder := xml.NewDecoder(strings.NewReader(text))
			var seen []string
			for {
				token, err := decoder.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s, %s: %v in\n%s", name, kind, err, text)
				}
				if start, ok := token.(xml.StartElement); ok {
					seen = append(seen, start.Name.Local)
				}
			}
			if len(seen) < 3 || !slices.Equal(seen[:3], []string{"svg", "title", "desc"}) {
				t.Errorf("%s, %s begins with %v", name, kind, seen)
			}
			for _, bad := range []string{"NaN", "Inf", "%!"} {
				if strings.Contains(text, bad) {
					t.Errorf("%s, %s contains %s", name, kind, bad)
				}
			}
		}
	}
}

// TestAxis checks that no bar and no mark reaches beyond the axis.
func TestAxis(t *testing.T) {
	for _, tc := range []struct {
		unit      string
		values    []float64
		end, tick float64
	}{
		{"", nil, 100, 25},
		{"", []float64{33, 100}, 100, 25},
		{"", []float64{101.4, 100}, 120, 20},
		{"ms", nil, 1, 1},
		{"ms", []float64{0.3, 0.04}, 0.3, 0.05},
		{"ms", []float64{7.31, 2}, 8, 2},
		{"ms", []float64{2, 4000}, 4000, 1000},
	} {
		b := Bars{Unit: tc.unit}
		for i, v := range tc.values {
			if i%2 == 0 {
				b.Bars = append(b.Bars, Bar{Value: v})
			} else {
				b.Bars = append(b.Bars, Bar{Theory: v})
			}
		}
		end, tick := b.axis()
		if math.Abs(end-tc.end) > 1e-9 || math.Abs(tick-tc.tick) > 1e-9 {
			t.Errorf("%v %s: to %v by %v, not to %v by %v", tc.values, tc.unit, end, tick, tc.end, tc.tick)
		}
	}
}

// TestStack checks that each layer stands on those below it.
func TestStack(t *testing.T) {
	svg := chart.Inline(Stack{Title: "t", Layers: []Layer{{"a", []float64{25, 50}}, {"b", []float64{75, 25}}}})
	for _, path := range []string{
		`"main" d="M56.0 184.0L313.0 184.0L313.0 134.0L570.0 134.0L570.0 234.0L313.0 234.0L313.0 234.0L56.0 234.0Z"`,
		`"other" d="M56.0 34.0L313.0 34.0L313.0 84.0L570.0 84.0L570.0 134.0L313.0 134.0L313.0 184.0L56.0 184.0Z"`,
	} {
		if !strings.Contains(svg, path) {
			t.Errorf("%s is not in\n%s", path, svg)
		}
	}
}
