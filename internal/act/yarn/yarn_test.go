package yarn

import (
	"fmt"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/yarn"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// many are workers that all get another total, with a ResourceManager that answers both protocols.
type many struct {
	*fakerm.RM
	rpc net.Listener
	a   *Actor
	now time.Time
}

func newMany(t *testing.T, n int) *many {
	t.Helper()
	m := &many{RM: fakerm.New(fakerm.Options{}), now: time.Now()}
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
	dial := (&net.Dialer{}).DialContext
	c, err := yarn.NewCluster(yarn.ClusterOptions{Endpoint: yarn.Endpoint{
		ResourceManagers: []string{web.URL}, User: "yarn", Admins: []string{m.rpc.Addr().String()},
	}, Dial: dial, DialWorker: dial})
	if err != nil {
		t.Fatal(err)
	}
	m.a = &Actor{}
	m.a.Use(c)
	return m
}

// round begins a round and returns the resizes of so many workers.
func (m *many) round(n int, to model.Size) (all []*Resize) {
	m.a.Begin()
	for i := range n {
		name := fmt.Sprintf("w-%d", i)
		all = append(all, &Resize{
			Worker: name, ID: net.JoinHostPort(name, "45454"), From: model.Size{MemoryMiB: 1024, VCores: 1}, To: to,
			Deadline: m.now.Add(time.Minute),
		})
	}
	return all
}

// have returns how many of the workers have a total.
func (m *many) have(n int, total model.Size) (have int) {
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
	m := newMany(t, n)
	now := m.now
	two, three, four := model.Size{MemoryMiB: 2048, VCores: 2}, model.Size{MemoryMiB: 3072, VCores: 3}, model.Size{}
	if most := m.a.Most(now); most != MaxTogether {
		t.Errorf("a round resizes %d workers, want %d", most, MaxTogether)
	}
	if err := m.a.Resize(t.Context(), now, m.round(n, two)); err != nil {
		t.Error(err)
	}
	if c := m.Counted(); m.have(n, two) != n || c.Calls != 1 || c.Requests != 0 {
		t.Errorf("%d have the total after %d calls and %d requests", m.have(n, two), c.Calls, c.Requests)
	}
	if got := m.a.Heard("w-1999"); !got.Equal(now.Add(time.Minute)) || len(m.a.asked) != n {
		t.Errorf("heard %v, %d asked", got, len(m.a.asked))
	}

	if err := m.a.Resize(t.Context(), now, m.round(MaxSingle, three)); err != nil {
		t.Error(err)
	}
	if c := m.Counted(); m.have(n, three) != MaxSingle || c.Calls != 1 || c.Requests != MaxSingle {
		t.Errorf("a few: %d have the total after %d calls and %d requests", m.have(n, three), c.Calls, c.Requests)
	}
	if got := m.a.Heard("w-1999"); !got.IsZero() {
		t.Errorf("heard %v of the round before", got)
	}

	unknown := m.round(n, four)
	unknown[7].ID = "gone:45454"
	if err := m.a.Resize(t.Context(), now, unknown); err == nil {
		t.Error("one is gone: no error")
	}
	if c := m.Counted(); m.have(n, four) != MaxSingle-1 || c.Calls != 2 || unknown[7].Err == nil {
		t.Errorf("one is gone: %d have the total after %d calls, %v", m.have(n, four), c.Calls, unknown[7].Err)
	}
	if most := m.a.Most(now); most != MaxSingle || m.a.Most(now.Add(singleOnceTime)) != MaxTogether {
		t.Errorf("one is gone: %d in a round until %s", most, m.a.single)
	}

	now = now.Add(singleOnceTime)
	_ = m.rpc.Close()
	if err := m.a.Resize(t.Context(), now, m.round(n, three)); err == nil {
		t.Error("without the protocol: no error")
	}
	if got := m.have(n, three); got != MaxSingle || m.a.Most(now.Add(singleOnceTime)) != MaxSingle {
		t.Errorf("without the protocol: %d have the total, and a round resizes %d", got, m.a.Most(now.Add(singleOnceTime)))
	}
	if m.a.Most(now.Add(singleTime)) != MaxTogether {
		t.Error("the protocol is not tried again")
	}
}

// TestCheck checks that a resize that has no effect is an error after a while, also if it is sent again meanwhile, and
// that another total ends that.
func TestCheck(t *testing.T) {
	from, to := model.Size{MemoryMiB: 1024, VCores: 1}, model.Size{MemoryMiB: 2048, VCores: 2}
	a, now := &Actor{}, time.Now()
	a.Begin()
	for range 3 {
		a.note(now, &Resize{Worker: "w", From: from, To: to})
		if err := a.Check(now, "w", &from); err != nil {
			t.Errorf("just now: %v", err)
		}
		now = now.Add(4 * time.Second)
	}
	if err := a.Check(now, "w", &from); err == nil || a.Check(now, "other", &from) != nil {
		t.Errorf("after a while: %v", err)
	}
	if err := a.Check(now, "w", &to); err != nil || a.Check(now, "w", &from) != nil {
		t.Errorf("it has the total: %v", err)
	}
}

// TestPromise tells a deadline twice, as two shrinks in a row do. The ResourceManager heard it late, so its containers
// have longer than was decided, and the second time takes nothing of that. Another deadline counts as it is, and so
// does one that was not confirmed.
func TestPromise(t *testing.T) {
	const late = 10 * time.Minute // from the decision to the ResourceManager
	for _, n := range []int{1, MaxSingle + 1} {
		m := newMany(t, n)
		decided := time.Now().Add(-late).Round(0)
		all := m.round(n, model.Size{MemoryMiB: 2048, VCores: 1})
		for _, r := range all {
			r.Deadline = decided.Add(time.Hour)
		}
		if err := m.a.Resize(t.Context(), decided, all); err != nil {
			t.Fatal(err)
		}
		for _, passed := range []time.Duration{5 * time.Minute, time.Hour + time.Minute} {
			again := decided.Add(passed)
			if err := m.a.Resize(t.Context(), again, nil); err != nil { // what is over is forgotten, and this is not
				t.Fatal(err)
			}
			same := &Resize{Worker: "w-0", Deadline: decided.Add(time.Hour)}
			if got := m.within(again, same); got <= time.Hour-passed || got <= 0 {
				t.Errorf("%d workers: the same deadline again: %s, want an hour", n, got)
			}
			sooner := &Resize{Worker: "w-0", Deadline: again.Add(time.Minute)}
			if got := m.within(again, sooner); got != time.Minute {
				t.Errorf("%d workers: another deadline: %s, want a minute", n, got)
			}
		}
		again, same := decided.Add(5*time.Minute), &Resize{Worker: "w-0", Deadline: decided.Add(time.Hour)}
		same.ID = "gone:45454"
		if _ = m.a.Resize(t.Context(), again, []*Resize{same}); same.Err == nil {
			t.Error("one is gone: no error")
		}
		if got := m.within(again, same); got != 55*time.Minute {
			t.Errorf("%d workers: not confirmed: %s, want 55 minutes", n, got)
		}
	}
}

// within returns how long the ResourceManager would be told to wait.
func (m *many) within(now time.Time, r *Resize) time.Duration {
	m.a.promise(now, r)
	return r.within
}

// TestTooLate tells a smaller size that shares the deadline of the size before when that is over, or when the decision
// is old. It is left, because what fitted until then would have less than its time. A total that another
// ResourceManager gets again is told.
func TestTooLate(t *testing.T) {
	for _, n := range []int{1, MaxSingle + 1} {
		for _, c := range []struct{ left, age time.Duration }{{hearMargin / 2, 0}, {time.Hour, 2 * oldDecision}} {
			m := newMany(t, n)
			now := time.Now().Add(-c.age).Round(0)
			resize := func(from, to int64) *Resize {
				all := m.round(n, model.Size{MemoryMiB: to, VCores: 1})
				for _, r := range all {
					r.From.MemoryMiB, r.Deadline = from, now.Add(c.left)
				}
				if err := m.a.Resize(t.Context(), now, all); err != nil {
					t.Fatal(err)
				}
				return all[0]
			}
			have := func(memory int64) int { return m.have(n, model.Size{MemoryMiB: memory, VCores: 1}) }
			resize(4096, 3072)
			left := resize(3072, 2048)
			if have(3072) != n || left.Err != nil || !m.a.Heard("w-0").IsZero() {
				t.Errorf("%d workers, %+v: %d have the size before, error %v, heard %s", n, c, have(3072), left.Err,
					m.a.Heard("w-0"))
			}
			resize(3072, 3073)
			if have(3073) != n || m.a.Heard("w-0").IsZero() {
				t.Errorf("%d workers, %+v: %d were told the total again", n, c, have(3073))
			}
		}
	}
}
