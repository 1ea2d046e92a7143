package memory

import (
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

func TestOOMScore(t *testing.T) {
	on := model.Policy{Mode: model.ModeEnforce, Protect: model.ProtectPolicy{Memory: true}}
	observes, off := on, on
	observes.Mode = model.ModeObserve
	off.Protect.Memory = false
	for _, c := range []struct {
		name     string
		policy   model.Policy
		class    model.Class
		kubelets int
		want     int
	}{
		{"batch that requests nothing has the highest already", on, model.ClassBE, 1000, 0},
		{"batch with a sidecar that requests memory", on, model.ClassBE, 970, 1000},
		{"online that requests nothing", on, model.ClassLS, 1000, 500},
		{"online that requests a little", on, model.ClassLS, 999, 499},
		{"online that requests nearly all", on, model.ClassLSR, 3, 1},
		{"Guaranteed", on, model.ClassLSE, -997, 0},
		{"unknown to the runtime, or as the node's daemons", on, model.ClassLS, 0, 0},
		{"a daemon", on, model.ClassSystem, 999, 1},
		{"a daemon that requests nearly all", on, model.ClassSystem, 2, 1},
		{"a daemon with the lowest already", on, model.ClassSystem, 1, 0},
		{"a daemon that is node-critical", on, model.ClassSystem, -997, 0},
		{"observed", observes, model.ClassLS, 1000, 0},
		{"switched off", off, model.ClassLS, 1000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := OOMScore(&model.Pod{Class: c.class}, &c.policy, c.kubelets); got != c.want {
				t.Errorf("%d becomes %d, want %d", c.kubelets, got, c.want)
			}
		})
	}
}
