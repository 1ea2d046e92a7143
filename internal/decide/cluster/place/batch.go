package place

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// BatchFilter refuses a node for a batch pod: one whose agent is gone, so that nobody would hold the pod down, and one
// that takes no batch at present. Amounts are left to the stock scheduler, which counts them against the Node: a Node
// shows a shrunk offer within two seconds, a report can be a quarter of a minute late.
func BatchFilter(n *Node, s *Settings) Reason {
	switch r := n.Report; {
	case !n.Agent.Unknown && n.Agent.Gone > s.AgentGrace:
		return reason(AgentGone, seconds("gone", n.Agent.Gone), seconds("grace", s.AgentGrace))
	case r == nil || n.Unreadable:
		return Reason{}
	case r.Withdrawn:
		return Reason{Code: OfferRevoked}
	case r.Hot != "":
		return Reason{Code: NodeHot, Why: r.Hot}
	case r.Selling == model.SellDraining:
		return Reason{Code: WindowEnds, Why: "about to end"}
	case r.Selling == model.SellClosed:
		return Reason{Code: WindowEnds, Why: "closed"}
	}
	return Reason{}
}

// BatchScore scores a node for a batch pod by the room that it will still have under the waterline while the pod runs.
// Next to online pods it counts, for a pod that ends
//
//   - within an hour: their predicted peak of the hour;
//   - within four or eight hours: what they used at most on other days from this time on, so that the pod prefers nodes
//     whose trough lasts until it ends;
//   - later, or nobody knows when: their predicted peak of the day.
//
// It is never less than what they use now. A node whose agent has been away for a moment scores less, down to half at
// [Settings].AgentGrace: its offer is as old as that.
//
// If the report does not count, the score is [StockScore], and the reason says why.
func BatchScore(n *Node, p *Pod, s *Settings) (int64, Reason) {
	r, why := n.Trusted(s)
	if r == nil {
		return StockScore(n, p), why
	}
	sold := n.Sold.Plus(p.Batch).Plus(p.Mid)
	room := min(left(&r.CPU, sold.CPU, p.Lasts), left(&r.Memory, sold.Memory, p.Lasts))
	score := (1000 + room) * MaxScore / 2000
	if age := n.Agent.Gone; !n.Agent.Unknown && age > 0 && s.AgentGrace > 0 {
		score -= score * permille(int64(age), int64(s.AgentGrace)) / 2000
	}
	return score, Reason{}
}

// left returns the part of a resource that is left under the waterline while a pod runs, in thousandths from -1000 to
// 1000.
func left(a *Account, sold int64, lasts time.Duration) int64 {
	return min(max(permille(a.Ceiling-a.System-max(a.Online, a.most(lasts))-sold, a.Capacity), -1000), 1000)
}

// most returns what online pods are expected to use at most in a time from now on; 0: nobody knows how long it is.
func (a *Account) most(lasts time.Duration) int64 {
	switch {
	case lasts <= 0:
	case lasts <= time.Hour:
		return a.PeakHour
	case lasts <= 4*time.Hour && a.OtherFour > 0:
		return a.OtherFour
	case lasts <= 8*time.Hour && a.OtherEight > 0:
		return a.OtherEight
	}
	return max(a.PeakHour, a.PeakDay)
}
