package model

import (
	"sort"
	"time"
)

// PodWait is how long tasks of a pod have run, and how long they were ready to run and had no CPU (run-queue delay).
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

// FreeWait is the wait that is no harm each time that a task gets a CPU: a request that is answered 0.1 ms later.
const FreeWait = 100 * time.Microsecond

// FindWait returns what was sampled of a pod; nil if it is not sampled. The waits are ordered by UID.
func FindWait(waits []PodWait, uid string) *PodWait {
	i := sort.Search(len(waits), func(i int) bool { return waits[i].UID >= uid })
	if i == len(waits) || waits[i].UID != uid {
		return nil
	}
	return &waits[i]
}

// WaitMark is how long an online pod may wait until the next round.
type WaitMark struct {
	UID     string        // as in the pod's cgroup
	Ran     time.Duration // sums of the pod at the last round
	Waited  time.Duration
	Times   int64
	Allowed int64         // wait for each time of running, in thousandths, besides [FreeWait]
	Most    time.Duration // wait beyond that for which a round runs at once; 0: none does
}

// Excess returns how long the pod waited beyond what it may since the last round.
func (m *WaitMark) Excess(w *PodWait) time.Duration {
	return w.Waited - m.Waited - (w.Ran-m.Ran)*time.Duration(m.Allowed)/1000 - time.Duration(w.Times-m.Times)*FreeWait
}

// Exceeded reports whether a pod waited so long that a round must run at once.
func (m *WaitMark) Exceeded(w *PodWait) bool { return m.Most > 0 && m.Excess(w) > m.Most }
