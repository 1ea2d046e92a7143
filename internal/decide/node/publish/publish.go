// Package publish decides what stands on the Node object for batch pods to ask for.
//
// A kubelet that restarts admits its running pods anew, against what the Node says (measured, Kubernetes 1.36). It fails a
// pod that asks for more of a resource than is there, so what bound pods asked for is never taken away from under them. A
// resource in our own name that is not on the Node at all is no reason to fail; of one in Koordinator's, which begins with
// kubernetes.io/, it is. To withdraw therefore means to remove the first, and to leave of the second exactly what is bound.
// Nothing is ever published as 0.
package publish

import "github.com/waterline-io/waterline/internal/model"

// Decide decides what stands on the Node. The slack is nil while nothing was measured: then, and while the pods are not
// known, what stands there stays. While the node is hot for some reason, nothing is sold on it.
func Decide(n *model.Node, p *model.Policy, slack *model.Slack, hot model.Reason) model.Publication {
	why := withdrawn(n, p, hot)
	if !n.PodsKnown || why.Code == "" && slack == nil {
		return model.Publication{}
	}
	all := model.Publication{Decided: true, Reason: why}
	for _, r := range model.NodeResources() {
		amount := bound(n.Pods, r)
		switch {
		case why.Code == "" && r.Koordinator == p.Koordinator:
			other := r
			other.Koordinator = !r.Koordinator
			amount = max(amount, offer(slack, r)-bound(n.Pods, other)) // one slack is sold once
		case !r.Koordinator:
			amount = 0
		}
		if amount > 0 {
			all.Resources = append(all.Resources, model.Published{NodeResource: r, Amount: amount})
		}
	}
	return all
}

// withdrawn returns why nothing is sold; the zero value if something may be.
func withdrawn(n *model.Node, p *model.Policy, hot model.Reason) model.Reason {
	switch {
	case p.Mode == model.ModeObserve:
		return model.Reason{Code: model.ObserveOnly}
	case p.Mode != model.ModeEnforce || p.CPU.Method == "" && p.Memory.Method == "":
		return model.Reason{Code: model.NotSold}
	case n.Withdrawn:
		return model.Reason{Code: model.OfferWithdrawn}
	}
	return hot
}

// most is the highest amount that is reckoned with, so that no sum can overflow.
const most = 1 << 50

// bound returns what pods that are bound to the node asked for of a resource.
func bound(pods []*model.Pod, r model.NodeResource) int64 {
	sum := int64(0)
	for _, pod := range pods {
		if pod.Ended || pod.Koordinator != r.Koordinator {
			continue
		}
		asked := pod.Batch
		if r.Tier == model.TierMid {
			asked = pod.Mid
		}
		if r.Memory {
			sum = min(sum+min(max(asked.Memory, 0), most), most)
		} else {
			sum = min(sum+min(max(asked.CPU, 0), most), most)
		}
	}
	return sum
}

// offer returns what is sold of a resource.
func offer(slack *model.Slack, r model.NodeResource) int64 {
	account := &slack.CPU
	if r.Memory {
		account = &slack.Memory
	}
	if r.Tier == model.TierMid {
		return account.Offer.Mid
	}
	return account.Offer.Batch
}
