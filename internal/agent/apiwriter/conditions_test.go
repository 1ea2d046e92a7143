package apiwriter

import (
	"context"
	"log/slog"
	"testing"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/model"
)

// TestConditions walks a pod's condition from the plan to the API and back.
func TestConditions(t *testing.T) {
	c := newConditions(func(context.Context, model.Condition) error { return nil },
		faillog.New(slog.New(slog.DiscardHandler)))
	has := model.PodCondition{Met: true, Reason: model.CPUsExclusive, Message: "a 1"}
	not := model.PodCondition{Reason: model.CPUsTaken, Message: "requested=1CPUs free=0CPUs"}
	plan := func(p model.PodCondition) []model.Condition {
		return []model.Condition{{UID: "u", Namespace: "n", Name: "p", PodCondition: p}}
	}
	shows := func(p model.PodCondition) []*model.Pod {
		return []*model.Pod{{UID: "u", APIUID: "u", Namespace: "n", Name: "p", CPUCondition: p}}
	}
	expect := func(what string, want *model.PodCondition) {
		t.Helper()
		got, any := c.next()
		if any != (want != nil) || any && (got.PodCondition != *want || got.Name != "p" || got.Namespace != "n") {
			t.Errorf("%s: %+v, %v", what, got, any)
		}
	}
	none := model.PodCondition{}

	c.post(plan(has), shows(none))
	expect("planned", &has)
	c.post(plan(has), shows(none))
	expect("sent, and not seen yet", nil)
	c.post(plan(has), shows(has))
	expect("seen", nil)
	c.post(plan(has), shows(none))
	expect("somebody removed it", &has)
	c.post(plan(not), shows(none))
	expect("it changed before it was seen", &not)

	failed := model.Condition{UID: "u", Namespace: "n", Name: "p", PodCondition: not}
	c.undo(failed)
	expect("it could not be set", &not)
	c.post(plan(has), shows(none))
	c.undo(failed)
	expect("it could not be set, and there is a newer one", &has)

	c.post(nil, shows(has))
	expect("nothing is planned any more", &none)
	c.post(nil, shows(none))
	expect("it is gone", nil)
	c.post(plan(has), nil)
	expect("of a pod that the API does not show", nil)
}
