package model

import "time"

// PodWait is how long tasks of a pod, or of a group of the node's own services, have run, and how long they were ready
// to run and had no CPU (run-queue delay).
// Both are sums over the sampled tasks since the agent began to sample the pod, so a difference of two samples is what
// happened between them. Differences of a pod's Ran and Waited belong to the same tasks, but not all of its tasks are
// sampled: Waited for each second of Ran is meaningful, their amounts are a lower bound.
//
// The kernel accounts a wait when it ends.
type PodWait struct {
	UID    string        // as in the pod's cgroup
	At     time.Duration // time of the last sample, on the clock of [Load]; 0: no task was sampled yet
	Ran    time.Duration
	Waited time.Duration
	Times  int64 // how often the tasks got a CPU
}

// What is no harm, whatever a pod waits otherwise.
const (
	// FreeWait is no harm each time that a task gets a CPU: a request that is answered 0.1 ms later.
	FreeWait = 100 * time.Microsecond
	// A pod whose tasks run and wait for less than a tenth of the time together is not harmed. Beside a server of 0.9
	// CPUs, a controller that ran for 2 ms a second waited 10 to 60 ms, with batch and without (kernel 6.18).
	freePart = 10
	// Waits of a shorter time count as if they were all of this time: a single wait is no lack of CPU.
	leastSpan = 250 * time.Millisecond
	noise     = 5 // milli-cores that are noise
)

// The debt from which a pod is harmed: what it waited beyond what is tolerated, less what it waited less, added up
// (CUSUM, Page 1954). So a single wait is no harm, strong harm is found soon, and a little harm when it lasts.
const (
	busyDebt  = 25 * time.Millisecond // of a busy pod
	littleUse = 100                   // milli-cores: a pod that uses less may owe more, up to four times as much
	mostDebts = 2                     // a debt is at most so many times that, so that harm is forgotten soon
)

// WaitSpan is what the tasks of a pod did between two samples.
type WaitSpan struct {
	Length, Ran, Waited time.Duration
	Times               int64 // how often they got a CPU
}

// maxWait bounds times of a span, so that no computation overflows.
const maxWait = 15 * time.Second * MaxCPUs

// Since returns what happened between an older sample and this one. It returns false if they cannot be compared: the
// sums went backwards, or grew by more than a machine can run.
func (w *PodWait) Since(before *PodWait) (WaitSpan, bool) {
	s := WaitSpan{w.At - before.At, w.Ran - before.Ran, w.Waited - before.Waited, max(w.Times-before.Times, 0)}
	return s, s.Length > 0 && 0 <= s.Ran && s.Ran <= maxWait && 0 <= s.Waited && s.Waited <= maxWait
}

// Tolerated is the wait of a pod that is no harm.
type Tolerated struct {
	Permille int64 // for each time of running, in thousandths
	Milli    int64 `json:",omitempty"` // beyond that, in milli-cores: what it waits although batch gave way
	// Each time that a task gets a CPU, instead of FreeWait if it is longer.
	Turn time.Duration `json:",omitempty"`
}

// Excess returns how long tasks waited beyond what is tolerated; below 0: they waited less. It is the one measure of
// harm by waiting: of rounds, of the looks between them, and of interference.
func (s WaitSpan) Excess(t Tolerated) time.Duration {
	waited := max(s.Waited-time.Duration(min(s.Times, int64(maxWait/FreeWait)))*max(t.Turn, FreeWait), 0)
	return waited - max(s.Ran*time.Duration(t.Permille)/1000, s.Length/freePart-s.Ran) -
		s.Length*time.Duration(t.Milli)/1000
}

// Lacks returns an excess of the span as the CPU that the pod lacks, in milli-cores: the mean number of tasks that
// waited for too long.
func (s WaitSpan) Lacks(excess time.Duration) int64 {
	return int64(excess * 1000 / max(s.Length, leastSpan))
}

// Owe adds what a pod waited in the span beyond what is tolerated to its debt. most is the debt from which the pod is
// harmed, see [MostDebt]. It returns the new debt and the CPU that the pod lacks, in milli-cores; 0: it does not owe
// enough, or lacks no more than noise.
func (s WaitSpan) Owe(debt, most time.Duration, t Tolerated) (owed time.Duration, lacks int64) {
	excess := s.Excess(t)
	owed = min(max(debt+excess, 0), mostDebts*most)
	if lacks = s.Lacks(excess); lacks <= noise || owed <= most {
		lacks = 0
	}
	return owed, lacks
}

// MostDebt returns the debt from which a pod is harmed that uses so much CPU, in milli-cores. A pod that uses little
// waits for the busy thread of another online pod on its CPU now and then, with or without batch; what it lacks when it
// is starved is far more.
func MostDebt(milli int64) time.Duration {
	return busyDebt + 3*busyDebt*time.Duration(max(littleUse-max(milli, 0), 0))/littleUse
}

// Pressed returns the sums after another measurement of a pod whose tasks are not seen: it ran for as long as it used
// CPU, and waited for as long as it was under pressure.
func (w PodWait) Pressed(u *PodUsage) PodWait {
	if w.At == 0 {
		return PodWait{UID: w.UID, At: u.Pressure.At}
	}
	since := u.Pressure.At - w.At
	w.At = u.Pressure.At
	w.Ran += since * time.Duration(min(max(u.CPU.Milli, 0), MaxCPUs*1000)) / 1000
	w.Waited += since * time.Duration(min(max(u.Pressure.CPU.Some, 0), 1000)) / 1000
	return w
}

// SampledPods counts the pods whose waits are sampled, by how many of their tasks are.
type SampledPods struct {
	All  int // all tasks, as far as they live long enough
	Some int // not all: the bounds of a pod or of the node are reached, or tasks begin and end all the time
	None int // no task was found, or none can be read now
}

// FindWait returns what was sampled of a pod; nil if it is not sampled. The waits are ordered by UID.
func FindWait(waits []PodWait, uid string) *PodWait {
	return FindByUID(waits, uid, func(w *PodWait) string { return w.UID })
}

// WaitMark is how long an online pod may wait until the next round.
type WaitMark struct {
	PodWait                 // the sample of the last round
	Tolerated               // what is no harm
	Most      time.Duration // wait beyond that for which a round runs at once; 0: none does
}

// Exceeded reports whether a pod waited so long that a round must run at once.
func (m *WaitMark) Exceeded(w *PodWait) bool {
	if m.Most <= 0 {
		return false
	}
	s, ok := w.Since(&m.PodWait)
	return ok && s.Excess(m.Tolerated) > m.Most
}
