package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// drained is a shuffle service of which each server tells one status after another, and stays at the last one.
type drained struct {
	statuses map[string][]drain.Status
	silent   bool // they do not answer
	asked    []string
}

func (d *drained) Drain(_ context.Context, w drain.Worker, _ time.Duration) error {
	d.asked = append(d.asked, w.Host)
	return nil
}

func (d *drained) Status(_ context.Context, w drain.Worker) (drain.Status, error) {
	if d.silent {
		return drain.Status{}, errors.New("no answer")
	}
	all := d.statuses[w.Host]
	if len(all) > 1 && len(d.asked) > 0 { // until it is asked, it works
		d.statuses[w.Host] = all[1:]
	}
	return all[0], nil
}

// TestDrainShuffle checks what is asked of shuffle servers, what is said about them, and when that ends.
func TestDrainShuffle(t *testing.T) {
	active, lost := drain.Status{State: drain.Active, Text: "ACTIVE"}, drain.Status{State: drain.Lost}
	drains := drain.Status{State: drain.Draining, Work: 2, Text: "DECOMMISSIONING"}
	empty := drain.Status{State: drain.Drained}
	for _, c := range []struct {
		about    string
		service  drained
		asked    string
		says     string
		within   time.Duration
		problems string
	}{
		{"drained", drained{statuses: map[string][]drain.Status{
			"a": {active, drains, drains, empty}, "b": {active, empty},
		}}, "[a b]", "a: ToLeave: ACTIVE\nb: ToLeave: ACTIVE\na: HasData: ACTIVE\nb: HasData: ACTIVE\n" +
			"a: HasData: DECOMMISSIONING, 2 left\nb: Empty\na: Empty\n", time.Minute, ""},
		{"one is lost", drained{statuses: map[string][]drain.Status{
			"a": {active, drains, lost}, "b": {active, empty},
		}}, "[a b]", "a: ServerLost\n", time.Minute, "of 2 servers, 1 ended with data"},
		{"one keeps data", drained{statuses: map[string][]drain.Status{
			"a": {active, drains}, "b": {active, empty},
		}}, "[a b]", "a: NoReplicas: DECOMMISSIONING, 2 left\n", time.Hour, "after 1h0m0s, 1 of 2 servers are not drained"},
		{"nobody answers", drained{silent: true}, "", "a: ToLeave: no answer\n", time.Minute,
			"after 1m0s, 2 of 2 servers are not drained"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			err := drainShuffle(t.Context(), &out, &c.service, []drain.Worker{{Host: "a"}, {Host: "b"}}, c.within)
			if c.problems == "" && err != nil || c.problems != "" && (err == nil || !strings.Contains(err.Error(), c.problems)) {
				t.Errorf("%s: %v", c.about, err)
			}
			if asked := fmt.Sprint(c.service.asked); c.asked != "" && asked != c.asked {
				t.Errorf("%s: asked %s", c.about, asked)
			}
			if !strings.Contains(out.String(), c.says) {
				t.Errorf("%s:\n%s", c.about, &out)
			}
		})
	}
}
