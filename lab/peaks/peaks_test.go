package peaks

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/lab/dataset"
)

// realTraces returns where the real traces stand: beside the repository, of which they are no part, or where the
// environment says.
func realTraces(t *testing.T) string {
	t.Helper()
	dir := cmp.Or(os.Getenv("WATERLINE_TRACES"), "../../../shared/traces")
	if found, _ := filepath.Glob(filepath.Join(dir, "*", "*_dev.csv.gz")); len(found) == 0 {
		t.Skipf("no real traces in %s", dir)
	}
	return dir
}

// TestSameAsScript checks that the published predictors score as in predictor_baselines.py: its output of 2026-11-21,
// for the files with the suffix _dev. Columns: predictions, share of violations, mean shortfall, savings.
func TestSameAsScript(t *testing.T) {
	dir := realTraces(t)
	results, err := Run(t.Context(), dir, []string{"alibaba2018", "bitbrains"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("testdata/predictor_baselines.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, h := range []model.Horizon{model.Hour, model.Day} { // the script's order
		for _, r := range results {
			if r.Horizon != h {
				continue
			}
			fmt.Fprintln(&got, "##", r.Dataset, HorizonName(h))
			for _, s := range r.Scores[:len(r.Scores)-1] {
				fmt.Fprintf(&got, "%d %.3f %.4f %.3f\n", s.Times, s.Violations(), s.MeanShortfall(), s.Savings())
			}
		}
	}
	if got.String() != string(script) {
		t.Errorf("other than the script's figures:\n%s", got.String())
	}
}

// TestTargets checks what the predictor is to reach on real traces; docs/results.md has the figures.
func TestTargets(t *testing.T) {
	var only []string
	if testing.Short() {
		only = []string{"cloudcluster", "nab"} // TestSameAsScript has scores of the others
	}
	results, err := Run(t.Context(), realTraces(t), only, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	m := Metrics(results)
	for _, goal := range []struct {
		key                 string
		violations, savings float64
	}{
		{"alibaba2018_1h", 0.025, 0.30}, {"bitbrains_1h", 0.01, 0.58}, {"cloudcluster_1h", 0.025, 0.51},
		{"nab_1h", 0.02, 0.48}, {"alibaba2018_24h", 0.05, 0.13}, {"bitbrains_24h", 0.01, 0.46},
	} {
		if dataset, _, _ := strings.Cut(goal.key, "_"); only != nil && !slices.Contains(only, dataset) {
			continue
		}
		if v, s := m[goal.key+"_violations"], m[goal.key+"_savings"]; v > goal.violations || s < goal.savings || v == 0 {
			t.Errorf("%s: %.4f violations with %.4f savings; goal %.3f with %.2f", goal.key, v, s, goal.violations, goal.savings)
		}
	}
	for _, r := range results {
		for i, p := range r.Frontier[1:] {
			if before := r.Frontier[i].Score; p.Score.Savings() < before.Savings() || p.Score.Violated < before.Violated {
				t.Errorf("%s %s: target %g saves less, or violates less, than a lower one", r.Dataset, HorizonName(r.Horizon),
					p.Target)
			}
		}
	}
}

// write makes a directory of traces with one file.
func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

// alibaba writes a generated machine as a trace of Alibaba's.
func alibaba(days int) string {
	var b strings.Builder
	b.WriteString("machine_id,time_s,cpu_util_percent\n")
	m := dataset.Generate(trace.Online(days), 1)
	for i, v := range m.Parts[0] {
		fmt.Fprintf(&b, "m_1,%d,%.2f\n", m.Times[i], v)
	}
	return b.String()
}

// TestGenerated scores usage of ours, so that what is scored where is checked without the real traces.
func TestGenerated(t *testing.T) {
	root := write(t, "alibaba2018-machines", "machine_usage_other.csv", alibaba(8))
	var read []string
	if err := os.Mkdir(filepath.Join(root, "nab-aws"), 0o755); err != nil {
		t.Fatal(err)
	}
	results, err := Run(t.Context(), root, nil, func(file string) { read = append(read, filepath.Base(file)) })
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 || !slices.Equal(read, []string{"machine_usage_other.csv"}) {
		t.Fatalf("%d results of %v", len(results), read)
	}
	for _, r := range results {
		n, horizon := 8*day, values(r.Horizon)
		times := 0
		for now := warmUp; now+horizon < n; now++ {
			if now%3 == 0 {
				times++
			}
		}
		oracle, ours := r.Scores[0], r.Waterline()
		if r.Machines != 1 || oracle.Times != times || ours.Times != times {
			t.Errorf("%s: %d machines, %d and %d predictions, not %d", HorizonName(r.Horizon), r.Machines, oracle.Times,
				ours.Times, times)
		}
		if oracle.Violated != 0 || oracle.Savings() < ours.Savings() || r.Horizon == model.Hour && ours.Violations() > 0.05 {
			t.Errorf("%s: the oracle %+v, ours %+v", HorizonName(r.Horizon), oracle, ours)
		}
	}
	if m := Metrics(results); len(m) != 4*7 || m["alibaba2018_1h_oracle_violations"] != 0 ||
		m["alibaba2018_24h_savings"] == 0 {
		t.Errorf("metrics %v", m)
	}
	if f := Frontiers(results); len(f) != 6 || len(f["alibaba2018_1h_frontier_savings"]) != len(Targets())-1 {
		t.Errorf("frontiers %v", f)
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		root  string
		names []string
		want  string
	}{
		"no traces":    {t.TempDir(), nil, "no traces in"},
		"no such set":  {t.TempDir(), []string{"borg"}, `no data set "borg"`},
		"set not here": {t.TempDir(), []string{"bitbrains"}, "looking for traces of bitbrains"},
		"too short":    {write(t, "cloudcluster-pools", "a.csv", "minute_epoch,cpu_used_units\n5,2\n"), nil, "too short"},
		"no limit":     {write(t, "cloudcluster-pools", "a.csv", "minute_epoch,cpu_used_units\n5,0\n"), nil, "too short"},
		"bad value": {
			write(t, "cloudcluster-pools", "a.csv", "minute_epoch,cpu_used_units\n5,two\n"), nil,
			`a.csv, line 2: cpu_used_units is "two"`,
		},
	} {
		if _, err := Run(t.Context(), c.root, c.names, func(string) {}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := write(t, "alibaba2018-machines", "a.csv", alibaba(6))
	if _, err := Run(ctx, root, nil, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := Run(t.Context(), root, []string{"nab"}, func(string) {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a set that is not here: %v", err)
	}
}

// TestShort checks that what is too short keeps nobody from scoring the rest.
func TestShort(t *testing.T) {
	root := write(t, "alibaba2018-machines", "a.csv", alibaba(6))
	if err := os.Mkdir(filepath.Join(root, "nab-aws"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "nab-aws", "b.csv"), []byte("timestamp,value\n2014-02-14 14:30:00,1\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	results, err := Run(t.Context(), root, nil, func(string) {})
	if err != nil || len(results) != 2 {
		t.Errorf("%d results, %v", len(results), err)
	}
	if _, err := Run(t.Context(), root, []string{"nab"}, func(string) {}); !errors.Is(err, errTooShort) {
		t.Errorf("too short, but asked for: %v", err)
	}
}

// TestHistogram compares the decaying histogram with a plain sum over all values.
func TestHistogram(t *testing.T) {
	h := newHistogram(10)
	var values []float64
	for i := range 5000 { // long enough that weights are scaled down on the way
		v := float64(i*7919%1000) / 1000
		h.add(v)
		values = append(values, v)
	}
	for _, q := range []float64{0.5, 0.9, 0.98} {
		weights := map[int]float64{}
		sum := 0.0
		for i, v := range values {
			w := math.Exp2(float64(i-len(values)) / 10)
			weights[int(math.Log(max(v, 1e-3)/1e-3)/math.Log(1.05))] += w
			sum += w
		}
		below, want := 0.0, 0.0
		for b := range 142 {
			if below += weights[b]; want == 0 && below >= q*sum {
				want = 1e-3 * math.Pow(1.05, float64(b+1))
			}
		}
		if got := h.quantile(q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %g is %g, not %g", q, got, want)
		}
	}
}
