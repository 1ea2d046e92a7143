package experiment

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Experiment headline takes twenty minutes and more, and has options of its own.
const (
	LiveDayName  = "headline"
	LiveDayAbout = "A day of online load, compressed: alone, and beside ffmpeg on what is left of the machine, under Waterline."
	// LiveDayMinutes, LiveDayRepeats and LiveDayPercent are what it measures by default: so long a day, so many times each way,
	// with so much load in the mean.
	LiveDayMinutes = 10
	LiveDayRepeats = 1
	LiveDayPercent = 9
)

// mostOnline is the part of a CPU that requests may take at most. The server has one thread: where it is busier, how long a
// request takes says more of the requests before it than of anything else.
const mostOnline = 0.7

// Day is what online load used in the course of a day.
type Day struct {
	Name   string    // of what it was measured on, and which day
	Values []float64 // in any unit, each of an equal part of the day
}

// LiveDayConfig says what experiment headline measures. All but the embedded Config, Policy and Latest must be set.
type LiveDayConfig struct {
	Config  // Seconds is the length of the day
	Day     Day
	Percent float64 // of the machine's CPUs that requests take in the mean of the day, above 0
	Repeats int
	Policy  string        // file with a ColocationPolicy; "": one that suppresses by CPU set
	Latest  time.Duration // that the generator may be late, p99, before a run is discarded; 0: 1 ms
}

// LiveDay asks Redis for as much CPU as was used in the course of a day, compressed: once with nothing beside it and once
// beside ffmpeg in a batch pod, with the same requests at the same moments, in each repeat in random order. What it measures
// is in [LivedDay.Result]. A day whose mean is more than one thread should do is an error.
func LiveDay(ctx context.Context, cfg LiveDayConfig) (Result, error) {
	day, err := cfg.scale(runtime.NumCPU())
	if err != nil {
		return Result{}, err
	}
	policy, err := policyText(cfg.Policy, "cpuset")
	if err != nil {
		return Result{}, err
	}
	length := time.Duration(cfg.seconds(60*LiveDayMinutes)) * time.Second
	b := newBench(LiveDayName, cfg.Config, length, cfg.Repeats, cfg.Latest)
	if err := b.prepare(ctx, "ffmpeg"); err != nil {
		return Result{}, err
	}
	cells := []cell{
		{mode: mode{name: modeAlone, online: true}, load: day.mean(), course: day.course},
		{mode: mode{name: modeWaterline, online: true, encodes: true, policy: policy}, load: day.mean(), course: day.course},
	}
	if err := b.all(ctx, cells); err != nil {
		return Result{}, err
	}
	day.measured, day.Length, day.OnNode = b.found, length, cfg.Node != nil
	return day.Result(), nil
}

// scale makes of a day what Redis is asked for on a machine with so many CPUs.
func (c *LiveDayConfig) scale(cpus int) (*LivedDay, error) {
	was, wanted := mean(c.Day.Values), c.Percent/100*float64(cpus)
	switch {
	case was <= 0:
		return nil, errors.New("nothing was used in the course of this day; take another one")
	case wanted <= 0 || wanted > mostOnline:
		return nil, fmt.Errorf("%.3g %% of %d CPUs is %.2f CPUs in the mean; Redis has one thread and should be asked for %.1f at most", c.Percent, cpus, wanted, mostOnline)
	}
	d := &LivedDay{Day: c.Day, Percent: c.Percent, course: course(c.Day.Values).times(wanted / was)}
	for i, load := range d.course {
		if load > mostOnline {
			d.course[i] = mostOnline
			d.capped++
		}
	}
	return d, nil
}
