package policy

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// nightly is a policy that sells from 00:00 to 09:00 UTC and then drains for 15 minutes before the end.
func nightly(name string, priority int64) model.ClusterPolicy {
	p := model.ClusterPolicy{
		Name: name, Priority: priority, Rollout: 100, Policy: fixture.Policy(),
		Windows: []model.Window{{Name: "night", End: 9 * 60, DrainBefore: 15 * time.Minute}},
	}
	p.Policy.CPU.Method = model.SellPredicted
	return p
}

// ruled returns a node that is governed by the first of these.
func ruled(policies ...model.ClusterPolicy) *governed {
	a := &governed{ruling: Governing{Log: faillog.New(slog.New(slog.DiscardHandler))}}
	a.node.UID, a.node.Labels, a.policies = "7f3c", map[string]string{"pool": "web"}, policies
	return a
}

// governed is a node of a cluster.
type governed struct {
	ruling   Governing
	node     model.NodeInfo
	policies []model.ClusterPolicy
}

func (g *governed) update(now time.Time) bool { return g.ruling.Update(now, g.node, g.policies) }

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestIdleSecond checks that a second in which nothing changed costs nothing, whether policies come from the cluster or
// from a file.
func TestIdleSecond(t *testing.T) {
	for _, file := range []bool{false, true} {
		a := ruled(nightly("a", 3), nightly("b", 2), nightly("c", 1))
		if file {
			own := []model.ClusterPolicy{nightly("own", 0)}
			a.ruling.File = func() ([]model.ClusterPolicy, error) { return own, nil }
		}
		now := midnight
		if !a.update(now) {
			t.Fatal("no policy is news")
		}
		if n := testing.AllocsPerRun(1000, func() {
			if now = now.Add(time.Second); a.update(now) {
				t.Errorf("news at %s", now)
			}
		}); n > 0 {
			t.Errorf("from a file %v: %v allocations a second", file, n)
		}
	}
}

// TestPolicyFollowsTheClock checks what is sold in each second of a day, after which the clock is set back by two days,
// and by ten minutes and more around the end of a window.
func TestPolicyFollowsTheClock(t *testing.T) {
	a := ruled(nightly("a", 3))
	for _, start := range []time.Duration{
		10 * time.Hour, -14 * time.Hour, 8*time.Hour + 50*time.Minute, 8*time.Hour + 40*time.Minute, 0,
	} {
		for second := range 24 * 3600 {
			if start > 8*time.Hour && start < 9*time.Hour && second == 15*60 {
				break
			}
			now := midnight.Add(start + time.Duration(second)*time.Second)
			a.update(now)
			want := model.SellClosed
			switch clock := now.Hour()*60 + now.Minute(); {
			case clock < 8*60+45:
				want = model.SellOpen
			case clock < 9*60:
				want = model.SellDraining
			}
			if e := a.ruling.effect; e.Selling != want || (e.Policy.CPU.Method != "") != (want == model.SellOpen) {
				t.Fatalf("at %s: %s with method %q, want %s", now, e.Selling, e.Policy.CPU.Method, want)
			}
		}
	}
	a.update(time.Now())
	if strings.Contains(a.ruling.at.String(), "m=") {
		t.Error("by the monotonic clock nobody notices that the other one is set back")
	}
}

// TestPolicyAsksAgain checks that a policy which names no moment of its next change is asked anew before it could have
// one.
func TestPolicyAsksAgain(t *testing.T) {
	a := ruled(nightly("a", 3))
	a.update(midnight)
	a.ruling.effect.Next, a.ruling.effect.Selling = time.Time{}, model.SellClosed
	for second := range 3600 {
		if a.update(midnight.Add(time.Duration(second) * time.Second)) {
			t.Fatalf("asked after %d s", second)
		}
	}
	if !a.update(midnight.Add(time.Hour)) || a.ruling.effect.Selling != model.SellOpen {
		t.Errorf("%+v after an hour", a.ruling.effect)
	}
}

// TestPolicyFollowsItsInputs checks that each thing that the choice depends on makes it anew.
func TestPolicyFollowsItsInputs(t *testing.T) {
	web := nightly("web", 5)
	web.Nodes = model.Selector{{Key: "pool", Op: model.In, Values: []string{"web"}}}
	quarter := nightly("quarter", 9)
	quarter.Rollout = 25
	a := ruled(nightly("all", 1), web, quarter)
	now := midnight
	for _, c := range []struct {
		what   string
		change func()
		want   string
	}{
		{"the start", func() {}, "web"},
		{"other labels", func() { a.node.Labels = map[string]string{"pool": "db"} }, "all"},
		{"a node of the quarter", func() { a.node.UID = inQuarter(t) }, "quarter"},
		{
			"other policies", func() { a.policies = []model.ClusterPolicy{nightly("all", 1), nightly("new", 10), quarter} },
			"new",
		},
		{"paused", func() { a.node.Paused = true }, ""},
		{"no longer paused", func() { a.node.Paused = false }, "new"},
		{"no policies", func() { a.policies = nil }, ""},
		{"opted out", func() { a.node.Labels = map[string]string{"waterline.io/opt-out": "true"} }, ""},
	} {
		c.change()
		now = now.Add(time.Second)
		a.update(now)
		if got := a.ruling.choice.Policy.Name; got != c.want {
			t.Errorf("%s: governed by %q, want %q", c.what, got, c.want)
		}
	}
	if a.ruling.effect.Policy.Mode != model.ModeDisabled {
		t.Errorf("opted out and in mode %s", a.ruling.effect.Policy.Mode)
	}
}

// inQuarter returns the UID of a node on which a policy of this name holds that is rolled out to a quarter.
func inQuarter(t *testing.T) string {
	t.Helper()
	quarter := nightly("quarter", 9)
	quarter.Rollout = 25
	for i := range 1000 {
		a := ruled(quarter)
		a.node.UID = fmt.Sprint(i)
		if a.update(midnight); a.ruling.choice.Policy.Name != "" {
			return a.node.UID
		}
	}
	t.Fatal("no node is in a quarter")
	return ""
}

// TestPolicyUnreadable checks that while a file cannot be read, what it said stays in force, and its windows go on.
func TestPolicyUnreadable(t *testing.T) {
	a := ruled()
	var file []model.ClusterPolicy
	broken := errors.New("no such file")
	a.ruling.File = func() ([]model.ClusterPolicy, error) { return file, broken }
	if a.update(midnight) || a.ruling.effect.Policy.Mode != "" {
		t.Errorf("decided without a policy: %+v", a.ruling.effect)
	}
	file, broken = []model.ClusterPolicy{nightly("own", 0)}, nil
	if !a.update(midnight) || a.ruling.effect.Selling != model.SellOpen {
		t.Errorf("the file can be read: %+v", a.ruling.effect)
	}
	file, broken = nil, errors.New("bad document")
	for _, c := range []struct {
		after time.Duration
		want  model.SellState
	}{{time.Hour, model.SellOpen}, {
		8*time.Hour + 50*time.Minute, model.SellDraining,
	}, {9 * time.Hour, model.SellClosed}, {24 * time.Hour, model.SellOpen}} {
		a.update(midnight.Add(c.after))
		if got := a.ruling.effect.Selling; got != c.want || a.ruling.choice.Policy.Name != "own" {
			t.Errorf("after %s: %s by %q, want %s", c.after, got, a.ruling.choice.Policy.Name, c.want)
		}
	}
}

// TestOff checks when an agent that ends leaves nothing behind.
func TestOff(t *testing.T) {
	enforced, disabled := nightly("a", 3), nightly("a", 3)
	disabled.Policy.Mode = model.ModeDisabled
	a := ruled()
	for i, step := range []struct {
		what     string
		policies []model.ClusterPolicy
		want     bool
	}{
		{"no policy yet", nil, false},
		{"a policy", []model.ClusterPolicy{enforced}, false},
		{"it is deleted", nil, false},
		{"it is disabled", []model.ClusterPolicy{disabled}, true},
		{"and deleted", nil, true},
		{"another one", []model.ClusterPolicy{enforced}, false},
	} {
		a.policies = step.policies
		a.update(midnight.Add(time.Duration(i) * time.Second))
		if got := a.ruling.Off(); got != step.want {
			t.Errorf("%s: off %v", step.what, got)
		}
	}
	a.node.Labels = map[string]string{v1alpha1.LabelOptOut: "true"}
	a.update(midnight.Add(time.Minute))
	if !a.ruling.Off() {
		t.Error("the node opted out: not off")
	}
}
