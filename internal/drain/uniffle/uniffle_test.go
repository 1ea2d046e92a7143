package uniffle

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

func is(t *testing.T, d *Drainer, w drain.Worker, state drain.State, work int) {
	t.Helper()
	if s, err := d.Status(t.Context(), w); err != nil || s.State != state || s.Work != work {
		t.Errorf("%s: %+v, %v; want %s with %d applications", w.Host, s, err, state, work)
	}
}

func ask(t *testing.T, d *Drainer, w drain.Worker) {
	t.Helper()
	if err := d.Drain(t.Context(), w, time.Minute); err != nil {
		t.Fatal(err)
	}
}

const unknown = drain.UnknownWork

// TestDrain drains a server with data, takes that back, drains it again, and lets its application end.
func TestDrain(t *testing.T) {
	f, d := newFake(t)
	var _ drain.Reverser = d
	_, w := f.add("10.0.0.1-19999", "app-1")
	is(t, d, w, drain.Active, 1)
	for range 2 { // twice is the same
		ask(t, d, w)
		is(t, d, w, drain.Draining, 1) // the list still says that it is active
	}
	f.beat(1)
	is(t, d, w, drain.Draining, 1)
	if err := d.Undrain(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	f.beat(1)
	is(t, d, w, drain.Active, 1)
	ask(t, d, w)
	f.beat(1)
	is(t, d, w, drain.Draining, 1)
	f.finish("app-1")
	f.beat(1) // it ends
	is(t, d, w, drain.Draining, unknown)
	f.beat(4)
	is(t, d, w, drain.Drained, 0)
	ask(t, d, w)
	is(t, d, w, drain.Drained, 0)
	is(t, d, drain.Worker{Host: "10.0.0.9-19999"}, drain.Absent, unknown)

	_, w = f.add("10.0.0.2-19999", "app-2") // somebody else takes its drain back
	ask(t, d, w)
	if err := f.drainer().Undrain(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	f.beat(1)
	is(t, d, w, drain.Active, 1)
}

// TestEmpty checks that a server is empty by the metrics that it waits for: its number of applications, which lags, and
// its number of partitions, which an application that has just begun has.
func TestEmpty(t *testing.T) {
	f, d := newFake(t)
	s, w := f.add("10.0.0.1-19999", "app-1")
	ask(t, d, w)
	f.beat(1)
	s.gauge = 0
	is(t, d, w, drain.Draining, 0)
	s.gauge, s.partitions = 1, 0
	is(t, d, w, drain.Draining, 1)
	s.gauge = 0
	is(t, d, w, drain.Drained, 0)
	s.partitions = 8 // something was on its way
	is(t, d, w, drain.Draining, 0)
	s.cut = true
	is(t, d, w, drain.Draining, unknown)
	s.cut, s.partitions = false, 0
	is(t, d, w, drain.Drained, 0)
	s.end()
	is(t, d, w, drain.Drained, 0) // the list still has it
	f.beat(4)
	is(t, d, w, drain.Drained, 0)
}

// TestIdle drains a server without data. It ends at once, and the list shows it as active for half a minute more.
func TestIdle(t *testing.T) {
	f, d := newFake(t)
	_, w := f.add("10.0.0.1-19999")
	ask(t, d, w)
	is(t, d, w, drain.Draining, unknown)
	ask(t, d, w) // it does not answer the coordinator any more
	err := d.Undrain(t.Context(), w)
	if err == nil || !strings.Contains(err.Error(), "UNAVAILABLE") {
		t.Errorf("taking back the drain of a server that has ended: %v", err)
	}
	f.beat(4)
	is(t, d, w, drain.Drained, 0)
}

// TestLost checks that a killed server is none that has drained, though the coordinator lists both as lost.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		asked, ends, other bool // the drain; the server's application; that of another server
		want               drain.State
		work               int
	}{
		"killed":                             {want: drain.Lost, work: unknown},
		"killed in its drain":                {asked: true, want: drain.Lost, work: 1},
		"killed while another one ended":     {asked: true, other: true, want: drain.Drained}, // nobody can prove a loss
		"drained":                            {asked: true, ends: true, want: drain.Drained},
		"drained as another application did": {asked: true, ends: true, other: true, want: drain.Drained},
	} {
		t.Run(name, func(t *testing.T) {
			f, d := newFake(t)
			s, w := f.add("10.0.0.1-19999", "app-1")
			f.add("10.0.0.2-19999", "app-2")
			f.add("10.0.0.3-19999", "app-3")
			state := drain.Active
			if c.asked {
				ask(t, d, w)
				state = drain.Draining
			}
			f.beat(1)
			is(t, d, w, state, 1)
			if c.ends {
				f.finish("app-1")
			}
			if c.other {
				f.finish("app-2")
			}
			s.end()
			f.beat(4)
			is(t, d, w, c.want, c.work)
			f.finish("app-3") // what was lost stays lost
			f.beat(8)
			is(t, d, w, c.want, c.work)
		})
	}
}

// TestAsked checks that a Drainer made after a drain began knows of it from its caller.
func TestAsked(t *testing.T) {
	f, d := newFake(t)
	_, w := f.add("10.0.0.1-19999")
	ask(t, d, w)
	f.beat(4)
	is(t, f.drainer(), w, drain.Lost, unknown)
	w.Asked = true
	is(t, f.drainer(), w, drain.Drained, 0)
}

// TestNotSeen checks that a server that ended with data is drained only if its applications are known to have ended,
// also where nobody saw which ones there were.
func TestNotSeen(t *testing.T) {
	for name, c := range map[string]struct {
		ends []string // applications, before the server
		want drain.State
		work int
	}{
		"killed":        {want: drain.Lost, work: 1},
		"another ended": {ends: []string{"app-2"}, want: drain.Lost, work: 1},
		"nobody knows":  {ends: []string{"app-1"}, want: drain.Lost, work: 1}, // app-2 could have had data there
		"drained":       {ends: []string{"app-1", "app-2"}, want: drain.Drained},
	} {
		t.Run(name, func(t *testing.T) {
			f, d := newFake(t)
			s, w := f.add("10.0.0.1-19999", "app-1")
			f.add("10.0.0.2-19999", "app-2")
			f.noApps = true
			ask(t, d, w)
			f.beat(1)
			is(t, d, w, drain.Draining, 1)
			for _, a := range c.ends {
				f.finish(a)
			}
			s.end()
			f.beat(4)
			if s, err := d.Status(t.Context(), w); err == nil {
				t.Errorf("%+v", s)
			}
			f.noApps = false
			is(t, d, w, c.want, c.work)
		})
	}
}

// TestJustBegun checks that a server is lost that ended with partitions of an application that its metric of
// applications does not count yet.
func TestJustBegun(t *testing.T) {
	f, d := newFake(t)
	s, w := f.add("10.0.0.1-19999", "app-1")
	s.gauge = 0
	ask(t, d, w)
	s.end()
	f.beat(4)
	is(t, d, w, drain.Lost, 1)
}

// TestCoordinatorStarts checks that a server that the coordinator does not list yet is neither lost nor drained, and
// that after a while, its applications say which of the two it is.
func TestCoordinatorStarts(t *testing.T) {
	f, d := newFake(t)
	s, w := f.add("10.0.0.1-19999", "app-1")
	s.listed = ""
	is(t, d, w, drain.Absent, 1)
	f.beat(1)
	ask(t, d, w)
	s.listed = ""
	is(t, d, w, drain.Draining, 1)
	s.cut = true
	is(t, d, w, drain.Draining, unknown)
	s.end()
	is(t, d, w, drain.Draining, unknown) // it may be the network
	n := d.note(w)
	n.missed = n.missed.Add(-registerTimeout)
	f.cut = true
	if s, err := d.Status(t.Context(), w); !errors.Is(err, drain.ErrCoordinator) {
		t.Errorf("%+v, %v", s, err)
	}
	f.cut = false
	is(t, d, w, drain.Draining, unknown) // it may have started once more, and know no application yet
	n.missed = n.missed.Add(-registerTimeout)
	is(t, d, w, drain.Lost, 1)
	n.end.State = ""
	f.finish("app-1")
	f.beat(7) // the coordinator has forgotten it
	is(t, d, w, drain.Drained, 0)
	w.URL = ""
	n.end.State = ""
	is(t, d, w, drain.Draining, unknown) // nobody says anything
}

// TestRefused checks that an answer with status 200 and code -1 is an error that has its text.
func TestRefused(t *testing.T) {
	f, d := newFake(t)
	s, w := f.add("10.0.0.1-19999")
	s.state = "UNHEALTHY"
	f.beat(1)
	is(t, d, w, drain.Active, 0) // it serves what it has
	if err := d.Drain(t.Context(), w, 0); err == nil || !strings.Contains(err.Error(), "current status:UNHEALTHY") {
		t.Errorf("draining a sick server: %v", err)
	}
	w.Host = "10.0.0.9-19999"
	for _, verb := range []func() error{
		func() error { return d.Drain(t.Context(), w, 0) }, func() error { return d.Undrain(t.Context(), w) },
	} {
		if err := verb(); err == nil || !strings.Contains(err.Error(), "Server Id [10.0.0.9-19999] not found!") {
			t.Errorf("a server that is not known: %v", err)
		}
	}
}

// TestCutShort checks that an answer that ends in the middle says nothing, above all not that a server is empty.
func TestCutShort(t *testing.T) {
	f, d := newFake(t)
	s, w := f.add("10.0.0.1-19999", "app-1")
	ask(t, d, w)
	f.beat(1)
	s.cut = true
	is(t, d, w, drain.Draining, unknown)
	s.cut, s.odd = false, true
	is(t, d, w, drain.Draining, unknown)
	s.odd, f.cut = false, true
	if s, err := d.Status(t.Context(), w); !errors.Is(err, drain.ErrCoordinator) {
		t.Errorf("%+v, %v", s, err)
	}
	f.cut = false
	is(t, d, w, drain.Draining, 1)

	s, w = f.add("10.0.0.2-19999") // it was empty when it was asked, but something came before the drain began
	s.late = []string{"app-2"}
	ask(t, d, w)
	f.beat(1)
	s.cut = true
	is(t, d, w, drain.Draining, unknown)
}

// TestOther checks that a password goes over https only, and that what is no coordinator's answer is an error.
func TestOther(t *testing.T) {
	w := drain.Worker{Host: "10.0.0.1-19999"}
	for _, c := range []struct {
		answer string // "": 404
		auth   drain.Auth
		word   string
	}{
		{"", drain.Auth{}, "status 404"},
		{"", drain.Auth{User: "a", Password: "b"}, "https"},
		{"{}", drain.Auth{}, "no code"},
		{`{"code":0}`, drain.Auth{}, "no data"},
		{`{"code":0,"data":null}`, drain.Auth{}, "no state"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.answer == "" {
				http.NotFound(w, r)
			}
			_, _ = w.Write([]byte(c.answer))
		}))
		d, err := New(server.URL, c.auth)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Status(t.Context(), w)
		if !errors.Is(err, drain.ErrCoordinator) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("want an error with %q, have %v", c.word, err)
		}
		server.Close()
	}
	if _, err := New("http://coordinator", drain.Auth{CA: []byte("none")}); err == nil {
		t.Error("a certificate that is none is accepted")
	}
}
