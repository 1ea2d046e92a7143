package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/experiment"
	"github.com/waterline-io/waterline/internal/experiment/chart"
)

func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "index.html")
	err := Write(file, Page{Commit: "abc", Took: time.Minute, Results: []experiment.Result{{
		Name: "weights", About: "one & two", Machine: "2 × <CPU>", Metrics: map[string]float64{"steal_percent": 1, "load_1m": 2},
		Headline: experiment.Headline{Value: "2 : 1", Goal: "so", Met: true},
		Table:    experiment.Table{Head: []string{"pod"}, Rows: [][]string{{"<i>"}}},
		Chart:    chart.Bars{Title: "t", Bars: []chart.Bar{{Label: "heavy", Value: 1}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, want := range []string{"one &amp; two", "2 × &lt;CPU&gt;", "&lt;i&gt;", "<svg", "prefers-color-scheme", "commit abc"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	// The namespace of SVG is the only address in it: nothing is loaded from anywhere.
	rest := strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
	for _, bad := range []string{"http:", "https:", "<script", "url(", "ZgotmplZ"} {
		if strings.Contains(rest, bad) {
			t.Errorf("%q is in it", bad)
		}
	}
}
