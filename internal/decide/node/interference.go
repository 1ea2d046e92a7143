package node

import (
	"slices"

	"github.com/waterline-io/waterline/internal/decide/node/interference"
	"github.com/waterline-io/waterline/internal/decide/node/suppress"
	"github.com/waterline-io/waterline/internal/model"
)

// Interferes reports whether it is looked for whom online pods wait for, the policy says so, and there is batch.
func Interferes(pods []*model.Pod, policy *model.Policy) bool {
	return policy.Protect.Interference && policy.Mode != model.ModeDisabled &&
		slices.ContainsFunc(pods, func(p *model.Pod) bool { return p.Class == model.ClassBE && !p.Ended })
}

// interferes finds out whom online pods wait for, while batch runs. Without batch what is remembered stays: how often somebody was tried
// within the hour.
func interferes(n *model.Node, policy *model.Policy, plan *model.Plan, s *interference.State) *interference.State {
	if !policy.Protect.Interference || policy.Mode == model.ModeDisabled {
		return nil
	}
	if !suppress.Running(n.Pods, &n.Tree) {
		return s
	}
	if s == nil {
		s = &interference.State{}
	}
	if b := interference.Node(n, policy, s); !b.Empty() {
		kept := *b
		kept.Throttles = slices.Clone(b.Throttles)
		plan.Interference = &kept
	}
	return s
}

// interferenceNotices tells the owners of both pods who was named, and those of batch pods what becomes of them for that.
func interferenceNotices(n *model.Node, b *model.Interference) []model.Notice {
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
