package pool

import (
	"cmp"
	"slices"
	"time"
)

// Times of a pool that follows demand.
const (
	demandAge = time.Minute     // a demand that was read longer ago is not known
	chance    = 3 * time.Minute // for a new worker to get a container, before it counts as unable to take one
)

// Demand is what applications wait for.
type Demand struct {
	Follow  bool      // workers run only while something waits, or runs on them
	Pending Size      // what applications asked for of the pool's label, and have not got
	Read    time.Time // when the ResourceManager said so; zero: it never did
	Failing time.Time // since when it does not say it; zero: it does
}

// Known reports whether the demand is known.
func (d *Demand) Known(now time.Time) bool { return !d.Read.IsZero() && now.Sub(d.Read) < demandAge }

// Blind reports whether the demand has been unknown for so long that workers run as if applications waited.
func (d *Demand) Blind(now time.Time) bool {
	return !d.Known(now) && !d.Failing.IsZero() && now.Sub(d.Failing) >= demandAge
}

// Following is the state between rounds of a pool that follows demand. The zero value has no history.
type Following struct {
	idle   map[string]idle // by worker
	called map[string]bool // workers without a pod that the last known demand needs
	read   time.Time       // when that demand was read
}

// idle is the time since which a worker runs no container while no application waits, and when that was last observed.
type idle struct{ since, seen time.Time }

// FollowDemand marks workers that the demand does not need as not wanted. before is its result of the previous round.
//
// A worker without a pod comes when something waits: as many at a time as can take that by their floors. Those that
// came and still run nothing after a while could not take it, and do not count any more: their slack may be too small
// for the containers. A worker with a pod leaves when nothing waited and it ran nothing for the settings' window. So
// none with containers leaves, and none while the demand is not known, or while the spec cannot be used: its pod would
// not come back. A drain that has begun ends when something waits or lands again.
func FollowDemand(in *Input, before Following) Following {
	d := &in.Demand
	if !d.Follow {
		return Following{}
	}
	known := in.RM.Known && d.Known(in.Now)
	empty := known && d.Pending == (Size{})
	after := Following{idle: before.see(in, known, empty), called: before.called, read: before.read}
	calls := d.workers(in.Settings.Floor)
	var absent []*Worker
	for i := range in.Workers {
		w := &in.Workers[i]
		switch {
		case !w.Wanted:
		case w.Pod == nil && d.Blind(in.Now):
		case w.Pod == nil:
			absent = append(absent, w)
		case empty && !in.Settings.Invalid && after.lasts(in, w.Name):
			w.Wanted, w.Needless = false, true
		case !w.Leaves() && w.empty() && in.Now.Sub(w.Pod.Created) < chance:
			calls--
		}
	}
	slices.SortStableFunc(absent, func(a, b *Worker) int { // the largest first
		x, y := a.Allowance, b.Allowance
		return cmp.Or(cmp.Compare(y.MemoryMiB, x.MemoryMiB), cmp.Compare(y.VCores, x.VCores))
	})
	if known && !d.Read.Equal(before.read) { // between readings, what has landed since still counts as waiting
		after.called, after.read = map[string]bool{}, d.Read
		for _, w := range absent {
			if calls > 0 && w.can(in) {
				after.called[w.Name] = true
				calls--
			}
		}
	}
	for _, w := range absent {
		if !after.called[w.Name] && (empty || w.can(in)) {
			w.Wanted, w.Needless = false, true
		}
	}
	return after
}

// can reports whether a worker without a pod could have one now. What keeps another one from it is its reason.
func (w *Worker) can(in *Input) bool {
	return w.Room && !w.Cordoned && !w.Unsold && !w.Barred && !w.quarantined(in) && !w.cools(in)
}

// workers returns how many workers of a size can take what waits.
func (d *Demand) workers(size Size) int {
	need := func(pending, each int64) int64 {
		each = max(each, 1)
		return pending/each + min(pending%each, 1)
	}
	const most = 1 << 20
	return int(min(max(need(d.Pending.MemoryMiB, size.MemoryMiB), need(d.Pending.VCores, size.VCores), 0), most))
}

// empty reports whether a worker with a pod runs nothing for sure. A NodeManager that the ResourceManager lost may go
// on with its containers.
func (w *Worker) empty() bool {
	m, _ := w.Manager()
	if m == nil {
		return !w.Pod.Marks.Registered
	}
	return m.Containers+m.Opportunistic == 0 && m.Used == (Size{})
}

// see returns what is known about idle workers after a round. What was not seen for a while begins anew.
func (f Following) see(in *Input, known, empty bool) map[string]idle {
	after := map[string]idle{}
	if known && !empty {
		return after
	}
	for name, was := range f.idle { // also of workers that were left out of the round
		if in.Now.Sub(was.seen) < demandAge {
			after[name] = was
		}
	}
	if !known {
		return after
	}
	for n := range in.Workers {
		w := &in.Workers[n]
		was, is := after[w.Name]
		gone := false // it was idle, and its NodeManager has ended since
		if w.Pod != nil {
			m, _ := w.Manager()
			gone = is && m == nil
		}
		switch {
		case w.Pod == nil || !gone && !w.empty():
			delete(after, w.Name)
		case !is:
			after[w.Name] = idle{in.Now, in.Now}
		default:
			after[w.Name] = idle{was.since, in.Now}
		}
	}
	return after
}

// lasts reports whether a worker has been idle for long enough, under the same ResourceManager: another one may not
// have heard yet what applications wait for.
func (f Following) lasts(in *Input, name string) bool {
	was, is := f.idle[name]
	return is && in.Now.Sub(Later(was.since, in.RM.Since)) >= in.Settings.Window
}
