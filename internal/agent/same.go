package agent

import (
	"slices"

	"github.com/waterline-io/waterline/internal/model"
)

// sameDecisions reports whether two plans decide the same, whatever they were computed from. Each reclaim of memory is
// new.
func sameDecisions(a, b *model.Plan) bool {
	same := slices.EqualFunc(a.Settings, b.Settings, func(s, t model.Setting) bool {
		return s.File == t.File && s.Value == t.Value && s.Release == t.Release && s.Reason.Code == t.Reason.Code &&
			deferredFor(&s) == deferredFor(&t)
	})
	same = same && b.Reclaim == nil && !b.Publish.Write && !b.Report.Write && slices.Equal(a.Conditions, b.Conditions) &&
		(a.Slack == nil) == (b.Slack == nil)
	same = same && slices.EqualFunc(a.Notices, b.Notices,
		func(m, n model.Notice) bool { return m.UID == n.UID && m.Reason.Code == n.Reason.Code })
	same = same && sameInterference(a.Interference, b.Interference) && sameEvictions(a.Evict, b.Evict)
	if !same || a.Slack == nil {
		return same
	}
	return a.Slack.CPU.Offer == b.Slack.CPU.Offer && a.Slack.Memory.Offer == b.Slack.Memory.Offer &&
		sameSuppression(a.Suppress, b.Suppress)
}

// deferredFor returns why a file is not written now; "" if it is.
func deferredFor(s *model.Setting) model.Code {
	if s.Deferred == nil {
		return ""
	}
	return s.Deferred.Code
}

// sameEvictions reports whether the same pod should leave, the node is hot for the same reason, and the last eviction
// has the same known result.
func sameEvictions(a, b *model.Evictions) bool {
	who := func(e *model.Evictions) (uid string, last model.Relief) {
		if e == nil {
			return "", model.Relief{}
		}
		if e.Request != nil {
			uid = e.Request.UID
		}
		return uid, e.Last
	}
	pod, last := who(a)
	other, relief := who(b)
	return pod == other && last == relief && a.HotFor().Code == b.HotFor().Code
}

// sameInterference reports whether the same suspects are named and throttled.
func sameInterference(a, b *model.Interference) bool {
	var none model.Interference
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	return a.NamedAt == b.NamedAt && a.Undone.UID == b.Undone.UID && slices.Equal(a.Throttles, b.Throttles)
}

func sameSuppression(a, b *model.Suppression) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Milli == b.Milli && a.CPUs == b.CPUs && a.Reaction == b.Reaction
}
