package model

import "time"

// Interference is the current finding about CPU interference between pods, and the throttles that follow from it.
type Interference struct {
	Finding Finding
	// The suspect is batch and not throttled: another trial runs or ran a moment ago, or a trial of it did not
	// help.
	Waits bool
	// The last finding with a suspect, with the numbers of that time; Suspect is "" if there is none within ten
	// minutes.
	Named     Finding
	NamedAt   time.Duration // time of Named, on the clock of [Load]; a new time means a new report
	Throttles []Throttle    // ordered by UID
	Undone    Throttle      // throttle removed in this second because it did not help; UID is "" if there is none
}

// Empty reports whether there is nothing to report.
func (b *Interference) Empty() bool {
	return b == nil || b.Finding.Victim == "" && b.Named.Suspect == "" && len(b.Throttles) == 0 && b.Undone.UID == ""
}

// Throttle returns the throttle of a pod; nil if the pod is not throttled.
func (b *Interference) Throttle(uid string) *Throttle {
	if b == nil {
		return nil
	}
	return FindByUID(b.Throttles, uid, func(t *Throttle) string { return t.UID })
}

// Finding is the analysis of the pod whose waiting rose most. Values in thousandths of time cover the last 15 s. The
// baseline is the quarter of the preceding minutes with the least waiting.
type Finding struct {
	Victim  string // UID of the pod; "": no pod waits longer than before
	Suspect string // UID of the likely cause; "": no pod stands out
	Code    Code   // SuspectNamed, SuspectOnline or SuspectUnknown; "": there is no victim
	Score   int64  // correlation of the suspect's usage with the waiting, in thousandths
	Needed  int64  // lowest score for which a suspect is named
	Wait    int64  // fraction of time that the victim waits, in thousandths
	Rise    int64  // increase of Wait over the baseline
	Explain int64  // part of the rise that the suspect's usage explains, in thousandths of time
	Used    int64  // CPU usage of the suspect, in milli-cores
	Seconds int64  // length of the data, in seconds
}

// Reason returns the finding as a reason with its operands.
func (f *Finding) Reason() Reason {
	if f.Victim == "" {
		return Reason{}
	}
	operands := []Operand{{"wait", f.Wait, UnitPermille}, {"rise", f.Rise, UnitPermille}}
	if f.Suspect != "" {
		operands = append(operands, Operand{"explains", f.Explain, UnitPermille}, Operand{"used", f.Used, UnitMilli})
	}
	operands = append(operands, Operand{"score", f.Score, UnitPermille}, Operand{"needed", f.Needed, UnitPermille},
		Operand{"seconds", f.Seconds, UnitSeconds})
	return Reason{Code: f.Code, Operands: operands}
}

// Throttle limits one batch pod to less than its part of the suppression limit.
type Throttle struct {
	UID    string
	Victim string // UID of the pod that it protects
	Milli  int64  // CPU limit, in milli-cores
	Times  int64  // ratio of the limit to the usage before the throttle, in thousandths
	Code   Code   // ThrottleTried, ThrottleKept or ThrottleEased
	Expect int64  // expected reduction of the victim's waiting, in thousandths of time
	Relief int64  // measured reduction; 0 during the trial
}

// Reason returns why the pod is throttled, with the operands.
func (t *Throttle) Reason() Reason {
	operands := []Operand{
		{"most", t.Milli, UnitMilli}, {"times", t.Times, UnitTimes}, {"expected", t.Expect, UnitPermille},
	}
	if t.Code != ThrottleTried {
		operands = append(operands, Operand{"relief", t.Relief, UnitPermille})
	}
	return Reason{Code: t.Code, Operands: operands}
}
