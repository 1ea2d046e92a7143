package contention

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	// Wait that is no harm each time that a task of a service gets a CPU. Services compete with all pods together, whose
	// turn lasts some milliseconds.
	systemTurn = time.Millisecond
	starvedTTL = time.Minute // for which it is told that a service waited
)

// Starved is how long one of the node's own services waited, whoever made it wait.
type Starved struct {
	Debt  time.Duration // as that of a pod, but beyond what harms no pod without a baseline
	At    time.Duration // when it waited for too long last, 0: never
	Milli int64         // CPU that it lacked then
	By    string        // who used the CPU then: UID of a pod, or one of byBatch and byOthers
}

const (
	byBatch  = ""
	byOthers = "/" // processes outside of pods
)

// system judges the node's own services as it judges pods, and then tells because of whom they wait.
func (r *round) system() {
	for _, uid := range model.SystemGroups() {
		p := r.pod(&model.Pod{UID: uid}, knownPod(r.last, uid))
		if p.Starved.At == r.now {
			p.Starved.By = r.culprit(&p)
		}
		if p.Starved.At != 0 && r.now-p.Starved.At <= starvedTTL {
			r.Harm.Starved = append(r.Harm.Starved, r.starvedReason(&p))
		}
		r.keep(p)
	}
}

// starves records what a service waited, whoever made it wait.
func (r *round) starves(p *Pod, span model.WaitSpan) {
	s, lacks := &p.Starved, int64(0)
	s.Debt, lacks = span.Owe(s.Debt, r.mostDebt(p), model.Tolerated{Permille: toleratedPart, Turn: systemTurn})
	if lacks > 0 {
		s.At, s.Milli = r.now, lacks
	}
}

// culprit returns because of whom a service waits: batch, as long as it waits longer than without batch, and was not
// seen to wait on when batch made room.
func (r *round) culprit(p *Pod) string {
	if room := r.p.Mode == model.ModeEnforce && r.Batch.AtFloor; p.Harm.Milli > 0 && !room {
		return byBatch
	}
	use := &r.cpu.Use
	if use.System-use.Stolen > use.Online+use.Daemons {
		return byOthers
	}
	by, most := byOthers, int64(0)
	for _, pod := range r.n.Pods {
		if pod.Class == model.ClassBE || pod.Ended {
			continue
		}
		if milli := r.n.Load.Uses(pod.UID); milli > most {
			by, most = pod.UID, milli
		}
	}
	return by
}

// starvedReason says that a service waits, and because of whom.
func (r *round) starvedReason(p *Pod) model.Reason {
	why := model.Reason{
		Code: model.SystemStarved, Key: "service", Text: model.SystemName(p.UID),
		Operands: []model.Operand{{Name: "lacks", Value: p.Starved.Milli, Unit: model.UnitMilli}},
	}
	switch by := p.Starved.By; by {
	case byBatch:
		why.Code, why.Fix = model.SystemHarmed, "because of batch, which makes room"
		if r.p.Mode != model.ModeEnforce {
			why.Fix = "because of batch, which makes room in mode Enforce"
		}
	case byOthers:
		why.Fix = "because of processes outside of pods, and nothing of Waterline's helps; look at what runs there"
	default:
		why.Fix = "because of online pods, of which " + model.PodName(r.n.Pods, by) + " uses most CPU, and nothing of " +
			"Waterline's helps; limit that pod, or give the service more CPU weight"
	}
	return why
}
