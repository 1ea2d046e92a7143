package node

import (
	"github.com/waterline-io/waterline/internal/decide/node/interference"
	"github.com/waterline-io/waterline/internal/model"
)

// searchInterference finds the pod that makes an online pod wait, while batch runs. Without batch the state stays: it
// bounds the trials of an hour.
func searchInterference(
	n *model.Node, policy *model.Policy, plan *model.Plan, lacked []model.Lacked, before *interference.State,
) *interference.State {
	if !policy.Protect.Interference {
		return nil
	}
	if !plan.Batch.Running {
		return before
	}
	var state interference.State
	if before != nil {
		state = *before
	}
	result, state := interference.Node(n, policy, lacked, state)
	if !result.Empty() {
		plan.Interference = &result
	}
	return &state
}

// interferenceNotices tells the owners of the victim and of the suspect what was found, and the owners of throttled
// pods why they are throttled.
func interferenceNotices(n *model.Node, r *model.Interference) []model.Notice {
	if r.Empty() {
		return nil
	}
	var notices []model.Notice
	add := func(uid, other, relation string, why model.Reason) {
		pod := model.FindPod(n.Pods, uid)
		if pod == nil {
			return
		}
		why.Key, why.Text = relation, model.PodName(n.Pods, other)
		notices = append(notices, model.Notice{UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, Reason: why})
	}
	if f := &r.Named; f.Suspect != "" {
		add(f.Victim, f.Suspect, "waits for", f.Reason())
		add(f.Suspect, f.Victim, "makes wait", f.Reason())
	}
	for i := range r.Throttles {
		t := &r.Throttles[i]
		add(t.UID, t.Victim, "for", t.Reason())
	}
	if t := &r.Undone; t.UID != "" {
		add(t.UID, t.Victim, "for", t.Reason())
	}
	return notices
}
