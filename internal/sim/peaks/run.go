package peaks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/sim/trace"

	"github.com/waterline-io/waterline/internal/model"
)

// Waterline is the name of our predictor in the tables.
const Waterline = "Waterline"

// Targets are the rates of violations that the frontier is drawn for; the first, 0, stands for the default.
func Targets() []float64 {
	return []float64{0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3}
}

// Result is how good the predictors were on one data set, looking ahead one horizon.
type Result struct {
	Dataset  string
	About    string
	Minor    bool
	Horizon  model.Horizon
	Files    []string
	Machines int
	Scores   []Score // the oracle first, then the published predictors, then Waterline's at its default
	Frontier []Point // Waterline's
}

// Point is one of the frontier.
type Point struct {
	Target float64 // rate of violations that was asked for
	Score  Score
}

// Ours returns the score of Waterline's predictor at its default.
func (r *Result) Ours() Score { return r.Scores[len(r.Scores)-1] }

// errShort says that nothing could be scored.
var errShort = errors.New("too short: two days come before the first prediction that is scored, and its horizon after it")

// Run scores all predictors on the data sets of these names, or on all that are there if none is named. It holds one file
// in memory at a time, and calls progress before each. What is there but too short is an error only if it is named, or if
// there is nothing else.
func Run(ctx context.Context, root string, names []string, progress func(file string)) ([]Result, error) {
	var sets []trace.Dataset
	for _, name := range names {
		d, found := trace.Find(name)
		if !found {
			return nil, fmt.Errorf("there is no data set %q", name)
		}
		sets = append(sets, d)
	}
	optional := len(sets) == 0
	if optional {
		sets = trace.Datasets()
	}
	var results []Result
	var short error
	for _, d := range sets {
		files, err := d.Files(root)
		if optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		two, err := runSet(ctx, d, files, progress)
		if optional && errors.Is(err, errShort) {
			short = err
			continue
		}
		if err != nil {
			return nil, err
		}
		results = append(results, two...)
	}
	if len(results) == 0 && short != nil {
		return nil, short
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("no traces in %s: it must have a directory such as %s", root, trace.Datasets()[0].Dir)
	}
	return results, nil
}

// runSet scores all predictors on one data set, for each horizon.
func runSet(ctx context.Context, d trace.Dataset, files []string, progress func(file string)) ([]Result, error) {
	targets := Targets()
	var results []Result
	var baselines []map[string]*Score
	var ours [][]Score
	for _, h := range []model.Horizon{model.Hour, model.Day} {
		results = append(results, Result{Dataset: d.Name, About: d.About, Minor: d.Minor, Horizon: h, Files: files})
		baselines = append(baselines, map[string]*Score{})
		ours = append(ours, make([]Score, len(targets)))
	}
	for _, file := range files {
		progress(file)
		machines, err := d.Read(file)
		if err != nil {
			return nil, err
		}
		for i := range machines {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("scoring %s: %w", file, err)
			}
			if machines[i].Limit() <= 0 {
				continue // it did nothing, and so says nothing
			}
			for r := range results {
				results[r].Machines++
				Baselines(&machines[i], d.Every, values(results[r].Horizon), baselines[r])
				Ours(&machines[i], d.Every, results[r].Horizon, targets, ours[r])
			}
		}
	}
	for r := range results {
		if ours[r][0].Times == 0 {
			return nil, fmt.Errorf("the traces of %s in %v: %w", d.Name, files, errShort)
		}
		for _, name := range Published() {
			results[r].Scores = append(results[r].Scores, *baselines[r][name])
		}
		ours[r][0].Name = Waterline
		results[r].Scores = append(results[r].Scores, ours[r][0])
		for i, t := range targets[1:] {
			results[r].Frontier = append(results[r].Frontier, Point{t, ours[r][i+1]})
		}
	}
	return results, nil
}

// values returns how many values of a trace a horizon has.
func values(h model.Horizon) int { return int(h.Length() / (trace.Step * time.Second)) }

// Published lists the names of the published predictors in the order of the tables, after that of the oracle.
func Published() []string {
	names := []string{Oracle}
	for _, b := range baselines() {
		names = append(names, b.name)
	}
	return slices.Clip(names)
}

// Metrics returns the figures that are written down, by the names under which others look for them: for each data set and
// horizon the share of violations and the mean savings, both from 0 to 1. The same follows for those of the published
// predictors that are quoted elsewhere.
func Metrics(results []Result) map[string]float64 {
	quoted := map[string]string{
		Waterline: "", FixedRatio: "_fixed_ratio", Google: "_google", VPA: "_vpa", Koordinator: "_koordinator", SeasonalMax: "_seasonal", Oracle: "_oracle",
	}
	m := map[string]float64{}
	for i := range results {
		r := &results[i]
		for _, s := range r.Scores {
			if name, found := quoted[s.Name]; found {
				m[r.key()+name+"_violations"] = s.Violations()
				m[r.key()+name+"_savings"] = s.Savings()
			}
		}
	}
	return m
}

// Frontiers returns the frontiers as series of equal length: targets, violations and savings, all shares from 0 to 1.
func Frontiers(results []Result) map[string][]float64 {
	m := map[string][]float64{}
	for i := range results {
		key := results[i].key() + "_frontier"
		for _, p := range results[i].Frontier {
			m[key+"_targets"] = append(m[key+"_targets"], p.Target)
			m[key+"_violations"] = append(m[key+"_violations"], p.Score.Violations())
			m[key+"_savings"] = append(m[key+"_savings"], p.Score.Savings())
		}
	}
	return m
}

func (r *Result) key() string { return r.Dataset + "_" + Short(r.Horizon) }

// Short writes a horizon as it stands in the names of figures.
func Short(h model.Horizon) string {
	if h == model.Day {
		return "24h"
	}
	return "1h"
}
