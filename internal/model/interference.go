package model

import "time"

// Waited returns for how much of the time between two measurements a pod waited for a CPU without its own quota being the
// reason, in thousandths, and when that was measured; a time of 0 if the node cannot tell.
//
// The first of three that is known counts: the pod's pressure (cgroup v2); for how much of the time its tasks stood in run queues
// (where the agent sees the processes of the host); and in how many periods it was stopped by its quota beyond what it used of its
// limit in milli-cores, because a pod that others keep from running runs into its quota when it catches up. Tasks that a quota stops
// wait in the first two as well: what it was stopped for is taken from them, whole periods of it, so that doubt favours the neighbours.
func Waited(u *Usage, limit int64) (int64, time.Duration) {
	stopped := int64(0)
	if u.CPU.Periods > 0 {
		stopped = 1000 * u.CPU.Throttled / u.CPU.Periods
	}
	wait, at := stopped, u.CPU.At
	switch {
	case u.Pressure.At != 0:
		wait, at = u.Pressure.CPU.Some-stopped, u.Pressure.At
	case u.Delay.At != 0:
		wait, at = u.Delay.Permille-u.Delay.Stopped, u.Delay.At
	case limit > 0 && u.CPU.Periods > 0:
		wait -= 1000 * u.CPU.Milli / limit
	default:
		return 0, 0
	}
	return min(max(wait, 0), 1000), at
}

// Interference is what is known of who waits for whom, and what is done about it.
type Interference struct {
	Finding   Finding
	Waits     bool          // who is named is batch, and is not throttled now: another trial runs, or ran a moment ago, or has not helped
	Named     Finding       // who was named last, with the numbers of then; its Suspect is "" if that was nobody, or ten minutes ago
	NamedAt   time.Duration // when that was, on the clock of [Load]; another time means that somebody was named anew
	Throttles []Throttle    // ordered by UID
	Undone    Throttle      // what was given back in this second, because it did not help; its UID is "" if nothing was
}

// Empty reports whether there is nothing to say.
func (b *Interference) Empty() bool {
	return b == nil || b.Finding.Victim == "" && b.Named.Suspect == "" && len(b.Throttles) == 0 && b.Undone.UID == ""
}

// Throttle returns what a pod is kept to; nil if it is not throttled.
func (b *Interference) Throttle(uid string) *Throttle {
	if b == nil {
		return nil
	}
	for i := range b.Throttles {
		if b.Throttles[i].UID == uid {
			return &b.Throttles[i]
		}
	}
	return nil
}

// Finding is what was made of the pod whose waiting rose most. What is in thousandths of the time is of the last 15 s, beside
// the quarter of the minutes before in which it waited least.
type Finding struct {
	Victim  string // its UID; "": none waits for longer than it did
	Suspect string // UID of who is likely to be the reason; "": nobody stands out
	Code    Code   // SuspectNamed, SuspectOnline, VictimItself or SuspectUnknown; "": there is no victim
	Score   int64  // how well the suspect's use goes with the waiting, in thousandths
	Needed  int64  // the score from which on somebody is named
	Wait    int64  // thousandths of the time that the victim waits
	Rise    int64  // by how much that is more
	Explain int64  // how much of the rise the suspect's use explains, in thousandths of the time
	Used    int64  // what the suspect uses, in milli-cores
	Seconds int64  // of which all this was found
}

// Reason returns the finding with the numbers that it was found from.
func (f *Finding) Reason() Reason {
	if f.Victim == "" {
		return Reason{}
	}
	operands := []Operand{{"wait", f.Wait, UnitPermille}, {"rise", f.Rise, UnitPermille}}
	if f.Suspect != "" || f.Code == VictimItself {
		operands = append(operands, Operand{"explains", f.Explain, UnitPermille}, Operand{"used", f.Used, UnitMilli})
	}
	operands = append(operands, Operand{"score", f.Score, UnitPermille}, Operand{"needed", f.Needed, UnitPermille}, Operand{"seconds", f.Seconds, UnitSeconds})
	return Reason{Code: f.Code, Operands: operands}
}

// Throttle keeps one batch pod to less than suppression would let it use.
type Throttle struct {
	UID    string
	Victim string // for whom; its UID
	Milli  int64  // that it may use, in milli-cores
	Times  int64  // of what it used before it was throttled, in thousandths
	Code   Code   // ThrottleTried, ThrottleKept or ThrottleEased
	Expect int64  // by how much the victim should wait less, in thousandths of the time
	Relief int64  // by how much it did; 0 while tried
}

// Reason returns why the pod is throttled.
func (t *Throttle) Reason() Reason {
	operands := []Operand{{"most", t.Milli, UnitMilli}, {"times", t.Times, UnitTimes}, {"expected", t.Expect, UnitPermille}}
	if t.Code != ThrottleTried {
		operands = append(operands, Operand{"relief", t.Relief, UnitPermille})
	}
	return Reason{Code: t.Code, Operands: operands}
}
