package culprit

import "github.com/waterline-io/waterline/internal/model"

// Node takes in what a node measured, and says who is to blame there, as [Decide] does. It is for nodes on which batch runs: where
// none does, nobody need look.
//
// Batch is throttled only where what is decided is carried out. What was given to a pod that is none of those that the API knows
// is compared too, but it neither counts as waiting nor is throttled.
func Node(n *model.Node, p *model.Policy, s *State) *model.Blame {
	in := &s.in
	in.Clock, in.Acts = n.Load.Clock, p.Mode == model.ModeEnforce && !n.Tree.ReadOnly
	in.Pods = in.Pods[:0]
	next := 0
	for i := range n.Load.Pods {
		u := &n.Load.Pods[i]
		for next < len(n.Pods) && n.Pods[next].UID < u.UID {
			next++
		}
		c := model.Contender{UID: u.UID, New: u.New, UsedAt: u.CPU.At, Used: u.CPU.Milli}
		if next < len(n.Pods) && n.Pods[next].UID == u.UID && !n.Pods[next].Ended {
			pod := n.Pods[next]
			c.Online, c.Batch, c.Shares = pod.Class.Online(), pod.Class == model.ClassBE, weighs(pod)
			if c.Online {
				c.Wait, c.WaitAt = model.Waited(&u.Usage, pod.LimitMilli)
			}
		}
		in.Pods = append(in.Pods, c)
	}
	return Decide(in, s)
}

// weighs returns the weight that a pod came with, in shares. It is compared among batch, which has one class.
func weighs(pod *model.Pod) int64 {
	if pod.Asks.Shares != 0 {
		return pod.Asks.Shares
	}
	return model.MilliCPUToShares(max(pod.Grant.RequestMilli, pod.RequestMilli))
}
