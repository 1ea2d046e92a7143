package memory

import (
	"path"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	// What the groups above carry follows what is used in steps of this part of the node's memory, and stays while it is at most
	// so many steps too much: it shall not be written each second.
	stepsOfNode = 256
	slackSteps  = 2
	leastStep   = 16 << 20
	// What a pod used this long ago is no longer what it uses. Then it counts with all that it was promised.
	stale = time.Minute
)

// Unsupported returns why nobody's memory is protected here although the policy asks for that; the zero value: it is, or the policy
// does not ask.
//
// The kubelet's MemoryQoS writes the same files of pods and classes, some of them each minute, and means the same by it. It is
// either that or this.
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
		why.Fix = "a container has a memory.high or memory.min, as the kubelet's MemoryQoS sets them: switch off either that or protect.memory"
	default:
		return model.Reason{}
	}
	return why
}

// Protects reports whether memory of a pod may be protected under a policy.
func Protects(pod *model.Pod, p *model.Policy) bool {
	return p.Protect.Memory && pod.Class.Online() && pod.MemoryRequest > 0 && !pod.Ended
}

// promise is what the pods below a group were promised together, in bytes.
type promise struct {
	all  int64
	used int64 // of that, what they use
}

// protect promises online pods the memory that they request: those of the latency-critical classes at all costs, the others as long
// as there is other memory to take. The kernel lets a group have no more than those above it have, so these carry what is
// promised below them.
//
// They carry it only as far as it is used. What of a group's protection its children do not claim the kernel gives to all of
// them by what else they use (memory_recursiveprot): below kubepods that would be batch first, and the node's daemons, which
// stand beside kubepods, would be reclaimed in its place.
func protect(n *model.Node, p *model.Policy) []model.Setting {
	if !p.Protect.Memory || Unsupported(n, p).Code != "" {
		return nil
	}
	var settings []model.Setting
	above := map[model.File]promise{}
	for _, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || !Protects(pod, p) {
			continue
		}
		s := model.Setting{
			File:   model.File{Dir: group.Dir, Knob: model.MemoryLow},
			Value:  model.Number(pod.MemoryRequest),
			Reason: model.Reason{Code: model.MemoryProtected, Operands: []model.Operand{{Name: "request", Value: pod.MemoryRequest, Unit: model.UnitBytes}}},
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
		settings = append(settings, carry(n, file, sum))
	}
	return settings
}

// usedBy returns how much memory a pod uses, page cache included, as the kernel counts it against its protection and its bound;
// false if that was not measured, or longer ago than it may be.
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

// carry sets what a group above pods is protected with: what its pods use of what they were promised, in steps, and never less
// than somebody else has set there, who may have promised it to others below.
func carry(n *model.Node, file model.File, sum promise) model.Setting {
	step := max(n.Capacity.Memory/stepsOfNode, leastStep)
	value := (sum.used + step - 1) / step * step
	operands := []model.Operand{{Name: "promised", Value: sum.all, Unit: model.UnitBytes}, {Name: "used", Value: sum.used, Unit: model.UnitBytes}}
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
	return model.Setting{File: file, Value: model.Number(value), Reason: model.Reason{Code: model.MemoryCarried, Operands: operands}}
}
