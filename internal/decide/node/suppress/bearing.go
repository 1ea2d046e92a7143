package suppress

import (
	"hash/fnv"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// How the limit follows harm. Fractions are in thousandths of the capacity.
const (
	gain    = 2                      // CPU taken from batch for each CPU that online pods lack
	little  = 50                     // taken at least
	settles = 250 * time.Millisecond // a cut takes effect in this time: a period of a quota, and a sample
	episode = 2 * time.Second        // harm within this time after a cut belongs to it
	soon    = 5 * time.Second        // the limit is back at what online pods bore no sooner than this after a cut
	slowly  = 30 * time.Second       // the same after harm that weights cannot hold off, which shows seconds later
	latest  = 5 * time.Minute        // maximum of that time, which doubles each time that harm returns soon
	returns = 3                      // times that time within which harm returned soon
)

// bearing is how much batch the online pods of a node bear.
//
// After a cut, the limit grows as the window of TCP CUBIC does (RFC 9438, section 4.2): fast at first, slowly near the
// limit at which online pods were harmed, and faster again beyond it, if they bear that.
type bearing struct {
	Known bool          // the limit follows from harm; if not, from arithmetic
	Limit int64         // of batch
	Bears int64         // what batch used when online pods were harmed
	From  int64         // the limit after the last cut
	Since time.Duration // when that was
	Soon  time.Duration // when the limit is back at Bears, after that
	Set   uint64        // the online pods; others may bear more
	Deep  bool          `json:",omitempty"` // the limit is below that by arithmetic
	Floor int64         `json:",omitempty"` // while Deep, the limit is not below this
	// When a signal showed harm last that weights cannot hold off; 0: none did. It shows harm for a while after batch was
	// pushed back, so that is the same harm, and the limit grows from then on.
	Until time.Duration `json:",omitempty"`
	Blind bool          `json:",omitempty"` // waiting is not known, so that the limit is at most that by arithmetic
}

// bear sets the limit by harm. It is never below the limit by arithmetic, unless weights cannot hold the harm off.
// Where harm is not known, it is that one, or less by the signals that are known.
func (f *follow) bear() {
	b := &f.state.Bearing
	if f.harm == nil || f.now < b.since() || !f.harm.Known && !f.harm.Deep && !b.Deep && !b.recent(f.now) {
		*b = bearing{}
		f.explainBlind()
		return
	}
	set, first := onlineSet(f.n), !b.Known
	switch {
	case first:
		*b = bearing{
			Known: true, Limit: f.state.Milli, From: f.state.Milli, Since: f.now, Bears: f.a.Capacity, Soon: soon, Set: set,
		}
	case b.Set != set:
		b.Set, b.Soon = set, soon
		if b.Bears < f.a.Capacity { // it is as if the last cut had been now, and from the whole machine
			b.Bears, b.From, b.Since = f.a.Capacity, b.Limit, f.now
		}
	}
	harmed := f.harm.Milli > 0 && Running(f.n.Pods, &f.n.Tree)
	b.Deep = b.Deep && b.Limit < f.state.Milli || harmed && f.harm.Deep
	floor := f.state.Milli
	b.Floor, b.Blind = 0, !f.harm.Known
	if b.Deep {
		floor = min(floor, max(f.minBatch, leastPart))
		b.Floor = floor
	}
	switch {
	case !harmed:
		b.Limit = max(b.Limit, b.grown(f.now))
	case f.harm.Milli == f.harm.Held:
	case f.harm.Deep && first:
		f.cut(floor)
		b.Bears = f.a.Use.Batch
	case f.now-b.Since >= settles:
		f.cut(floor)
	}
	if harmed && f.harm.Deep {
		b.Until = f.now
	}
	most := f.a.Capacity
	if b.Blind {
		most = f.state.Milli
	}
	b.Limit = min(max(b.Limit, floor), most)
	f.limit = b.Limit
	if !harmed && b.Blind {
		f.explainBlind()
		return
	}
	f.explainHarm(harmed)
}

// cut lowers the limit by what online pods lack, to the floor at the lowest.
func (f *follow) cut(floor int64) {
	b := &f.state.Bearing
	used := min(b.Limit, max(f.a.Use.Batch, floor))
	to := used - max(gain*(f.harm.Milli-f.harm.Held), f.a.Capacity*little/1000)
	if f.harm.Keeps > 0 {
		to = min(to, used*f.harm.Keeps/1000)
	}
	to = max(to, floor)
	if to >= b.Limit {
		return // it is at its lowest; press withholds more
	}
	if since := f.now - b.since(); since >= episode {
		if since < returns*b.Soon {
			b.Soon = min(2*b.Soon, latest)
		} else {
			b.Soon = max(b.Soon/2, soon)
		}
		b.Bears = used
	}
	if f.harm.Deep {
		b.Soon = max(b.Soon, slowly)
	}
	f.react(b.Limit, to)
	b.Limit, b.From, b.Since = to, to, f.now
}

// grown returns the limit after so much time without harm.
func (b *bearing) grown(now time.Duration) int64 {
	const far = 4000 // beyond it any machine is covered
	x := min(int64((now-b.since()-b.Soon)*1000/b.Soon), far)
	height := max(b.Bears-b.From, 10)
	return b.Bears + height*x/1000*x/1000*x/1000
}

// since returns the end of the last harm: of the last cut, or of what showed harm after it.
func (b *bearing) since() time.Duration { return max(b.Since, b.Until) }

// recent reports whether a signal showed harm lately that weights cannot hold off.
func (b *bearing) recent(now time.Duration) bool { return b.Until != 0 && now-b.Until < returns*b.Soon }

// free reports whether batch may use the whole machine because no online pod is harmed.
func (f *follow) free() bool { return f.state.Bearing.Known && f.limit >= f.a.Capacity }

// explainBlind sets the reason of a limit where harm is not known.
func (f *follow) explainBlind() {
	if f.harm != nil && f.harm.Blind != "" {
		f.why = model.Reason{Code: model.HarmUnknown, Key: "pod", Text: f.nameOf(f.harm.Blind), Operands: f.why.Operands}
	}
}

// explainHarm sets the reason of a limit by harm.
func (f *follow) explainHarm(harmed bool) {
	left := model.Operand{Name: "left", Value: f.a.Allow, Unit: model.UnitMilli}
	bears := model.Operand{Name: "bears", Value: f.state.Bearing.Bears, Unit: model.UnitMilli}
	switch {
	case harmed:
		f.why = f.harm.Worst.Reason()
		f.why.Key, f.why.Text = "pod", f.nameOf(f.harm.Worst.UID)
		f.why.Operands = append(f.why.Operands, left)
	case f.free():
		f.why = model.Reason{Code: model.BatchFree, Operands: []model.Operand{left}}
	default:
		f.why = model.Reason{Code: model.BatchProbes, Operands: []model.Operand{left, bears}}
	}
}

// nameOf returns the name of a pod by its UID.
func (f *follow) nameOf(uid string) string {
	if pod := model.FindPod(f.n.Pods, uid); pod != nil {
		return pod.Namespace + "/" + pod.Name
	}
	return uid
}

// onlineSet returns a hash of the online pods.
func onlineSet(n *model.Node) uint64 {
	h := fnv.New64a()
	for _, pod := range n.Pods {
		if pod.Class.Online() && !pod.Ended {
			_, _ = h.Write([]byte(pod.UID))
		}
	}
	return h.Sum64()
}

// Lowers reports whether more harm would lower the limit of batch.
func (s *State) Lowers() bool { return s.Bearing.Known && s.Bearing.Limit > s.Milli }

// Exhausted reports whether as much is withheld from batch as harm may withhold, and has been for some time.
func (s *State) Exhausted(now time.Duration, capacity int64) bool {
	b := &s.Bearing
	if b.Deep {
		return b.Limit <= max(capacity*little/1000, b.Floor) && now-b.Since >= soon
	}
	return b.Known && b.Limit <= s.Milli && s.Push >= capacity*pushed/1000
}
