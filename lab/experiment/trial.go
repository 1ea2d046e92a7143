package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// warm is how long requests are sent in each trial before they count.
const warm = time.Second

// trial is what was measured of a server in one mode.
type trial struct {
	mode    string
	rate    float64 // requests a second
	window  measure.Window
	latency []float64 // milliseconds, sorted
	late    []float64 // milliseconds between a request's due time and its sending, sorted
	answers float64   // a second
}

// run sends requests to a server for a number of seconds and measures meanwhile. It calls begin and end at the edges of
// that time, and each after every second.
func (t *trial) run(ctx context.Context, s *sandbox.Sandbox, requests load.Requests, seconds int,
	begin, end func() error, each func(measure.Window) string,
) (err error) {
	length := time.Duration(seconds) * time.Second
	requests.Dir, requests.Rates, requests.Length, requests.Seed = s.Dir(), load.Rates{t.rate}, warm+length, 1
	generator, err := load.StartGenerator(s, "", requests)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, generator.Kill()) }()
	if err := sandbox.Sleep(ctx, warm); err != nil {
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	meter := measure.Meter{Source: s}
	if t.window, err = meter.Seconds(ctx, "mode "+t.mode, seconds, each); err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	outcome, err := generator.Outcome(ctx)
	if err != nil {
		return err
	}
	return t.count(outcome.Requests, length)
}

// count takes from the requests those that count.
func (t *trial) count(all []load.Request, length time.Duration) error {
	unanswered, answered := 0, 0
	for _, a := range all {
		if a.Due < warm {
			continue
		}
		t.late = append(t.late, measure.Millis(a.Late()))
		if a.Ready == 0 {
			unanswered++
			continue
		}
		t.latency = append(t.latency, measure.Millis(a.Latency()))
		if a.Ready < warm+length {
			answered++
		}
	}
	if unanswered == 0 && answered == 0 {
		return fmt.Errorf("in mode %s the server answered none of %d requests in time: this machine is too busy",
			t.mode, len(t.late))
	}
	if unanswered > 0 {
		return fmt.Errorf("in mode %s the server did not answer %d of %d requests within %v",
			t.mode, unanswered, len(t.late), load.AnswerTimeout)
	}
	t.answers = float64(answered) / length.Seconds()
	slices.Sort(t.latency)
	slices.Sort(t.late)
	return nil
}

func (t *trial) p99() float64 { return measure.Quantile(t.latency, 0.99) }

// outside returns how many CPUs were used outside of the pods.
func (t *trial) outside() float64 { return max(t.window.Busy-t.window.CPUs(), 0) }
