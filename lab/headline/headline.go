// Package headline measures how much of a machine is used in the course of a compressed day of online load, and the
// latency of that load, alone and beside batch under Waterline.
package headline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/agentrun"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/redisbench"
)

// The experiment.
const (
	Name  = "headline"
	About = "A day of online load, compressed: alone, and beside ffmpeg on the rest of the machine, under " +
		"Waterline."
	DefaultMinutes = 10 // length of the day
	DefaultRepeats = 1
	DefaultPercent = 9 // of the machine's CPUs that requests take in the mean of the day
)

// encoders is how many processes of ffmpeg run: one, with a thread for each CPU, uses 82 % of two CPUs.
const encoders = 2

// mostOnline is the greatest part of a CPU that requests may take. The server has one thread: where it is busier, the
// latency of a request depends on the requests before it more than on anything else.
const mostOnline = 0.7

// Day is the use of a machine in the course of a day.
type Day struct {
	Name   string    // of the machine, and which day
	Values []float64 // in any unit, each of an equal part of the day
}

// Config says what the experiment measures. Day and Percent must be set.
type Config struct {
	redisbench.Config // Seconds is the length of the day
	Day               Day
	Percent           float64 // of the machine's CPUs that requests take in the mean of the day, above 0
	Policy            string  // file with a ColocationPolicy; "": one that suppresses by harm
}

// Run sends Redis requests that take as much CPU as was used in the course of a day, compressed: once with nothing
// beside it, and once beside ffmpeg in a batch pod, with the same requests at the same moments, in each repeat in
// random order. The metrics are those of [outcome.report]. A day whose mean is more than one thread should do is an
// error.
func Run(ctx context.Context, cfg Config) (report.Result, error) {
	if cfg.Seconds == 0 {
		cfg.Seconds = 60 * DefaultMinutes
	}
	if cfg.Repeats == 0 {
		cfg.Repeats = DefaultRepeats
	}
	rates, capped, err := scale(cfg.Day, cfg.Percent, runtime.NumCPU())
	if err != nil {
		return report.Result{}, err
	}
	policy, err := agentrun.Policy(cfg.Policy, model.SuppressOnHarm)
	if err != nil {
		return report.Result{}, err
	}
	alone := redisbench.Cell{
		Mode: redisbench.Mode{Name: redisbench.Alone, Online: true}, Load: measure.Mean(rates), Rates: rates,
	}
	waterline := alone
	waterline.Mode = redisbench.Mode{Name: redisbench.Waterline, Online: true, Encoders: encoders, Policy: policy}
	r := report.Begin(Name, About)
	runs, err := redisbench.Measure(ctx, Name, cfg.Config, []redisbench.Cell{alone, waterline}, redisbench.FFmpeg)
	if err != nil {
		return r, err
	}
	o := outcome{
		Runs: runs, day: cfg.Day, percent: cfg.Percent, length: time.Duration(cfg.Seconds) * time.Second,
		onNode: cfg.Node != nil, rates: rates, capped: capped,
	}
	o.report(&r)
	return r, nil
}

// scale turns a day into the parts of one CPU that requests take on a machine with so many CPUs. It returns how many of
// them were capped.
func scale(day Day, percent float64, cpus int) (rates load.Rates, capped int, err error) {
	was, wanted := measure.Mean(day.Values), percent/100*float64(cpus)
	switch {
	case was <= 0:
		return nil, 0, errors.New("the machine used nothing on this day; choose another one")
	case wanted <= 0 || wanted > mostOnline:
		return nil, 0, fmt.Errorf("%.3g %% of %d CPUs is %.2f CPUs in the mean; Redis has one thread, and %.1f CPUs are the "+
			"most that requests may take", percent, cpus, wanted, mostOnline)
	}
	rates = load.Rates(day.Values).Times(wanted / was)
	for i, part := range rates {
		if part > mostOnline {
			rates[i] = mostOnline
			capped++
		}
	}
	return rates, capped, nil
}
