package memory

import (
	"path"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	// The protection of ancestors follows usage in steps of this fraction of the node's memory, and may stay this
	// many steps too high. So it is not written each second.
	stepsOfNode = 256
	slackSteps  = 2
	leastStep   = 16 << 20
	// An older measurement of a pod does not count. The pod then counts with its full request.
	stale = time.Minute
)

// Unsupported returns why the node cannot protect memory although the policy requests it; the zero value if it can,
// or if the policy does not request it.
//
// The kubelet's MemoryQoS writes the same files of pods and QoS classes, some of them each minute, for the same
// purpose. So only one of the two may be on.
func Unsupported(n *model.Node, p *model.Policy) model.Reason {
	why := model.Reason{Code: model.NoMemoryProtection}
	switch {
	case !p.Protect.Memory || p.Mode == model.ModeDisabled:
		return model.Reason{}
	case !n.Tree.V2:
		why.Fix = "unsupported on cgroup v1: needs cgroup v2"
	case n.Tree.NoProtection != "":
		why.Fix = n.Tree.NoProtection
	case n.Kubelet.MemoryQoS:
		why.Fix = "the kubelet's MemoryQoS does it here: switch off either that or protect.memory"
	case n.Tree.MemoryQoS:
		why.Fix = "a container has a memory.high or memory.min, as the kubelet's MemoryQoS sets them: " +
			"switch off either that or protect.memory"
	default:
		return model.Reason{}
	}
	return why
}

// Protects reports whether the policy protects memory of the pod.
func Protects(pod *model.Pod, p *model.Policy) bool {
	return p.Protect.Memory && pod.Class.Online() && pod.MemoryRequest > 0 && !pod.Ended
}

// promise is the protected memory of all pods below a group, in bytes.
type promise struct {
	all  int64
	used int64 // the part in use
}

// protect appends settings that protect the memory requests of online pods: with memory.min for the latency-critical
// classes, with memory.low for the others. The kernel limits the protection of a group to that of its ancestors, so the
// ancestors are protected too.
//
// Ancestors are protected only as far as the protection below is in use. With memory_recursiveprot, the kernel
// distributes unclaimed protection of a group among its children by their usage. Below kubepods, batch would benefit
// first, and the node's daemons, which are beside kubepods, would be reclaimed instead.
func protect(settings []model.Setting, n *model.Node, p *model.Policy) []model.Setting {
	if !p.Protect.Memory || Unsupported(n, p).Code != "" {
		return settings
	}
	above := map[model.File]promise{}
	for _, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || !Protects(pod, p) {
			continue
		}
		s := model.Setting{
			File:  model.File{Dir: group.Dir, Knob: model.MemoryLow},
			Value: model.Number(pod.MemoryRequest),
			Reason: model.Reason{Code: model.MemoryProtected, Operands: []model.Operand{
				{Name: "request", Value: pod.MemoryRequest, Unit: model.UnitBytes},
			}},
		}
		if pod.Class == model.ClassLSE || pod.Class == model.ClassLSR {
			s.File = model.File{Dir: group.Dir, Knob: model.MemoryMin}
		}
		settings = append(settings, s)
		used, known := usedBy(n.Load, pod.UID, stale)
		if !known {
			used = pod.MemoryRequest
		}
		used = min(used, pod.MemoryRequest)
		file := s.File
		for file.Dir = path.Dir(group.Dir); file.Dir != "."; file.Dir = path.Dir(file.Dir) {
			sum := above[file]
			above[file] = promise{all: sum.all + pod.MemoryRequest, used: sum.used + used}
		}
	}
	for file, sum := range above {
		settings = append(settings, protectAncestor(n, file, sum))
	}
	return settings
}

// usedBy returns the memory usage of a pod including page cache, as the kernel compares it with protection and
// limits; false if it was not measured within the time oldest.
func usedBy(l *model.Load, uid string, oldest time.Duration) (int64, bool) {
	if l == nil {
		return 0, false
	}
	u := l.Pod(uid)
	if u == nil || u.Memory.At == 0 || l.Age(u.Memory.At) > oldest {
		return 0, false
	}
	return u.Memory.WorkingSet + u.Memory.InactiveFile, true
}

// protectAncestor returns the protection of an ancestor: the part of its pods' protection that is in use, in steps.
// It is never less than the value from another writer, who may have meant it for other groups below.
func protectAncestor(n *model.Node, file model.File, sum promise) model.Setting {
	step := max(n.Capacity.Memory/stepsOfNode, leastStep)
	value := (sum.used + step - 1) / step * step
	operands := []model.Operand{
		{Name: "promised", Value: sum.all, Unit: model.UnitBytes},
		{Name: "used", Value: sum.used, Unit: model.UnitBytes},
	}
	owned := n.Wrote(file)
	if owned != nil {
		if ours := owned.Ours.Number; value < ours && ours <= value+slackSteps*step {
			value = ours
		}
	}
	value = min(value, sum.all)
	if owned != nil {
		if theirs := owned.Theirs.Number; theirs > value || theirs == model.Unlimited {
			value = theirs
			operands = append(operands, model.Operand{Name: "others", Value: value, Unit: model.UnitBytes})
		}
	}
	return model.Setting{
		File: file, Value: model.Number(value), Reason: model.Reason{Code: model.AncestorProtected, Operands: operands},
	}
}
