package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/report/chart"
)

func TestJSON(t *testing.T) {
	r := Result{
		Name: "weights", When: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), Machine: "2 × CPU",
		Metrics: map[string]float64{"ratio": 2.01}, Series: map[string][]float64{"ratio": {2, 2.02}},
	}
	text, err := r.JSON("abc")
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	const golden = `{"name":"weights","when":"2026-05-01T12:00:00Z","machine":"2 × CPU","commit":"abc",` +
		`"metrics":{"ratio":2.01},"series":{"ratio":[2,2.02]}}`
	if err := json.Unmarshal([]byte(golden), &want); err != nil {
		t.Fatal(err)
	}
	a, err1 := json.Marshal(got)
	b, err2 := json.Marshal(want)
	if err1 != nil || err2 != nil || string(a) != string(b) {
		t.Errorf("%s\nnot %s", a, b)
	}
}

func TestTable(t *testing.T) {
	table := Table{Head: []string{"pod", "share"}, Rows: [][]string{{"light × 2", "9 %"}, {"a", "91.0 %"}}}
	const want = "pod         share\nlight × 2     9 %\na          91.0 %\n"
	if got := table.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "index.html")
	err := Page{Title: "A & B", Lead: "<lead>", Closing: "closing", Commit: "abc", Took: time.Minute, Results: []Result{{
		Name: "weights", About: "one & two", Machine: "2 × <CPU>",
		Metrics:  map[string]float64{"steal_percent": 1, "load_1m": 2},
		Headline: Headline{Value: "2 : 1", Goal: "so", Met: true},
		Table:    Table{Head: []string{"pod"}, Rows: [][]string{{"<i>"}}},
		Chart:    chart.Day{Title: "t", Lines: []chart.Line{{Name: "heavy", Values: []float64{1}}}},
	}, {Name: "no goal", Headline: Headline{Value: "5"}, Chart: chart.Day{}}},
		Again: []Again{{"To repeat", "a <b>"}}}.Write(file)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, want := range []string{
		"A &amp; B", "&lt;lead&gt;", "closing The run took 60 s. To repeat: <code>a &lt;b&gt;</code>.", "goal: so",
		"1.0 % of", "one &amp; two", "2 × &lt;CPU&gt;", "&lt;i&gt;", "<svg", "prefers-color-scheme", "commit abc",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	// The namespace of SVG is the only address in the page: a browser loads nothing else.
	rest := strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
	for _, bad := range []string{"http:", "https:", "<script", "url(", "ZgotmplZ"} {
		if strings.Contains(rest, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
}
