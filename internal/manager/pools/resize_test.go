package pools

import (
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// manyResizes is a pool whose workers all get another total, with a ResourceManager that answers both protocols.
type manyResizes struct {
	*fakerm.RM
	rpc net.Listener
	k   *keeper
}

func newManyResizes(t *testing.T, n int) *manyResizes {
	t.Helper()
	m := &manyResizes{RM: fakerm.New(fakerm.Options{})}
	web := httptest.NewServer(m.RM)
	t.Cleanup(web.Close)
	var err error
	if m.rpc, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.rpc.Close() })
	go m.ServeRPC(m.rpc)
	for i := range n {
		m.Start(fakerm.Worker{Host: fmt.Sprintf("w-%d", i), Size: fakerm.Size{MemoryMiB: 1024, VCores: 1}})
	}
	m.Tick(time.Now().Add(time.Second)) // they register
	e, _, err := newEngine(&v1alpha1.YARNSpec{
		ResourceManagers: []string{web.URL}, User: "yarn", Admins: []string{m.rpc.Addr().String()},
	}, nil, anywhere(t))
	if err != nil {
		t.Fatal(err)
	}
	m.k = &keeper{engine: e, log: slog.New(slog.DiscardHandler), logged: map[string]string{}}
	return m
}

// round returns a round that resizes so many workers.
func (m *manyResizes) round(n int, to pool.Size) *round {
	r := &round{k: m.k, now: time.Now(), t: &trouble{}}
	for i := range n {
		name := fmt.Sprintf("w-%d", i)
		r.places = append(r.places, place{worker: &pool.Worker{Name: name, Managers: []pool.Manager{{
			ID: net.JoinHostPort(name, fmt.Sprint(nmPort)), State: "RUNNING", Total: pool.Size{MemoryMiB: 1024, VCores: 1},
		}}}})
		r.steps = append(r.steps, pool.Step{Worker: name, Verb: pool.Resize, Size: to, Within: time.Minute})
	}
	return r
}

// have returns how many of the workers have a total.
func (m *manyResizes) have(n int, total pool.Size) (have int) {
	for i := range n {
		if m.Node(fmt.Sprintf("w-%d", i)).Total == (fakerm.Size{MemoryMiB: total.MemoryMiB, VCores: total.VCores}) {
			have++
		}
	}
	return have
}

// TestResizeTogether resizes many workers in one call, and a few by a request each. Where the administration protocol
// cannot be reached, as many as a round may are resized by the web services.
func TestResizeTogether(t *testing.T) {
	const n = 2000
	m := newManyResizes(t, n)
	two, three, four := pool.Size{MemoryMiB: 2048, VCores: 2}, pool.Size{MemoryMiB: 3072, VCores: 3}, pool.Size{}
	r := m.round(n, two)
	if most := r.most(); most != together {
		t.Errorf("a round resizes %d workers, want %d", most, together)
	}
	failed := make([]error, n)
	r.resize(t.Context(), failed)
	if c := m.Counted(); m.have(n, two) != n || c.Calls != 1 || c.Requests != 0 {
		t.Errorf("%d have the total after %d calls and %d requests", m.have(n, two), c.Calls, c.Requests)
	}
	if got := m.k.heard["w-1999"]; !got.Equal(r.now.Add(time.Minute)) || len(m.k.asked) != n {
		t.Errorf("heard %v, %d asked", got, len(m.k.asked))
	}

	m.round(resizes, three).resize(t.Context(), make([]error, n))
	if c := m.Counted(); m.have(n, three) != resizes || c.Calls != 1 || c.Requests != resizes {
		t.Errorf("a few: %d have the total after %d calls and %d requests", m.have(n, three), c.Calls, c.Requests)
	}

	unknown := m.round(n, four)
	unknown.places[7].worker.Managers[0].ID = "gone:45454"
	unknown.resize(t.Context(), failed)
	if c := m.Counted(); m.have(n, four) != resizes-1 || c.Calls != 2 || failed[7] == nil {
		t.Errorf("one is gone: %d have the total after %d calls, %v", m.have(n, four), c.Calls, failed[7])
	}
	if most := unknown.most(); most != resizes || m.k.engine.single.After(unknown.now.Add(singly/2)) {
		t.Errorf("one is gone: %d in a round until %s", most, m.k.engine.single)
	}

	m.k.engine.single = time.Time{}
	_ = m.rpc.Close()
	r = m.round(n, three)
	r.resize(t.Context(), make([]error, n))
	if got := m.have(n, three); got != resizes || r.most() != resizes {
		t.Errorf("without the protocol: %d have the total, and a round resizes %d", got, r.most())
	}
	r.now = r.now.Add(singly)
	if r.most() != together {
		t.Error("the protocol is not tried again")
	}
	if m.k.logged == nil || len(m.k.logged) != 1 {
		t.Errorf("the log has %v", m.k.logged)
	}
}

// TestPause checks that a pool of many workers rests longer, and never longer than a round may be away.
func TestPause(t *testing.T) {
	for workers, want := range map[int]time.Duration{
		0: 500 * time.Millisecond, 500: 500 * time.Millisecond, 1200: 1200 * time.Millisecond, 2000: 2 * time.Second,
		10000: 2 * time.Second,
	} {
		if got := pauseOf(workers); got != want {
			t.Errorf("%d workers rest for %s, want %s", workers, got, want)
		}
	}
}
