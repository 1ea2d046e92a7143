package peaks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/lab/dataset"
)

// Waterline is the name of Waterline's predictor in the tables.
const Waterline = "Waterline"

// Targets returns the target rates of violations on the frontier. The first, 0, means the predictor's default.
func Targets() []float64 {
	return []float64{0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3}
}

// Result holds the scores of all predictors on one data set, for one horizon.
type Result struct {
	Dataset  string
	About    string
	Minor    bool
	Horizon  model.Horizon
	Files    []string
	Machines int
	Scores   []Score // the oracle first, then the published predictors, then Waterline's at its default
	Frontier []Point // of Waterline, by rising target
}

// Point is one point of the frontier.
type Point struct {
	Target float64 // target rate of violations
	Score  Score
}

// Waterline returns the score of Waterline's predictor at its default.
func (r *Result) Waterline() Score { return r.Scores[len(r.Scores)-1] }

// errTooShort means that a trace has no time at which predictions can be scored.
var errTooShort = errors.New("too short: scoring needs two days before the first prediction, and its horizon after it")

// Run scores all predictors on the data sets with these names, or on all that exist below root if names is
// empty. It keeps one file in memory at a time and calls progress before each. With an empty names it skips
// data sets that are too short, unless all of them are.
func Run(ctx context.Context, root string, names []string, progress func(file string)) ([]Result, error) {
	var sets []dataset.Dataset
	for _, name := range names {
		d, found := dataset.Find(name)
		if !found {
			return nil, fmt.Errorf("there is no data set %q", name)
		}
		sets = append(sets, d)
	}
	optional := len(sets) == 0
	if optional {
		sets = dataset.All()
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
		scored, err := runSet(ctx, d, files, progress)
		if optional && errors.Is(err, errTooShort) {
			short = err
			continue
		}
		if err != nil {
			return nil, err
		}
		results = append(results, scored...)
	}
	if len(results) == 0 && short != nil {
		return nil, short
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("no traces in %s: it must have a directory such as %s", root, dataset.All()[0].Dir)
	}
	return results, nil
}

// runSet scores all predictors on one data set and returns one result per horizon.
func runSet(ctx context.Context, d dataset.Dataset, files []string, progress func(file string)) ([]Result, error) {
	targets := Targets()
	var results []Result
	var baselines []map[string]*Score
	var waterline [][]Score
	for _, h := range []model.Horizon{model.Hour, model.Day} {
		results = append(results, Result{Dataset: d.Name, About: d.About, Minor: d.Minor, Horizon: h, Files: files})
		baselines = append(baselines, map[string]*Score{})
		waterline = append(waterline, make([]Score, len(targets)))
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
				continue // an idle machine has nothing to predict
			}
			for r := range results {
				results[r].Machines++
				ScoreBaselines(&machines[i], d.Every, values(results[r].Horizon), baselines[r])
				ScoreWaterline(&machines[i], d.Every, results[r].Horizon, targets, waterline[r])
			}
		}
	}
	for r := range results {
		if waterline[r][0].Times == 0 {
			return nil, fmt.Errorf("the traces of %s in %v: %w", d.Name, files, errTooShort)
		}
		for _, name := range PredictorNames() {
			results[r].Scores = append(results[r].Scores, *baselines[r][name])
		}
		waterline[r][0].Name = Waterline
		results[r].Scores = append(results[r].Scores, waterline[r][0])
		for i, t := range targets[1:] {
			results[r].Frontier = append(results[r].Frontier, Point{t, waterline[r][i+1]})
		}
	}
	return results, nil
}

// values returns the number of trace values in a horizon.
func values(h model.Horizon) int { return int(h.Length() / (trace.Step * time.Second)) }

// PredictorNames returns the names of the oracle and of the published predictors, in the order of the tables.
func PredictorNames() []string {
	names := []string{Oracle}
	for _, b := range baselines() {
		names = append(names, b.name)
	}
	return slices.Clip(names)
}

// Metrics returns the figures under the names that reports use: for each data set and horizon the rate of
// violations and the mean savings, both from 0 to 1. It includes those of the published predictors that reports
// quote.
func Metrics(results []Result) map[string]float64 {
	quoted := map[string]string{
		Waterline: "", FixedRatio: "_fixed_ratio", Google: "_google", VPA: "_vpa", Koordinator: "_koordinator",
		SeasonalMax: "_seasonal", Oracle: "_oracle",
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

// Frontiers returns the frontiers as series of equal length: targets, violations and savings, all from 0 to 1.
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

func (r *Result) key() string { return r.Dataset + "_" + HorizonName(r.Horizon) }

// HorizonName returns the name of a horizon as used in the names of figures.
func HorizonName(h model.Horizon) string {
	if h == model.Day {
		return "24h"
	}
	return "1h"
}
