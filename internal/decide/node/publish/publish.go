// Package publish decides which resources the Node object offers to batch pods.
//
// A kubelet that restarts admits its running pods again, against the resources of the Node (measured, Kubernetes
// 1.36). It fails a pod that requests more of a resource than the Node has. So the amount that bound pods requested
// is never removed. A resource under Waterline's name may be absent without failing pods; one under Koordinator's
// name, which begins with kubernetes.io/, may not. To withdraw an offer therefore means to remove the former, and to
// reduce the latter to exactly the bound amount. No resource is ever published as 0.
package publish

import (
	"slices"

	"github.com/waterline-io/waterline/internal/model"
)

// Decide decides the resources of the Node. slack is nil before the first measurement. Until then, and until the pods
// are known, the Node stays as it is. If hot is set, nothing is sold.
func Decide(n *model.Node, p *model.Policy, slack *model.Slack, hot model.Reason) model.Publication {
	why := withdrawn(n, p, hot)
	if !n.PodsKnown || why.Code == "" && slack == nil {
		return model.Publication{}
	}
	all := model.Publication{Decided: true, Reason: why}
	for _, r := range model.NodeResources() {
		amount := bound(n.Pods, r)
		switch {
		case why.Code == "" && r.Koordinator == n.Koordinator:
			other := r
			other.Koordinator = !r.Koordinator
			// One slack is sold once, and not before those who hold it have released it.
			amount = max(amount, offer(slack, r)-bound(n.Pods, other)-held(n.Pods, r))
		case !r.Koordinator || !stands(n, r):
			amount = 0
		}
		if amount > 0 {
			all.Resources = append(all.Resources, model.Published{NodeResource: r, Amount: amount})
		}
	}
	return all
}

// stands reports whether a resource is on the Node and is Waterline's. One under Koordinator's name that is not
// belongs to another system, and so do the pods that request it.
func stands(n *model.Node, r model.NodeResource) bool {
	return slices.ContainsFunc(n.Object.Published, func(p model.Published) bool { return p.NodeResource == r })
}

// withdrawn returns why nothing is sold; the zero value if the offer may be published.
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

// maxAmount limits amounts in computations, so that no sum can overflow.
const maxAmount = 1 << 50

// bound returns the requests of bound pods for a resource.
func bound(pods []*model.Pod, r model.NodeResource) int64 {
	sum := int64(0)
	for _, pod := range pods {
		if pod.Ended || pod.Koordinator != r.Koordinator {
			continue
		}
		request := pod.Batch
		if r.Tier == model.TierMid {
			request = pod.Mid
		}
		if r.Memory {
			sum = min(sum+min(max(request.Memory, 0), maxAmount), maxAmount)
		} else {
			sum = min(sum+min(max(request.CPU, 0), maxAmount), maxAmount)
		}
	}
	return sum
}

// held returns the amount of a resource that pods use beyond what slack allows, and will release.
func held(pods []*model.Pod, r model.NodeResource) int64 {
	sum := int64(0)
	for _, pod := range pods {
		if !pod.Ended && r.Memory && r.Tier == model.TierBatch {
			sum = min(sum+min(max(pod.Held, 0), maxAmount), maxAmount)
		}
	}
	return sum
}

// offer returns the offer of a resource.
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
