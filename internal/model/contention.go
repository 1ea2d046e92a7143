package model

import "time"

// Batch is what batch does now. It is computed once a round, and every rule takes it from there.
type Batch struct {
	Running bool // there are running batch pods, which a limit can affect
	Quiet   bool // it uses so little CPU that online pods wait for themselves
	AtFloor bool // it was pushed back as far as the present harm may push it, and had time to show that
}

// Lacked is what an online pod lacked since its first sample, for rules that compare it over time.
type Lacked struct {
	UID string
	Lack
}

// Lack is what one pod lacked up to a time.
type Lack struct {
	At   time.Duration // of the last sample, on the clock of [Load]
	Wait time.Duration // sum of the waits beyond what is tolerated
}

// HarmSignal is a way to see that an online pod lacks CPU.
type HarmSignal string

// The signals of harm, the faster first.
const (
	HarmByDelay    HarmSignal = "RunQueueDelay" // its tasks' waits for a CPU, every 100 ms
	HarmByPressure HarmSignal = "Pressure"      // its CPU pressure (PSI, cgroup v2), each second
	HarmByService  HarmSignal = "ServiceFigure" // its own figure, each second or every fifth
)

// Harm is how much CPU online pods and the node's own services lack while batch runs: by how long they wait for a CPU,
// beyond what they wait without batch, and by their own figures.
type Harm struct {
	Known  bool       // every online pod that uses CPU has a recent signal
	Signal HarmSignal // by which it is known; the slowest of all pods
	Milli  int64      // CPU that all harmed pods lack, in milli-cores
	Worst  PodHarm    // of the pod that lacks most
	Deep   bool       // a signal that weights cannot hold off shows harm: batch may get less than arithmetic leaves
	Blind  string     // UID of a pod that uses CPU and has no recent signal; "": there is none
	Held   int64      `json:",omitempty"` // part of Milli that batch was pushed back for already
	// Keeps is the part of what batch uses, in thousandths, that it keeps at most, because harm by a figure does not
	// follow CPU; 0: no figure says so.
	Keeps int64 `json:",omitempty"`
	// Figures of services that are not known, or too high by a fault of their own; each reason names the pod.
	Services []Reason `json:",omitempty"`
	Doubted  bool     `json:",omitempty"` // a figure was not known within the last minute
	// The node's own services that waited for CPUs within the last minute, and because of whom; each reason names one.
	Starved []Reason `json:",omitempty"`
}

// PodHarm is the harm of one online pod, or of a group of the node's own services, since the previous round.
type PodHarm struct {
	UID     string     // "": none is harmed
	Milli   int64      // CPU that it lacks, in milli-cores: the mean number of its tasks that waited beyond Allowed
	Waits   int64      // how long its tasks waited for each time that they ran, in thousandths
	Allowed int64      // what is no harm, likewise
	By      HarmSignal `json:",omitempty"` // HarmByService, or "": by waiting
	// With HarmByService, the figure of the service and the highest that is no harm, in millionths.
	Value, Max int64 `json:",omitempty"`
}

// Reason returns the harm as a reason with its operands.
func (h *PodHarm) Reason() Reason {
	if h.By == HarmByService {
		return Reason{Code: ServiceHarmed, Operands: []Operand{
			{"lacks", h.Milli, UnitMilli}, {"value", h.Value, UnitFigure}, {"max", h.Max, UnitFigure},
		}}
	}
	why := Reason{Code: OnlineHarmed, Operands: []Operand{
		{"lacks", h.Milli, UnitMilli}, {"waits", h.Waits, UnitPermille}, {"allowed", h.Allowed, UnitPermille},
	}}
	if IsSystem(h.UID) {
		why.Code, why.Key, why.Text = SystemHarmed, "service", SystemName(h.UID)
	}
	return why
}

// Suppression is the CPU that batch may use now, and the method that enforces it.
type Suppression struct {
	Milli    int64       // limit of all batch pods together, in milli-cores
	CPUs     int         // number of CPUs for batch; 0: all CPUs of pods
	Cores    bool        `json:",omitempty"` // batch gets the other threads of its last core too
	Parts    []BatchPart // one per batch pod, ordered by UID
	Quotas   bool        // the parts are enforced as CFS quotas
	Reason   Reason      // of the limit
	Reaction Reaction    // the last reduction of the limit
}

// MinBatchPart is the least part of a batch pod, in milli-cores: the kernel accepts no quota below 1 ms, and the period
// is 100 ms.
const MinBatchPart = 10

// BatchPart is the part of the limit for one batch pod.
type BatchPart struct {
	UID    string
	Milli  int64 // in milli-cores
	Memory int64 // part of the memory for batch, in proportion to requests; enforced only by the pod's own limit
}

// OnCPUs returns the number of CPUs for batch; 0: all CPUs of pods.
func (s *Suppression) OnCPUs() int {
	if s == nil {
		return 0
	}
	return s.CPUs
}

// Part returns the part of a pod; false if it has none.
func (s *Suppression) Part(uid string) (BatchPart, bool) {
	if part := FindByUID(s.Parts, uid, func(p *BatchPart) string { return p.UID }); part != nil {
		return *part, true
	}
	return BatchPart{}, false
}

// Quota returns the limit of a pod in milli-cores; false if the limit is not enforced by a quota.
func (s *Suppression) Quota(uid string) (int64, bool) {
	if s == nil || !s.Quotas {
		return 0, false
	}
	part, found := s.Part(uid)
	return part.Milli, found
}

// Reaction is one reduction of the limit for batch: what it should have freed and what it freed, in milli-cores.
type Reaction struct {
	At       time.Duration // on the clock of [Load]; 0: no reduction yet
	From     int64         // limit before
	To       int64         // limit after
	Used     int64         // usage before
	Expected int64         // reduction in usage that the new limit requires
	Seen     bool          // Observed was measured
	Observed int64         // reduction in usage, by the first measurement that began after the change
}

// Reduce records a reduction of the limit, and the usage that it must free. One that follows before the effect of the
// previous one was measured continues that one.
func (r *Reaction) Reduce(at time.Duration, from, to, used int64) {
	if r.At != 0 && !r.Seen {
		from, used = r.From, r.Used
	}
	*r = Reaction{At: at, From: from, To: to, Used: used, Expected: max(used-to, 0)}
}

// Observe records what the reduction freed, by the first measurement of a second that lies completely after it.
func (r *Reaction) Observe(at time.Duration, used int64) {
	const complete = 1200 * time.Millisecond // a second, and a margin
	if r.At != 0 && !r.Seen && at-r.At >= complete {
		r.Seen, r.Observed = true, r.Used-used
	}
}
