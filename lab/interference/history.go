package interference

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// event is one thing that the agent reported of a pod, or did to it.
type event struct {
	at    time.Duration
	pod   string     // UID, or name
	code  model.Code // of a suspect or a throttle, or one of the two below
	score int64      // of a suspect, in thousandths
}

// Codes that the agent does not have.
const (
	restored  model.Code = ""          // the throttle ended
	trialVoid model.Code = "TrialVoid" // after a trial the pod is throttled as before it
)

// names reports whether the agent named the pod as a suspect.
func (e *event) names() bool { return e.code == model.SuspectNamed || e.code == model.SuspectOnline }

// frees reports whether the pod is no longer throttled.
func (e *event) frees() bool { return e.code == restored || e.code == model.ThrottleUndone }

// history collects events from one round of the agent's journal to the next.
type history struct {
	events    []event
	namedAt   time.Duration // of the last suspect
	throttles []model.Throttle
}

// add adds the events of a round.
func (h *history) add(r *node.Round) {
	is := r.Plan.Interference
	if is == nil {
		is = &model.Interference{}
	}
	if r.Node.Load == nil {
		return
	}
	clock := r.Node.Load.Clock
	if is.Named.Suspect != "" && is.NamedAt != h.namedAt {
		h.namedAt = is.NamedAt
		h.events = append(h.events, event{
			at: is.NamedAt, pod: is.Named.Suspect, code: is.Named.Code, score: is.Named.Score,
		})
	}
	for _, t := range h.throttles {
		if is.Throttle(t.UID) == nil {
			code := restored
			if is.Undone.UID == t.UID {
				code = is.Undone.Code
			}
			h.events = append(h.events, event{at: clock, pod: t.UID, code: code})
		}
	}
	before := model.Interference{Throttles: h.throttles}
	for _, t := range is.Throttles {
		was := before.Throttle(t.UID)
		switch {
		case was != nil && was.Code == t.Code && was.Milli == t.Milli:
		case was != nil && was.Code == model.ThrottleTried && was.Milli != t.Milli: // the last of several trials was undone
			h.events = append(h.events, event{at: clock, pod: t.UID, code: trialVoid})
		default:
			h.events = append(h.events, event{at: clock, pod: t.UID, code: t.Code})
		}
	}
	h.throttles = slices.Clone(is.Throttles)
}
