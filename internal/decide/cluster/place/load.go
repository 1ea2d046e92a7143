package place

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// LoadScore scores a node by the load that is expected on it with the pod: what the system uses, what online pods use
// or will use within an hour, whichever is more, and estimates of pods that the report does not include yet. Both CPU
// and memory count, the scarcer one twice. A node with either above [Settings].Hot scores 0. Batch does not count,
// because it gives way.
//
// If the report does not count, the score is [StockScore], and the reason says why.
func LoadScore(n *Node, p *Pod, s *Settings) (int64, Reason) {
	load, why := LoadOf(n, s)
	if why.Code != "" {
		return StockScore(n, p), why
	}
	return load.Score(Estimate(p.Requests, s), s), Reason{}
}

// Load is what [LoadScore] needs of a node whose report counts.
type Load struct {
	used, capacity model.Amount // CPU in milli-cores, memory in bytes
}

// LoadOf returns the load that is expected on a node, or why its report does not count.
func LoadOf(n *Node, s *Settings) (Load, Reason) {
	r, why := n.Trusted(s)
	if r == nil {
		return Load{}, why
	}
	used := func(a *Account) int64 { return a.System + max(a.Online, a.PeakHour) }
	return Load{
		used:     n.Assumed.Plus(model.Amount{CPU: used(&r.CPU), Memory: used(&r.Memory)}),
		capacity: model.Amount{CPU: r.CPU.Capacity, Memory: r.Memory.Capacity},
	}, Reason{}
}

// Score scores the load together with a pod of which this use is expected.
func (l *Load) Score(more model.Amount, s *Settings) int64 {
	cpu := free(l.used.CPU+more.CPU, l.capacity.CPU, s.Hot)
	memory := free(l.used.Memory+more.Memory, l.capacity.Memory, s.Hot)
	if min(cpu, memory) == 0 {
		return 0
	}
	return (cpu + memory + min(cpu, memory)) * MaxScore / 3000
}

// free returns the part of a resource that is free, in thousandths; 0 on a hot node.
func free(used, capacity, hot int64) int64 {
	load := permille(used, capacity)
	if load >= hot {
		return 0
	}
	return 1000 - max(load, 0)
}

// Estimate returns the use that is expected of a new pod: a part of its requests, and never less than a minimum.
func Estimate(requests model.Amount, s *Settings) model.Amount {
	return model.Amount{
		CPU:    max(requests.CPU*s.Estimate/1000, s.Least.CPU),
		Memory: max(requests.Memory*s.Estimate/1000, s.Least.Memory),
	}
}

// fade returns what still counts of an estimate after a time: all of it for [Settings].Hold, then less and less. If it
// ended at once instead, a cold node would take all pods of the moment in which the estimates of the last ones end.
func fade(estimate model.Amount, after time.Duration, s *Settings) model.Amount {
	switch {
	case after <= s.Hold:
		return estimate
	case after >= s.Settle:
		return model.Amount{}
	}
	part := permille(int64(s.Settle-after), int64(s.Settle-s.Hold))
	return model.Amount{CPU: estimate.CPU * part / 1000, Memory: estimate.Memory * part / 1000}
}
