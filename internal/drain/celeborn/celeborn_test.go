package celeborn

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

const unknown = drain.UnknownWork

func start(t *testing.T) (*fake, *Drainer) {
	f := newFake(t)
	return f, f.drainer()
}

func (f *fake) drainer() *Drainer {
	d, err := New(f.http.URL+"/", drain.Auth{})
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

func reversible(t *testing.T) (*fake, *Reversible) {
	f := newFake(t)
	d, err := NewReversible(f.http.URL, drain.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	return f, d
}

func is(t *testing.T, d drain.Drainer, w drain.Worker, state drain.State, work int) {
	t.Helper()
	if s, err := d.Status(t.Context(), w); err != nil || s.State != state || s.Work != work {
		t.Errorf("%s: %+v, %v; want %s with %d shuffles", w.Host, s, err, state, work)
	}
}

func ask(t *testing.T, d drain.Drainer, w drain.Worker) {
	t.Helper()
	if err := d.Drain(t.Context(), w, time.Minute); err != nil {
		t.Fatal(err)
	}
}

func (f *fake) called(want ...string) {
	f.t.Helper()
	if !slices.Equal(f.calls, want) {
		f.t.Errorf("asked for %q, want %q", f.calls, want)
	}
	f.calls = nil
}

// TestDrain drains a worker with data by its exit, until its shuffles are dropped and it has ended.
func TestDrain(t *testing.T) {
	f, d := start(t)
	var any drain.Drainer = d
	if _, can := any.(drain.Reverser); can {
		t.Error("an exit can be taken back")
	}
	s, w := f.add("10.0.0.1", "app-1-0", "app-1-1")
	is(t, d, w, drain.Active, 2)
	ask(t, d, w)
	f.called("exclude 10.0.0.1", "exit 10.0.0.1") // in this order: the worker tells the master after 10 s
	if f.placed(s) {
		t.Error("new shuffles come to it")
	}
	is(t, d, w, drain.Draining, 2)
	ask(t, d, w) // twice is the same
	f.called("exit 10.0.0.1")
	f.beat(3)
	is(t, d, w, drain.Draining, 2)
	f.called("readmit 10.0.0.1") // the master knows
	if f.placed(s) {
		t.Error("new shuffles come to it")
	}
	f.drop()
	f.beat(1)
	is(t, d, w, drain.Draining, unknown) // it has ended, and the master does not know
	f.beat(12)
	is(t, d, w, drain.Drained, 0)
	is(t, d, w, drain.Drained, 0)
	ask(t, d, w)
	f.called()
	is(t, d, drain.Worker{Host: "10.0.0.9", URL: w.URL}, drain.Absent, unknown)
}

// TestEmpty checks that a worker without shuffles is drained only when it takes no new ones: for 10 s after it was told
// to exit it does.
func TestEmpty(t *testing.T) {
	f, d := start(t)
	_, w := f.add("10.0.0.1")
	is(t, d, w, drain.Active, 0)
	ask(t, d, w)
	is(t, d, w, drain.Draining, 0)
	f.beat(1)
	is(t, d, w, drain.Drained, 0)
	f.called("exclude 10.0.0.1", "exit 10.0.0.1")
	f.beat(1) // it ends at once, before the master heard of its drain
	is(t, d, w, drain.Drained, 0)
	f.beat(12)
	f.failsReadmit = true
	is(t, d, w, drain.Drained, 0)
	f.called()
	f.failsReadmit = false
	is(t, d, w, drain.Drained, 0)
	f.called("readmit 10.0.0.1") // another one may start on its ports
	is(t, d, w, drain.Drained, 0)
	f.called()
}

// TestExcludes asks for a worker without shuffles as long as it is excluded: until the master has lost it.
func TestExcludes(t *testing.T) {
	f, d := start(t)
	_, w := f.add("10.0.0.1")
	if d.Excludes(w) {
		t.Error("it is excluded before its drain")
	}
	ask(t, d, w)
	f.beat(1)
	for beats := 0; d.Excludes(w); beats++ {
		is(t, d, w, drain.Drained, 0)
		if f.beat(1); beats == 20 {
			t.Fatalf("the master excludes %q", f.excluded)
		}
	}
	f.called("exclude 10.0.0.1", "exit 10.0.0.1", "readmit 10.0.0.1")
	if len(f.excluded) > 0 {
		t.Errorf("the master excludes %q", f.excluded)
	}

	_, w = f.add("10.0.0.2")
	f.failsReadmit = true
	ask(t, d, w)
	f.beat(15)
	s, err := d.Status(t.Context(), w)
	if err != nil || s.State != drain.Drained || !strings.Contains(s.Text, "still excluded at the master: ") ||
		!d.Excludes(w) {
		t.Errorf("a master that refuses: %+v, %v", s, err)
	}
}

// TestExclusion checks that an exclusion is taken back where it is ours, and nowhere else.
func TestExclusion(t *testing.T) {
	f, d := start(t)
	_, w := f.add("10.0.0.1", "app-1-0")
	f.failsExit = true
	if err := d.Drain(t.Context(), w, 0); !drain.IsStatus(err, http.StatusServiceUnavailable) {
		t.Errorf("an exit that fails: %v", err)
	}
	f.called("exclude 10.0.0.1", "exit 10.0.0.1", "readmit 10.0.0.1")
	f.failsReadmit = true
	if err := d.Drain(t.Context(), w, 0); !drain.IsStatus(err, http.StatusServiceUnavailable) {
		t.Errorf("an exit that fails: %v", err)
	}
	f.called("exclude 10.0.0.1", "exit 10.0.0.1")
	f.failsReadmit = false
	is(t, d, w, drain.Active, 1)
	f.called("readmit 10.0.0.1")
	f.failsExit, f.excluded = false, []string{"10.0.0.1"}
	is(t, d, w, drain.Active, 1) // it serves what it has
	ask(t, d, w)
	f.beat(3)
	is(t, d, w, drain.Draining, 1)
	f.called("exit 10.0.0.1")

	s, w := f.add("10.0.0.2") // it is killed at once, and another one starts on its ports
	ask(t, d, w)
	s.state = normal
	is(t, d, w, drain.Active, 0)
	f.called("exclude 10.0.0.2", "exit 10.0.0.2", "readmit 10.0.0.2")
}

// TestReversible drains a worker by an event, takes that back, and drains it again.
func TestReversible(t *testing.T) {
	f, d := reversible(t)
	var _ drain.Reverser = d
	s, w := f.add("10.0.0.1", "app-1-0")
	for range 2 { // twice is the same
		ask(t, d, w)
		is(t, d, w, drain.Draining, 1)
	}
	f.called("DECOMMISSIONTHENIDLE 10.0.0.1", "DECOMMISSIONTHENIDLE 10.0.0.1")
	if f.placed(s) {
		t.Error("new shuffles come to it")
	}
	f.beat(3)
	is(t, d, w, drain.Draining, 1)
	f.drop()
	f.beat(3)
	is(t, d, w, drain.Drained, 0) // idle, and its process stays
	for range 2 {
		if err := d.Undrain(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		is(t, d, w, drain.Draining, 0) // it may get shuffles at any moment
	}
	f.called("RECOMMISSION 10.0.0.1", "RECOMMISSION 10.0.0.1")
	f.beat(6)
	is(t, d, w, drain.Active, 0)
	if !f.placed(s) {
		t.Error("no new shuffles come to it")
	}
	if err := d.Undrain(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	f.called() // an event would keep shuffles away for a while
	ask(t, d, w)
	f.beat(3)
	is(t, d, w, drain.Drained, 0)
	ask(t, d.Drainer, w) // its exit can follow
	err := d.Undrain(t.Context(), w)
	if err == nil || !strings.Contains(err.Error(), "cannot be taken back") {
		t.Errorf("taking back an exit: %v", err)
	}
	f.beat(3)
	is(t, d, w, drain.Drained, 0)
	if err := d.Undrain(t.Context(), w); !drain.Silent(err) {
		t.Errorf("taking back the drain of a worker that has ended: %v", err)
	}
}

// TestMasterForgets checks that an event that a master lost in a restart counts as no drain, so that it is sent again,
// and that a worker that such a master does not know yet is not taken for one that has ended.
func TestMasterForgets(t *testing.T) {
	f, d := reversible(t)
	_, w := f.add("10.0.0.1", "app-1-0")
	ask(t, d, w)
	clear(f.events)
	is(t, d, w, drain.Active, 1)
	ask(t, d, w)
	f.beat(3)
	is(t, d, w, drain.Draining, 1)
	f.drop()
	f.workers[0].end()
	f.workers = nil
	is(t, d, w, drain.Draining, unknown) // it may be the network
	n := d.note(w)
	n.missed = n.missed.Add(-registerTimeout)
	is(t, d, w, drain.Drained, 0)
}

// TestLost checks which workers that have gone count as lost, and that this does not change when their application
// ends.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		drains func(*fake, *worker, drain.Drainer, drain.Worker)
		drops  bool
		want   drain.State
		work   int
	}{
		"killed": {want: drain.Lost, work: unknown},
		"killed in its drain": {
			drains: func(f *fake, s *worker, d drain.Drainer, w drain.Worker) { ask(f.t, d, w) }, want: drain.Lost, work: 1,
		},
		"drained": {
			drains: func(f *fake, s *worker, d drain.Drainer, w drain.Worker) { ask(f.t, d, w) }, drops: true,
			want: drain.Drained,
		},
		"drained, and its drain cut short, by an event of somebody else": {
			drains: func(f *fake, s *worker, _ drain.Drainer, _ drain.Worker) { f.events[s.host] = "Decommission" },
			want:   drain.Lost, work: 1,
		},
		"left to start again": {
			drains: func(f *fake, s *worker, d drain.Drainer, w drain.Worker) { s.state, s.shut = inGraceful, true },
			want:   drain.Absent, work: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, d := start(t)
			s, w := f.add("10.0.0.1", "app-1-0")
			is(t, d, w, drain.Active, 1)
			if c.drains != nil {
				c.drains(f, s, d, w)
				f.beat(3)
				is(t, d, w, drain.Draining, 1)
			}
			if c.drops {
				f.drop()
			}
			if f.beat(3); s.state != "" {
				s.end()
			}
			f.beat(13)
			is(t, d, w, c.want, c.work)
			f.drop()
			is(t, d, w, c.want, c.work)
		})
	}
}

// TestSilent checks that a worker that does not answer is an error as long as the master has it and knows of no drain.
func TestSilent(t *testing.T) {
	f, d := start(t)
	s, w := f.add("10.0.0.1", "app-1-0")
	s.http.Close()
	if s, err := d.Status(t.Context(), w); !drain.Silent(err) {
		t.Errorf("%+v, %v", s, err)
	}
	s.state = inDrain
	f.beat(3)
	is(t, d, w, drain.Draining, unknown) // the master knows
	s.state = ""
	f.beat(13)
	is(t, d, w, drain.Drained, 0) // nobody saw its shuffles
	f.http.Close()
	if s, err := d.Status(t.Context(), w); !errors.Is(err, drain.ErrCoordinator) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAsked checks that a Drainer made after a drain began knows of it from its caller.
func TestAsked(t *testing.T) {
	f, d := start(t)
	_, w := f.add("10.0.0.1")
	ask(t, d, w)
	f.beat(18)
	is(t, f.drainer(), w, drain.Lost, unknown)
	w.Asked = true
	is(t, f.drainer(), w, drain.Drained, 0)
}

// TestHosts checks that two workers at one host are told apart by their ports, or not at all.
func TestHosts(t *testing.T) {
	f, d := start(t)
	_, w := f.add("10.0.0.1")
	f.add("10.0.0.1")
	if err := d.Drain(t.Context(), w, 0); err == nil || !strings.Contains(err.Error(), "HOST:RPCPORT") {
		t.Errorf("two workers at one host: %v", err)
	}
	f.workers = f.workers[:1]
	w.Host = "10.0.0.1:37359"
	ask(t, d, w)
	is(t, d, w, drain.Draining, 0)
}

// TestOther checks that answers that are cut short, or not Celeborn's, are errors and no empty workers.
func TestOther(t *testing.T) {
	f, d := start(t)
	s, w := f.add("10.0.0.1", "app-1-0")
	ask(t, d, w)
	f.beat(1)
	f.cut = true
	if s, err := d.Status(t.Context(), w); err == nil {
		t.Errorf("an answer that is cut short: %+v", s)
	}
	f.cut = false
	s.state = "Dreaming"
	if s, err := d.Status(t.Context(), w); err == nil || !strings.Contains(err.Error(), `"Dreaming"`) {
		t.Errorf("a state that is not known: %+v, %v", s, err)
	}
	s.state, s.unregistered = normal, true
	is(t, d, w, drain.Absent, 1)

	for content, words := range map[string]string{"{}": "no state or no shuffles", "": "status 404"} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if content == "" {
				http.NotFound(w, r)
			}
			_, _ = w.Write([]byte(content))
		}))
		if s, err := d.Status(t.Context(), drain.Worker{Host: "a", URL: other.URL}); err == nil ||
			!strings.Contains(err.Error(), words) {
			t.Errorf("%q of another worker: %+v, %v", content, s, err)
		}
		of, err := New(other.URL, drain.Auth{})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := of.Status(t.Context(), w); !errors.Is(err, drain.ErrCoordinator) {
			t.Errorf("%q of another master: %+v, %v", content, s, err)
		}
		other.Close()
	}
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = w.Write([]byte(answer(t, "handled", "@SUCCESS@", "false", "@TEXT@", "not now")))
			return
		}
		f.serve(w, r, f.master)
	}))
	defer refuses.Close()
	of, err := New(refuses.URL, drain.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	if err := of.Drain(t.Context(), w, 0); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("a master that refuses: %v", err)
	}
}
