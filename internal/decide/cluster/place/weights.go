package place

import "github.com/waterline-io/waterline/internal/model"

// Weight is what the CPU of one pod depends on while CPU is short.
type Weight struct {
	QoS       model.QoSClass
	Request   int64 // CPU request, in milli-cores
	Limit     int64 // CPU limit, in milli-cores; 0: none
	Shares    int64 // weight by annotation or policy, within the policy's maximum; 0: none
	Unlimited bool  // its quota is lifted, so that the limit does not hold
}

// weight returns the weight that counts on a node, in shares; 0: none, the request counts. The weight of a BestEffort
// pod counts inside the BestEffort class only.
func (w *Weight) weight() int64 {
	if w.QoS == model.BestEffort {
		return 0
	}
	return w.Shares
}

// Expects returns the CPU that the weight lets its pod expect on a node, in milli-cores: 1024 shares are one CPU. It is
// no more than the pod may use, nor than the node has. A pod without a weight expects nothing.
func (w *Weight) Expects(cpu int64) int64 {
	if w.weight() == 0 {
		return 0
	}
	return min(w.Shares*1000/model.SharesPerCPU, cpu, w.most(cpu))
}

// most returns the CPU that the pod may use.
func (w *Weight) most(cpu int64) int64 {
	if w.Limit == 0 || w.Unlimited {
		return cpu
	}
	return w.Limit
}

// kubelet returns the shares that the kubelet gives the pod.
func (w *Weight) kubelet() int64 {
	if w.QoS == model.BestEffort {
		return model.MinShares
	}
	return model.MilliCPUToShares(w.Request)
}

// Hierarchy is a node's CPU and how its policy applies weights.
type Hierarchy struct {
	CPU                int64 // allocatable, in milli-cores
	PodsOnly           bool  // weights count within the pod's QoS class only (scope Pod)
	OverrideGuaranteed bool  // weights may take CPU that other pods request
}

// Sums are the sums of the pods of a node on which weight pressure depends, in shares. They are enough to tell that all
// weights are met.
type Sums struct {
	Weights int64 // of pods with a weight
	Plain   int64 // of the kubelet, of other pods
}

// Add returns the sums with one more pod.
func (s Sums) Add(w *Weight) Sums {
	if weight := w.weight(); weight > 0 {
		s.Weights += weight
	} else {
		s.Plain += w.kubelet()
	}
	return s
}

// Pressure returns the weight pressure of a node, in thousandths: the weights of its pods against its CPUs, of 1024
// shares each.
func (s Sums) Pressure(cpu int64) int64 { return permille(s.Weights*1000, cpu*model.SharesPerCPU) }

// Dilution returns by how much weights and requests together exceed the node's CPUs, in thousandths of these. While it
// is 0, each pod gets what it requests and what its weight lets it expect.
func (s Sums) Dilution(cpu int64) int64 {
	if s.Weights == 0 {
		return 0
	}
	all := cpu * model.SharesPerCPU
	return permille(max((s.Weights+s.Plain)*1000-all, 0), all)
}

// WeightCost returns what a pod costs a node in weight pressure; less is better. A pod with a weight costs the pressure
// that the node has with it; any other pod costs the dilution of the weights that are there. [Spread] turns costs into
// scores.
func WeightCost(s Sums, p *Weight, cpu int64) int64 {
	with := s.Add(p)
	if p.weight() > 0 {
		return with.Pressure(cpu) + with.Dilution(cpu)
	}
	return with.Dilution(cpu)
}

// Fits reports whether a pod and all weights of a node are met for certain, by the sums alone. [WeightFilter] then
// refuses nothing.
func Fits(s Sums, p *Weight, cpu int64) bool {
	with := s.Add(p)
	return with.Dilution(cpu) == 0
}

// fullSpread is the difference of costs, in thousandths, at which scores use their full range. Smaller differences
// count for less, so that nearly equal pressures do not outweigh the other scores.
const fullSpread = 50

// Spread turns the costs of all nodes into scores, in place: the cheapest node has [MaxScore].
func Spread(costs []int64) {
	if len(costs) == 0 {
		return
	}
	least, most := costs[0], costs[0]
	for _, c := range costs {
		least, most = min(least, c), max(most, c)
	}
	for i, c := range costs {
		costs[i] = MaxScore - (c-least)*MaxScore/max(most-least, fullSpread)
	}
}

// WeightFilter refuses a node on which the pod would get less than the part [Settings].Met of the CPU that its weight
// lets it expect, or another pod would. pods are those of the node. A pod that gets too little already refuses nobody
// who takes less than a hundredth of it. A BestEffort pod is never refused: its class has two shares.
func WeightFilter(h *Hierarchy, pods []Weight, p *Weight, s *Settings) Reason {
	var sums Sums
	for i := range pods {
		sums = sums.Add(&pods[i])
	}
	if p.QoS == model.BestEffort || Fits(sums, p, h.CPU) {
		return Reason{}
	}
	all := append(append(make([]Weight, 0, len(pods)+1), pods...), *p)
	before, after := Expect(h, pods), Expect(h, all)
	for i := range all {
		wants := all[i].Expects(h.CPU)
		if wants == 0 || after[i]*1000 >= wants*s.Met {
			continue
		}
		code := WeightUnmet
		if i < len(pods) {
			if code = WeightDiluted; after[i]*100 >= before[i]*99 {
				continue
			}
		}
		with := sums.Add(p)
		return reason(code, milli("got", after[i]), milli("wants", wants),
			milli("weights", with.Weights*1000/model.SharesPerCPU), milli("cpus", h.CPU))
	}
	return Reason{}
}

// Expect returns the CPU that each pod of a node gets while all of them want as much as they may use, in milli-cores.
// It is the arithmetic of the cgroup hierarchy, with the weights that the agent gives to pods and classes.
// The agent itself, system-critical pods and what runs outside of pods are left out.
func Expect(h *Hierarchy, pods []Weight) []int64 {
	shares, burstable := Effective(h, pods)
	type group struct {
		at     []int // indices of pods
		claims []model.Claim
		limit  float64 // of all of them
	}
	var guaranteed, burst, bestEffort group
	for i := range pods {
		g := &bestEffort
		switch pods[i].QoS {
		case model.Guaranteed:
			g = &guaranteed
		case model.Burstable:
			g = &burst
		}
		most := float64(pods[i].most(h.CPU))
		g.at, g.limit = append(g.at, i), g.limit+most
		g.claims = append(g.claims, model.Claim{Weight: float64(shares[i]), Limit: most})
	}
	parts := model.Divide(float64(h.CPU), append(guaranteed.claims,
		model.Claim{Weight: float64(burstable), Limit: burst.limit},
		model.Claim{Weight: float64(model.MinShares), Limit: bestEffort.limit}))
	got := make([]int64, len(pods))
	take := func(g *group, parts []float64) {
		for k, i := range g.at {
			got[i] = int64(parts[k])
		}
	}
	n := len(guaranteed.at)
	take(&guaranteed, parts)
	take(&burst, model.Divide(parts[n], burst.claims))
	take(&bestEffort, model.Divide(parts[n+1], bestEffort.claims))
	return got
}

// Effective returns the shares of each pod and of the Burstable class after the caps of the rule weight: what Burstable
// pods without a weight request, and what Guaranteed pods request, is kept for them.
func Effective(h *Hierarchy, pods []Weight) (shares []int64, burstable int64) {
	shares = make([]int64, len(pods))
	var guaranteed, requests, plain, base, weights, sum int64
	weighted := false
	for i := range pods {
		w := &pods[i]
		b := w.kubelet()
		if shares[i] = b; w.Shares > 0 {
			shares[i] = w.Shares
		}
		switch {
		case w.QoS == model.Guaranteed:
			guaranteed += b
		case w.QoS != model.Burstable:
		default:
			requests += w.Request
			weighted = weighted || w.Shares > 0
			if w.Shares > b {
				base, weights = base+b, weights+w.Shares
			} else {
				plain += shares[i]
			}
		}
	}
	all := h.CPU * model.SharesPerCPU / 1000
	if room := max(all-guaranteed-plain, 0); !h.OverrideGuaranteed && plain > 0 && weights > room {
		squeeze(pods, shares, room, weights)
	}
	for i := range pods {
		if pods[i].QoS == model.Burstable {
			sum += shares[i]
		}
	}
	kubelet := model.MilliCPUToShares(requests)
	more := max(sum-kubelet, 0)
	if !weighted || h.PodsOnly {
		more = 0
	}
	total := more
	unbounded := func(i int) bool {
		return pods[i].QoS == model.Guaranteed && pods[i].Unlimited && pods[i].Shares > pods[i].kubelet()
	}
	for i := range pods {
		if unbounded(i) {
			total += shares[i] - pods[i].kubelet()
		}
	}
	if spare := max(all-guaranteed-kubelet, 0); !h.OverrideGuaranteed && total > spare {
		more = more * spare / total
		for i := range pods {
			if unbounded(i) {
				shares[i] = pods[i].kubelet() + (shares[i]-pods[i].kubelet())*spare/total
			}
		}
	}
	return shares, model.ClampShares(kubelet + more)
}

// squeeze scales the weights of Burstable pods down to a sum, but none below the kubelet's shares.
func squeeze(pods []Weight, shares []int64, left, sum int64) {
	done := make([]bool, len(pods))
	of := func(i int) bool {
		return !done[i] && pods[i].QoS == model.Burstable && pods[i].Shares > pods[i].kubelet()
	}
	for again := true; again; {
		again = false
		for i := range pods {
			if base := pods[i].kubelet(); of(i) && shares[i]*left <= base*sum {
				left, sum = max(left-base, 0), sum-shares[i]
				shares[i], done[i], again = base, true, true
			}
		}
	}
	for i := range pods {
		if of(i) {
			shares[i] = shares[i] * left / sum
		}
	}
}
