package node

import (
	"reflect"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/decide/node/publish"
)

// saveAfter is how long a state may go unsaved in which only measurements changed.
const saveAfter = 20 * time.Second

// Saved returns the part of a state that is saved for an agent that starts again on the same boot.
func (s State) Saved() State {
	s.Interference = s.Interference.Kept()
	s.Publish = publish.State{}
	return s
}

// Learned returns the part of a state that counts after a reboot: what was learned of the online pods. All else is
// about cgroups, which do not outlive a reboot, or about a clock that started anew.
func (s State) Learned() State {
	return State{
		Peaks:      predict.State{CPU: s.Peaks.CPU, Memory: s.Peaks.Memory, Owners: s.Peaks.Owners},
		Contention: s.Contention.Learned(),
	}
}

// MustSave reports whether a state must be saved before its plan is carried out, given the state that was saved last
// and how long ago. An agent that is killed must find which pods have which CPUs, and what is offered.
func (s State) MustSave(saved *State, age time.Duration) bool {
	return age >= saveAfter || s.offers() != saved.offers() || s.CPUsDiffer(saved)
}

// CPUsDiffer reports whether pods have other CPUs of their own than in another state.
func (s State) CPUsDiffer(other *State) bool { return !reflect.DeepEqual(s.CPUs, other.CPUs) }

func (s State) offers() [4]int64 {
	cpu, memory := &s.Slack.CPU, &s.Slack.Memory
	return [...]int64{cpu.Mid.Offer, cpu.Batch.Offer, memory.Mid.Offer, memory.Batch.Offer}
}
