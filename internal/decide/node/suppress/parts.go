package suppress

import (
	"slices"
	"sort"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	leastPart = 10  // milli-cores: the kernel takes no quota below 1 ms, and the period is 100 ms
	guess     = 100 // milli-cores that a pod is taken to ask for that does not say
	// A pod that uses this much of its part could use more, in thousandths. One that does not is counted with some room above
	// what it uses, or it could never show that it needs more.
	usedUp = 900
	room   = 1250
	more   = 50 // milli-cores
)

// parts divides what batch may use among its pods.
//
// Of CPU each pod gets a part by what it asked for, and those that do not use theirs leave the rest to the others. Parts stay
// while what there is to divide stays, unless somebody could use what another leaves: a quota that changes each second
// would stop its pod at odd times. Of memory, which cannot be taken back, it is by what was asked for alone.
func (f *follow) parts(memory int64) {
	var needs []need
	var bytes int64
	for _, pod := range f.n.Pods {
		if kept(&f.n.Tree, pod) {
			d := f.need(pod)
			needs = append(needs, d)
			bytes += d.bytes
		}
	}
	divide(f.state.Milli, needs)
	settled := f.settled(needs)
	parts := make([]model.BatchPart, len(needs))
	for i, d := range needs {
		parts[i] = model.BatchPart{UID: d.uid, Milli: d.part}
		if settled {
			parts[i].Milli = d.had
		}
		if bytes > 0 {
			parts[i].Memory = int64(float64(memory) * float64(d.bytes) / float64(bytes))
		}
	}
	f.state.Parts = parts
}

// need is what one pod asks of what is divided, in milli-cores.
type need struct {
	uid    string
	weight int64 // what it asked for
	most   int64 // that it could use; 0: nobody knows
	had    int64 // its part in the round before
	wants  bool  // it uses that up
	part   int64
	full   bool  // it has the most that it could use
	bytes  int64 // of memory that it asked for
}

func (f *follow) need(pod *model.Pod) need {
	d := need{uid: pod.UID, weight: max(pod.Grant.RequestMilli, pod.RequestMilli), most: max(pod.Grant.LimitMilli, pod.LimitMilli)}
	d.bytes = pod.Mid.Memory + pod.Batch.Memory + pod.MemoryRequest
	if d.weight == 0 {
		d.weight = guess
	}
	old := f.state.Parts
	i, has := sort.Find(len(old), func(i int) int { return strings.Compare(pod.UID, old[i].UID) })
	if has {
		d.had = old[i].Milli
	}
	u := f.n.Load.Pod(pod.UID)
	if !has || u == nil || u.CPU.At == 0 {
		return d // it has just begun
	}
	d.wants = u.CPU.Milli*1000 >= d.had*usedUp
	if likely := u.CPU.Milli*room/1000 + more; !d.wants && (d.most == 0 || likely < d.most) {
		d.most = likely
	}
	return d
}

// settled reports whether the parts of the round before can stay: there is as much to divide, among the same pods, and nobody
// who wants more would get some way more.
func (f *follow) settled(needs []need) bool {
	if !slices.EqualFunc(needs, f.state.Parts, func(d need, p model.BatchPart) bool { return d.uid == p.UID }) {
		return false
	}
	var sum int64
	for _, d := range needs {
		sum += d.had
		if d.had < leastPart || d.wants && d.part > d.had*room/1000+more {
			return false
		}
	}
	band := f.a.Capacity * noise / 1000
	return sum <= max(f.state.Milli, int64(len(needs))*leastPart) && sum >= f.state.Milli-band
}

// divide gives each its part of an amount, by weight, and nobody more than it can use while others can use it. What nobody
// can use is given out by weight too: whoever wants it in the next second has it.
func divide(milli int64, needs []need) {
	left := milli
	for again := true; again; {
		again = false
		weights, given := open(needs), left
		for i := range needs {
			d := &needs[i]
			if d.full {
				continue
			}
			d.part = given * d.weight / weights
			if d.most > 0 && d.part >= d.most {
				d.part, d.full, again = d.most, true, true
				left -= d.most
			}
		}
		if open(needs) == 0 {
			all := int64(0)
			for i := range needs {
				all += needs[i].weight
			}
			for i := range needs {
				needs[i].part += left * needs[i].weight / all
			}
			break
		}
	}
	for i := range needs {
		needs[i].part = max(needs[i].part, leastPart)
	}
}

// open returns what those weigh together that can use more.
func open(needs []need) int64 {
	var weights int64
	for i := range needs {
		if !needs[i].full {
			weights += needs[i].weight
		}
	}
	return weights
}
