package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// drained is a shuffle service of which each server tells one status after another, and stays at the last one.
type drained struct {
	statuses map[string][]drain.Status
	silent   bool           // they do not answer
	excluded map[string]int // for how many looks a server stays excluded; -1: for ever

	mu    sync.Mutex
	asked []string
}

func (d *drained) Drain(_ context.Context, w drain.Worker, _ time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, w.Host)
	return nil
}

func (d *drained) Status(_ context.Context, w drain.Worker) (drain.Status, error) {
	if d.silent {
		return drain.Status{}, errors.New("no answer")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.excluded[w.Host] > 0 {
		d.excluded[w.Host]--
	}
	all := d.statuses[w.Host]
	if len(all) > 1 && len(d.asked) > 0 { // until it is asked, it works
		d.statuses[w.Host] = all[1:]
	}
	return all[0], nil
}

func (d *drained) Excludes(w drain.Worker) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.excluded[w.Host] != 0
}

// TestDrainShuffle checks what is asked of shuffle servers, what is said about them, and when that ends.
func TestDrainShuffle(t *testing.T) {
	active, lost := drain.Status{State: drain.Active, Text: "ACTIVE"}, drain.Status{State: drain.Lost}
	drains := drain.Status{State: drain.Draining, Work: 2, Text: "DECOMMISSIONING"}
	empty := drain.Status{State: drain.Drained}
	for _, c := range []struct {
		about    string
		service  *drained
		asked    string
		says     string
		within   time.Duration
		problems string
	}{
		{"drained", &drained{statuses: map[string][]drain.Status{
			"a": {active, drains, drains, empty}, "b": {active, empty},
		}}, "[a b]", "a: ToLeave: ACTIVE\nb: ToLeave: ACTIVE\na: HasData: ACTIVE\nb: HasData: ACTIVE\n" +
			"a: HasData: DECOMMISSIONING, 2 left\nb: Empty\na: Empty\n", time.Minute, ""},
		{"one is lost", &drained{statuses: map[string][]drain.Status{
			"a": {active, drains, lost}, "b": {active, empty},
		}}, "[a b]", "a: ServerLost\n", time.Minute, "of 2 servers, 1 ended with data"},
		{"one keeps data", &drained{statuses: map[string][]drain.Status{
			"a": {active, drains}, "b": {active, empty},
		}}, "[a b]", "a: NoReplicas: DECOMMISSIONING, 2 left\n", time.Hour, "after 1h0m0s, 1 of 2 servers are not drained"},
		{"one is drained before its exclusion ends", &drained{statuses: map[string][]drain.Status{
			"a": {active, empty, {State: drain.Drained, Text: "it has ended"}, active}, "b": {active, empty},
		}, excluded: map[string]int{"a": 6, "b": 2}}, "[a b]", "a: Empty\nb: Empty\na: Empty: it has ended\n", time.Minute,
			""},
		{"one stays excluded", &drained{statuses: map[string][]drain.Status{
			"a": {active, lost}, "b": {active, empty},
		}, excluded: map[string]int{"b": -1}}, "[a b]", "b: Empty\n", time.Minute,
			"after 1m0s, of 2 servers, 1 ended with data that applications need; still excluded at the master by this drain: b"},
		{"one is lost, and stays excluded", &drained{statuses: map[string][]drain.Status{
			"a": {active, lost}, "b": {active, empty},
		}, excluded: map[string]int{"a": -1}}, "[a b]", "b: Empty\n", time.Minute,
			"of 2 servers, 1 ended with data that applications need; still excluded at the master by this drain: a"},
		{"one keeps data, and stays excluded", &drained{statuses: map[string][]drain.Status{
			"a": {active, drains}, "b": {active, empty},
		}, excluded: map[string]int{"a": -1}}, "[a b]", "b: Empty\n", time.Minute,
			"after 1m0s, 1 of 2 servers are not drained; they go on draining; still excluded at the master by this drain: a"},
		{"nobody answers", &drained{silent: true}, "", "a: ToLeave: no answer\n", time.Minute,
			"after 1m0s, 2 of 2 servers are not drained"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			err := drainShuffle(t.Context(), &out, c.service, []drain.Worker{{Host: "a"}, {Host: "b"}}, c.within)
			if (c.problems == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), c.problems) {
				t.Errorf("%s: %v", c.about, err)
			}
			slices.Sort(c.service.asked) // they are asked at once
			for host, looks := range c.service.excluded {
				if looks > 0 {
					t.Errorf("%s: %s is still excluded", c.about, host)
				}
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

// reversed is a shuffle service that takes drains back, but not those of servers that have ended.
type reversed struct {
	drained
	ended string
}

func (r *reversed) Undrain(_ context.Context, w drain.Worker) error {
	if w.Host == r.ended {
		return errors.New("it has ended")
	}
	return nil
}

// TestUndrainShuffle takes back the drains of two servers, of which one has ended.
func TestUndrainShuffle(t *testing.T) {
	workers := []drain.Worker{{Host: "a"}, {Host: "b"}}
	var out strings.Builder
	err := undrainShuffle(t.Context(), &out, &reversed{ended: "b"}, workers)
	if err == nil || err.Error() != "taking back the drain of b: it has ended" {
		t.Error(err)
	}
	if out.String() != "a: it gets shuffles again\n" {
		t.Error(out.String())
	}
	if err := undrainShuffle(t.Context(), io.Discard, &reversed{}, workers); err != nil {
		t.Error(err)
	}
	for _, s := range []shuffleService{{uniffle: "http://c:19998"}, {celeborn: "http://m:9098", stays: true}} {
		by, err := s.drainer()
		if _, can := by.(drain.Reverser); !can || err != nil {
			t.Errorf("%+v: no drain of it can be taken back: %v", s, err)
		}
	}
}

// crowd is a service whose servers take a second to answer.
type crowd struct {
	mu        sync.Mutex
	now, most int // requests at a time
}

func (c *crowd) answer(more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += more
	c.most = max(c.most, c.now)
}

func (c *crowd) Drain(ctx context.Context, w drain.Worker, _ time.Duration) error {
	_, err := c.Status(ctx, w)
	return err
}

func (c *crowd) Status(context.Context, drain.Worker) (drain.Status, error) {
	c.answer(1)
	defer c.answer(-1)
	time.Sleep(time.Second)
	return drain.Status{State: drain.Active}, nil
}

// TestDrainAtOnce drains many servers that answer slowly: they are asked at once, and not too many of them.
func TestDrainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{}
		workers := make([]drain.Worker, 3*askedAtOnce)
		if err := drainShuffle(t.Context(), io.Discard, c, workers, time.Second); err == nil {
			t.Error("they are drained")
		}
		if c.most != askedAtOnce || c.most < 2 {
			t.Errorf("%d servers were asked at a time, want %d", c.most, askedAtOnce)
		}
	})
}
