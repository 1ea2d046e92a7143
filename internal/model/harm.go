package model

// HarmSignal is a way to see that an online pod lacks CPU.
type HarmSignal string

// The signals of harm, the faster first.
const (
	HarmByDelay    HarmSignal = "RunQueueDelay" // its tasks' waits for a CPU, every 100 ms
	HarmByPressure HarmSignal = "Pressure"      // its CPU pressure (PSI, cgroup v2), each second
	// Its cycles per instruction, each second: not instead of the others, but what they cannot show.
	HarmByCycles  HarmSignal = "CyclesPerInstruction"
	HarmByService HarmSignal = "ServiceFigure" // its own figure, each second or every fifth
)

// Harm is how much CPU online pods lack while batch runs: by how long they wait for a CPU, beyond what they wait
// without batch, and by their own figures.
type Harm struct {
	Known  bool       // every online pod that uses CPU has a recent signal
	Signal HarmSignal // by which it is known; the slowest of all pods
	Milli  int64      // CPU that all harmed pods lack, in milli-cores
	Worst  PodHarm    // of the pod that lacks most
	Deep   bool       // a signal that weights cannot hold off shows harm: batch may get less than arithmetic leaves
	Blind  string     // UID of a pod that uses CPU and has no recent signal; "": there is none
	Held   int64      `json:",omitempty"` // part of Milli that batch was pushed back for already: it gets no more meanwhile
	// Keeps is the part of what batch uses, in thousandths, that it keeps at most, because harm by a figure does not
	// follow CPU; 0: no figure says so.
	Keeps int64 `json:",omitempty"`
	// Figures of services that are not known, and why; each reason names the pod.
	Unknown []Reason `json:",omitempty"`
	Doubted bool     `json:",omitempty"` // a figure was not known within the last minute
}

// PodHarm is the harm of one online pod since the previous round.
type PodHarm struct {
	UID   string // "": no pod is harmed
	Milli int64  // CPU that it lacks, in milli-cores: the mean number of its tasks that waited beyond Allowed
	// How long its tasks waited for each time that they ran, in thousandths. With HarmByCycles, its cycles for 1000
	// instructions.
	Waits   int64
	Allowed int64      // what is no harm, likewise
	By      HarmSignal `json:",omitempty"` // HarmByCycles, HarmByService, or "": by waiting
	// With HarmByService, the figure of the service and the highest that is no harm, in millionths.
	Value, Max int64 `json:",omitempty"`
}

// Reason returns the harm as a reason with its operands.
func (h *PodHarm) Reason() Reason {
	measure := "waits"
	switch h.By {
	case HarmByService:
		return Reason{Code: ServiceHarmed, Operands: []Operand{
			{"lacks", h.Milli, UnitMilli}, {"value", h.Value, UnitFigure}, {"max", h.Max, UnitFigure},
		}}
	case HarmByCycles:
		measure = "cycles"
	}
	return Reason{Code: OnlineHarmed, Operands: []Operand{
		{"lacks", h.Milli, UnitMilli}, {measure, h.Waits, UnitPermille}, {"allowed", h.Allowed, UnitPermille},
	}}
}
