package decide

import (
	"slices"

	"github.com/waterline-io/waterline/internal/decide/culprit"
	"github.com/waterline-io/waterline/internal/decide/suppress"
	"github.com/waterline-io/waterline/internal/model"
)

// Blames reports whether it is looked for whom online pods wait for, the policy says so, and there is batch.
func Blames(pods []*model.Pod, policy *model.Policy) bool {
	return policy.Protect.Culprit && policy.Mode != model.ModeOff &&
		slices.ContainsFunc(pods, func(p *model.Pod) bool { return p.Class == model.ClassBE && !p.Ended })
}

// blame finds out whom online pods wait for, while batch runs. Without batch what is remembered stays: how often somebody was tried
// within the hour.
func blame(n *model.Node, policy *model.Policy, plan *model.Plan, s *culprit.State) *culprit.State {
	if !policy.Protect.Culprit || policy.Mode == model.ModeOff {
		return nil
	}
	if !suppress.Running(n.Pods, &n.Tree) {
		return s
	}
	if s == nil {
		s = &culprit.State{}
	}
	if b := culprit.Node(n, policy, s); !b.Empty() {
		kept := *b
		kept.Throttles = slices.Clone(b.Throttles)
		plan.Blame = &kept
	}
	return s
}

// blameNotices tells the owners of both pods who was named, and those of batch pods what becomes of them for that.
func blameNotices(n *model.Node, b *model.Blame) []model.Notice {
	if b.Empty() {
		return nil
	}
	var notices []model.Notice
	tell := func(uid, other, how string, why model.Reason) {
		pod := model.FindPod(n.Pods, uid)
		if pod == nil {
			return
		}
		why.Key, why.Text = how, other
		if p := model.FindPod(n.Pods, other); p != nil {
			why.Text = p.Namespace + "/" + p.Name
		}
		notices = append(notices, model.Notice{UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, Reason: why})
	}
	if f := &b.Named; f.Suspect != "" {
		tell(f.Victim, f.Suspect, "waits for", f.Reason())
		tell(f.Suspect, f.Victim, "makes wait", f.Reason())
	}
	for i := range b.Throttles {
		t := &b.Throttles[i]
		tell(t.UID, t.Victim, "for", t.Reason())
	}
	if t := &b.Undone; t.UID != "" {
		tell(t.UID, t.Victim, "for", t.Reason())
	}
	return notices
}
