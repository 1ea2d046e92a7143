package node_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

var ladders = flag.Uint64("ladders", 4, "worlds in which the ladder is tried")

// steps is how often each step of the ladder may begin in any hour, on one node or, where it says so, of one pod,
// whatever is measured. Each number follows from a time that the step waits, see docs/design/evict.md.
var steps = map[string]int{
	"hot":      hourly(3*60 + 10), // ten seconds until there is a reason, and three minutes without one until it is over
	"suppress": hourly(3),         // that batch is given more again: three seconds after it was given less
	"throttle": 18,                // six trials, and each is given back in as many steps as it was taken
	"high":     hourly(1 + 10),    // of one pod: ten seconds with far more left until it goes
	"reclaim":  hourly(1),         // one pod in a second
	"evict":    hourly(60),        // a minute between two
	"left":     6,                 // what the policy says
}

// hourly returns how often at most something happens in any hour between two times of which at least so many seconds go
// by.
func hourly(seconds int) int { return (3600 + seconds - 1) / seconds }

// ladder is a world that is watched for what is done on each step.
type ladder struct {
	*world
	t      *testing.T
	r      *rand.Rand
	seed   uint64
	next   int    // of new batch pods
	online int64  // bytes that the online pod uses at least
	swing  int64  // and beside that at most
	jitter int64  // by how much a batch pod's use changes in a second, in bytes
	period int    // seconds
	spite  string // the step that memory is measured to provoke; "": it goes up and down
	guilty bool   // a batch pod makes an online pod wait; else they wait at random
	answer int    // of a hundred, how often who is asked for leaves in a second

	begun map[string][]time.Duration // when a step began, by step or by step and pod
	was   model.Plan
	rose  bool
	short time.Duration // since when memory has been held
	idle  int           // seconds in which somebody could have been asked for page cache, and nobody was
	gives int           // seconds until who was asked for page cache has answered
	asked model.Reclaim
}

func newLadder(t *testing.T, seed uint64) *ladder {
	r := rand.New(rand.NewPCG(seed, 90))
	l := &ladder{
		world: newWorld(), t: t, r: r, seed: seed, begun: map[string][]time.Duration{},
		online: 20 << 30, swing: 1<<30 + r.Int64N(16<<30), jitter: 1 + r.Int64N(1<<28), period: 1 + r.IntN(900),
		guilty: seed%4 == 0, spite: []string{"", "", "high", "high"}[seed%4], answer: one(r, 0, 2, 100),
	}
	for _, line := range []string{
		"node real=16/64Gi cpus=1x1x1x8x2 v2",
		"policy cpu=Realtime:800 memory=Realtime:800 suppress=Arithmetic burst protectmemory interference evict=6",
		"pod web class=Burstable qos=LS memory=8Gi app=main:4 used=1/8 age=7200",
		"pod db class=Burstable qos=LSR memory=8Gi app=main:4 used=1/6 age=7200",
		"pod api class=Burstable qos=LS memory=2Gi app=main:2 used=1/1 age=7200",
		"load node=4/40Gi pods=4/39Gi",
	} {
		if err := l.do(line); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		l.come()
	}
	return l
}

// come lets a batch pod come.
func (l *ladder) come() {
	l.next++
	line := fmt.Sprintf("pod job%d class=BestEffort qos=BE job=main:2::8 batch=2/8Gi used=1/4 cache=1/2 evict=%s", l.next,
		one(l.r, "", "", "first", "never"))
	if err := l.do(strings.TrimSuffix(line, " evict=")); err != nil {
		l.t.Fatal(err)
	}
}

// noise changes what is measured, in bounds.
func (l *ladder) noise(second int) {
	r, high := l.r, second/l.period%2 == 1
	l.load.age = 0
	if second%977 < r.IntN(15) {
		l.load.age = time.Duration(r.IntN(20)) * time.Second
	}
	var all model.Amount
	for _, p := range l.node.Pods {
		u := l.load.used[p.UID]
		switch {
		case p.Class == model.ClassBE:
			u.CPU = l.burns(p.UID, second)
			u.Memory = min(max(u.Memory+r.Int64N(2*l.jitter+1)-l.jitter, 1<<30), 8<<30)
			u.cache = min(u.cache+r.Int64N(1<<28), u.Memory/2)
			u.cold = r.Int64N(u.cache + 1)
		case p.UID == "web" && l.spite != "":
			u = podLoad{Amount: model.Amount{CPU: 500, Memory: l.provoke(u.Memory)}}
			if l.rose {
				u.CPU = 9000 // each time that batch has just been given more
			}
		case p.Class != model.ClassBE:
			u.CPU = r.Int64N(3000)
			if high {
				u.CPU += 1000
			}
			if p.UID == "web" {
				if u.Memory = l.online + r.Int64N(l.swing/8); high {
					u.Memory += l.swing
				}
			}
		}
		u.waits, u.delays, u.thrashes, u.throttled = 1+r.Int64N(40), -1, 0, r.Int64N(5)
		switch {
		case l.guilty && p.UID == "web":
			u.waits, u.throttled = 130+l.load.used[l.suspect()].CPU/8+r.Int64N(20), 0
		case !l.guilty:
			u.waits += r.Int64N(400) * int64(r.IntN(2))
		}
		if second%1800 > 1500 {
			u.thrashes = r.Int64N(200)
		}
		l.load.used[p.UID] = u
		all = model.Amount{CPU: all.CPU + u.CPU, Memory: all.Memory + u.Memory}
	}
	l.load.pods, l.load.node = all, model.Amount{CPU: all.CPU + 500, Memory: all.Memory + 1<<30}
}

// provoke returns how much memory an online pod is to use so that a step begins as often as can be: nothing is left for
// batch until it has begun, or could begin were its wait a little shorter, and then so much that it is undone.
func (l *ladder) provoke(uses int64) int64 {
	if l.was.Slack == nil {
		return uses
	}
	a := &l.was.Slack.Memory
	left := a.Allow - a.Use.Batch
	if len(settings(&l.was, model.MemoryHigh)) > 0 {
		left -= 8 << 30
	}
	return min(max(uses+left+1<<30, 1<<30), 40<<30)
}

// burns returns how much CPU a batch pod uses: the guilty one now and then, all that it may.
func (l *ladder) burns(uid string, second int) int64 {
	if !l.guilty || uid != l.suspect() {
		return l.r.Int64N(1500)
	}
	milli := 200 + 3300*int64(second/50%2) + l.r.Int64N(100)
	if t, throttled := throttles(&l.was)[uid]; throttled {
		milli = min(milli, t.Milli)
	}
	return milli
}

// suspect is the batch pod whose use makes an online pod wait, in a world where one does.
func (l *ladder) suspect() string {
	i := slices.IndexFunc(l.node.Pods, func(p *model.Pod) bool { return p.Class == model.ClassBE })
	return l.node.Pods[i].UID
}

// calm makes all quiet.
func (l *ladder) calm() {
	l.load.age, l.answer = 0, 0
	for uid, u := range l.load.used {
		u.CPU, u.Memory, u.cache, u.cold, u.waits, u.thrashes, u.throttled = 200, 1<<30, 1<<20, 1<<20, 1, 0, 0
		l.load.used[uid] = u
	}
	all := model.Amount{CPU: 200 * int64(len(l.node.Pods)), Memory: int64(len(l.node.Pods)) << 30}
	l.load.pods, l.load.node = all, model.Amount{CPU: all.CPU + 500, Memory: all.Memory + 1<<30}
}

// second lets one second pass.
func (l *ladder) second() {
	l.node.Now = l.node.Now.Add(time.Second)
	l.measure()
	before := l.state
	var plan model.Plan
	plan, l.state = node.Decide(l.node, l.policy, l.state)
	l.climb(&plan)
	l.order(&before, &plan)
	l.carryOut(&plan)
	l.react(&plan)
	l.was = plan
}

// react is what the kernel and the cluster do.
func (l *ladder) react(plan *model.Plan) {
	if l.node.Reclaiming {
		if l.gives--; l.gives <= 0 {
			l.node.Reclaiming = false
			l.node.Reclaimed = &model.Reclaimed{
				UID: l.asked.UID, Requested: l.asked.Bytes, Freed: l.asked.Bytes * l.r.Int64N(5) / 4,
			}
		}
	}
	if plan.Reclaim != nil {
		l.node.Reclaiming, l.gives, l.asked = true, l.r.IntN(3), *plan.Reclaim
	}
	for _, p := range slices.Clone(l.node.Pods) {
		switch {
		case p.Leaving && l.r.IntN(10) == 0:
			l.node.Pods = slices.DeleteFunc(l.node.Pods, func(q *model.Pod) bool { return q.UID == p.UID })
			delete(l.node.Tree.Pods, p.UID)
			delete(l.load.used, p.UID)
			l.come()
		case plan.Evict.Requested() != nil && plan.Evict.Requested().UID == p.UID && l.r.IntN(100) < l.answer:
			p.Leaving, p.Grace = true, 30*time.Second
			l.note("left")
		}
	}
}

func (l *ladder) note(step string) { l.begun[step] = append(l.begun[step], l.node.Load.Clock) }

// climb notes what begins on each step.
func (l *ladder) climb(plan *model.Plan) {
	was := &l.was
	if plan.Evict.HotFor().Code != "" && was.Evict.HotFor().Code == "" {
		l.note("hot")
	}
	if s := plan.Suppress; s != nil && was.Suppress != nil {
		switch {
		case s.Milli < was.Suppress.Milli:
			l.rose = false
		case s.Milli > was.Suppress.Milli && !l.rose:
			l.rose = true
			l.note("suppress")
		}
	}
	for _, was := range throttles(&l.was) {
		if now, is := throttles(plan)[was.UID]; !is || now.Milli != was.Milli {
			l.note("throttle")
		}
	}
	for uid := range throttles(plan) {
		if _, did := throttles(&l.was)[uid]; !did {
			l.note("throttle")
		}
	}
	for dir := range settings(plan, model.MemoryHigh) {
		if _, did := settings(was, model.MemoryHigh)[dir]; !did {
			l.note("high " + dir)
		}
	}
	if plan.Reclaim != nil {
		l.note("reclaim")
	}
	if e := plan.Evict.Requested(); e != nil && (was.Evict.Requested() == nil || was.Evict.Requested().UID != e.UID) {
		l.note("evict")
	}
}

// order checks that no step is taken while one below was not.
func (l *ladder) order(before *node.State, plan *model.Plan) {
	clock := l.node.Load.Clock
	held := settings(plan, model.MemoryHigh)
	if len(held) == 0 {
		l.short, l.idle = 0, 0
	} else if l.short == 0 {
		l.short = clock
	}
	if l.idle++; plan.Reclaim != nil || !l.reclaimable() {
		l.idle = 0
	}
	e := plan.Evict.Requested()
	if e == nil || e.UID == before.Evict.Request.UID || e.Reason.Code != model.MemoryExhausted {
		return
	}
	if l.short == 0 || clock-l.short < 10*time.Second || l.idle > 1 {
		l.t.Fatalf("seed %d, %s: %+v should leave; held since %s, %d s nobody was asked for page cache", l.seed, clock, e,
			l.short, l.idle)
	}
	if plan.Publish.Reason.Code == "" {
		l.t.Fatalf("seed %d, %s: %+v should leave, and the node sells %+v", l.seed, clock, e, plan.Publish)
	}
}

// reclaimable reports whether a batch pod could be asked for page cache.
func (l *ladder) reclaimable() bool {
	s := &l.state.Memory
	if clock := l.node.Load.Clock; l.node.Reclaiming || clock < s.Rest || l.load.age > 10*time.Second {
		return false
	}
	return slices.ContainsFunc(l.node.Pods, func(p *model.Pod) bool {
		rests := false
		for _, rest := range s.Pods {
			rests = rests || rest.UID == p.UID
		}
		return p.Class == model.ClassBE && !rests && l.load.used[p.UID].cache >= 16<<20
	})
}

func throttles(plan *model.Plan) map[string]model.Throttle {
	all := map[string]model.Throttle{}
	if plan.Interference != nil {
		for _, t := range plan.Interference.Throttles {
			all[t.UID] = t
		}
	}
	return all
}

// settings returns what a plan writes of a knob, by directory.
func settings(plan *model.Plan, k model.Knob) map[string]int64 {
	all := map[string]int64{}
	for _, s := range plan.Settings {
		if s.Knob == k && !s.Release {
			all[s.Dir] = s.Value.Number
		}
	}
	return all
}

// TestLadder checks the ladder as a whole: no new batch, suppress, throttle the suspect, hold and reclaim, evict.
// Whatever is measured within bounds, each step begins no more often in any hour than its waits allow; none is
// taken before those below it; and after a long calm all is undone. More worlds: go test ./internal/decide -run Ladder
// -v -args -ladders 100.
func TestLadder(t *testing.T) {
	total := map[string]int{}
	worlds := *ladders
	if testing.Short() {
		worlds = min(worlds, 2)
	}
	for seed := range worlds {
		l := newLadder(t, seed)
		for second := range 3600 {
			l.noise(second)
			l.second()
		}
		for step, at := range l.begun {
			name, _, _ := strings.Cut(step, " ")
			total[name] += len(at)
			if most := steps[name]; densest(at) > most {
				t.Errorf("seed %d: %s began %d times in an hour, at most %d are allowed", seed, step, densest(at), most)
			}
		}
		for range 35 * 60 {
			l.calm()
			l.second()
		}
		l.undone()
	}
	t.Logf("in %d worlds of an hour: %v", worlds, total)
	for step := range steps {
		if total[step] == 0 {
			t.Errorf("%s never began: that is no test", step)
		}
	}
}

// densest returns the most of these times that lie in one hour.
func densest(at []time.Duration) int {
	most, first := 0, 0
	for i := range at {
		for at[i]-at[first] >= time.Hour {
			first++
		}
		most = max(most, i+1-first)
	}
	return most
}

// undone checks that nothing is left of what was done.
func (l *ladder) undone() {
	plan := &l.was
	if left := settings(plan, model.MemoryHigh); len(left) > 0 {
		l.t.Errorf("seed %d: after a long calm memory.high is still set: %v", l.seed, left)
	}
	for _, o := range l.node.Owned {
		if o.Knob == model.MemoryHigh {
			l.t.Errorf("seed %d: after a long calm %+v is still on record", l.seed, o)
		}
	}
	if left := throttles(plan); len(left) > 0 || plan.Reclaim != nil || plan.Evict.HotFor().Code != "" ||
		plan.Evict.Requested() != nil {
		l.t.Errorf("seed %d: after a long calm: throttled %v, reclaim %v, evict %+v", l.seed, left, plan.Reclaim, plan.Evict)
	}
	if s, a := plan.Suppress, &plan.Slack.CPU; s == nil || s.Milli < a.Allow-a.Capacity/20 {
		l.t.Errorf("seed %d: after a long calm batch may use %+v of %d", l.seed, s, a.Allow)
	}
	if len(plan.Publish.Resources) == 0 {
		l.t.Errorf("seed %d: after a long calm nothing is sold: %+v", l.seed, plan.Publish)
	}
	for _, s := range plan.Settings {
		if s.Reason.Code == model.QuotaRaised || s.Reason.Code == model.NodeHot {
			l.t.Errorf("seed %d: after a long calm %+v", l.seed, s)
		}
	}
}
