package host

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// maxTasks is the most tasks whose delay is read in one measurement. Pods with more tasks in total take turns
// and are read less often than [everyOther]. A single pod with more tasks never has a known delay. By
// BenchmarkMeterDelay, in a shared virtual machine (6.18), reading a process of one task takes 16 to 21 µs, and
// each further task 5 µs.
const maxTasks = 1000

// maxCarried is the most wait time that is carried into later samples, see [delayedTask]. Wait beyond it is
// dropped as too old.
const maxCarried = 5 * time.Second

// delays measures the run-queue delay of tasks, from their schedstat files, see [Schedstat].
type delays struct {
	processes
	budget  int                // tasks that may still be read in this measurement
	first   [everyOther]string // UID of the pod to read first, because the last turn had no budget left for it
	carries bool               // a task of the pod read last carries wait
}

// delayedTask is one task of a process. The kernel adds a wait to the counter only when the wait ends
// (sched_info_arrive, 6.18), which may be seconds later. So a counter can grow by more than the sampling
// interval. Wait beyond the sampling interval is carried into later samples, for at most [maxCarried].
type delayedTask struct {
	waited  time.Duration // in its life
	carried time.Duration // part of waited that is not yet in a sample
	seen    int64
}

// delaySample is a reading of the delay of a pod.
type delaySample struct {
	at      time.Duration // since boot; 0: never, or no task could be read
	group   cgroup.CPUStat
	carries bool // a task carries wait into the next sample
}

// measureDelays looks for how long the tasks of pods have waited since it last did. Nothing is known of those that
// began or ended meanwhile.
func (m *Meter) measureDelays() error {
	wanted := false
	for i := range m.pods {
		wanted = wanted || m.pods[i].detail.Delays
	}
	d := &m.delays
	if !wanted {
		d.forget()
		return nil
	}
	d.budget = maxTasks
	if d.known == nil || m.tick-d.lastFind >= seldom {
		if err := d.find(m.tick); err != nil {
			return fmt.Errorf("listing the processes in %s: %w", d.proc, err)
		}
	}
	first := &d.first[m.tick%everyOther]
	begin := sort.Search(len(m.pods), func(i int) bool { return m.pods[i].uid >= *first })
	*first = ""
	for n := range m.pods {
		i := (begin + n) % len(m.pods)
		if p := &m.pods[i]; p.detail.Delays && m.turn(p, everyOther) && !m.measureDelay(p, &m.load.Pods[i].Delay) {
			*first = p.uid
			break
		}
	}
	return nil
}

// measureDelay measures the delay of a pod, and how often its quota throttled it in the same time. It reports
// whether the pod's turn is over. It is not if the budget was spent on other pods.
func (m *Meter) measureDelay(p *meteredPod, delay *model.Delay) bool {
	now := delaySample{at: m.clock(bootClock), group: p.cpu.CPUStat}
	since := now.at - p.delayed.at
	if p.delayed.at == 0 || p.begin > m.tick-everyOther || since > maxInterval {
		since = 0 // there is no earlier sample to compare with
	}
	if since > 0 && p.cpu.at > p.delayed.at && now.group.Nanos == p.delayed.group.Nanos && !p.delayed.carries {
		// No task ran, so no wait ended and no counter changed.
		*delay = model.Delay{At: now.at, Stopped: now.throttledPermille(&p.delayed)}
		p.delayed = now
		return true
	}
	full := m.delays.budget == maxTasks
	if !full && m.delays.taskCount(p.uid) > m.delays.budget {
		return false
	}
	waited, compared, found := m.delays.waitedSince(p.uid, since, m.tick)
	now.carries = m.delays.carries
	if compared {
		permille := min(int64(math.Round(float64(waited)/float64(since)*1000)), 1000)
		*delay = model.Delay{At: now.at, Permille: permille, Stopped: now.throttledPermille(&p.delayed)}
	}
	if p.delayed = now; !found {
		p.delayed.at = 0
	}
	return full || m.delays.budget >= 0
}

// throttledPermille returns the share of quota periods since an earlier sample in which the quota throttled the
// pod, in thousandths.
func (s *delaySample) throttledPermille(last *delaySample) int64 {
	if s.group.Periods <= last.group.Periods || s.group.Throttled < last.group.Throttled {
		return 0
	}
	return int64(min(1000*(s.group.Throttled-last.group.Throttled)/(s.group.Periods-last.group.Periods), 1000))
}

// taskCount returns the number of tasks of a pod at its last reading.
func (d *delays) taskCount(uid string) (tasks int) {
	for _, p := range d.pods[uid] {
		tasks += len(p.tasks)
	}
	return tasks
}

// waitedSince returns the sum of the delays of a pod's tasks since their last reading. The result compared is
// true if at least one task had an earlier reading, and found is true if at least one task could be read now.
// With since = 0 nothing is compared.
func (d *delays) waitedSince(uid string, since time.Duration, tick int64) (waited time.Duration, compared, found bool) {
	d.carries = false
	for _, p := range d.pods[uid] {
		_ = p.eachTask(func(fd, tid int, _ uint64) {
			if d.budget--; d.budget < 0 {
				return
			}
			now, ok := d.readWaited(fd, tid)
			if !ok {
				return
			}
			t := delayedTask{waited: now, seen: tick}
			if last, known := p.tasks[tid]; known && now >= last.waited && since > 0 {
				t.carried = last.carried + min(now-last.waited, math.MaxInt64/2)
				counted := min(t.carried, since)
				t.carried = min(t.carried-counted, maxCarried)
				waited += counted
				compared = true
			}
			found, d.carries = true, d.carries || t.carried > 0
			p.tasks[tid] = t
		})
		for tid, t := range p.tasks {
			if t.seen != tick {
				delete(p.tasks, tid)
			}
		}
	}
	return waited, compared && d.budget >= 0, found && d.budget >= 0
}

// readWaited returns the delay of a task in its whole life. It returns false if the task has ended, or if this
// kernel counts nothing, as without CONFIG_SCHEDSTATS.
func (d *delays) readWaited(fd, tid int) (waited time.Duration, ok bool) {
	content, err := d.read(fd, strconv.Itoa(tid)+"/schedstat")
	if err != nil {
		return 0, false
	}
	s, err := ParseSchedstat(content)
	return s.Waited, err == nil && s != Schedstat{}
}
