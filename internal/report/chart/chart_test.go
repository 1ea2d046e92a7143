package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func charts() map[string]Chart {
	return map[string]Chart{
		"stages": Stages{Title: "t", Desc: "d", Names: [2]string{"<online>", "batch"}, Unit: "s", Caption: "<short>",
			Stages: []Stage{
				{"alone", []float64{9, 10}, []float64{0, 0}, []float64{0, 0}},
				{"&", []float64{9, 10}, []float64{50, 60}, []float64{1, 7}},
				{Name: "none"},
			}},
		"day": Day{Title: "t", Desc: "d", Unit: "%", Caption: "<c>", Lines: []Line{
			{Name: "<a>", Values: []float64{3, 4, 9}, Strong: true}, {Name: "b", Values: []float64{0, 0, 0}}, {Name: "none"},
		}},
		"no day":    Day{Title: "t", Desc: "d"},
		"no stages": Stages{Title: "t", Desc: "d"},
	}
}

func TestWellFormed(t *testing.T) {
	for name, c := range charts() {
		for kind, text := range map[string]string{"inline": Inline(c), "standalone": Standalone(c)} {
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

func TestSpread(t *testing.T) {
	heights := []float64{260, 262, 100, 262}
	Spread(heights, 16, 270)
	sorted := slices.Sorted(slices.Values(heights))
	for i := 1; i < len(sorted); i++ {
		if sorted[i]-sorted[i-1] < 16 {
			t.Errorf("labels at %v touch", heights)
		}
	}
	if heights[2] != 100 {
		t.Errorf("a label that stood alone was moved to %v", heights[2])
	}
}

// TestPlain checks that each variable has the light colour before it.
func TestPlain(t *testing.T) {
	want := ":root{--wl-card:#fff;--wl-ink:#123}@media (x){:root{--wl-card:#000}}" +
		".a{fill:#fff;fill:var(--wl-card);stroke:#123;stroke:var(--wl-ink);stroke-width:1}"
	got := plain(":root{--wl-card:#fff;--wl-ink:#123}@media (x){:root{--wl-card:#000}}" +
		".a{fill:var(--wl-card);stroke:var(--wl-ink);stroke-width:1}")
	if got != want {
		t.Errorf("%s, not %s", got, want)
	}
}
