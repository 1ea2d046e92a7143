package predict

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// State is what is remembered of a node's online pods. Two rounds share what is behind its pointers and slices: it is
// never changed, only replaced.
type State struct {
	CPU    *Predictor `json:",omitempty"` // of all online pods together; nil: nothing was seen
	Memory *Predictor `json:",omitempty"`
	Minute minute
	Owners []owner `json:",omitempty"` // of online pods, ordered by name
}

// minute gathers what was used in the minute that is going on: predictors see its mean.
type minute struct {
	Number  int64         // since 1970
	From    int64         // second of it in which the first sample was taken
	Seen    time.Duration // of the newest measurement in it
	Samples int64
	CPU     int64 // sums over the samples
	Memory  int64
}

// owner is what is known of the pods of one workload, from those that ran on this node.
type owner struct {
	Name    string
	Minutes int64   // in which a pod of it was measured
	Last    int64   // minute in which that was last so, since 1970
	Pods    float64 // how many there usually are: the mean, with a time constant of a day
	CPU     float64 // the most that a pod of it used, in milli-cores; a peak counts for half after a week
	Memory  float64 // the same in bytes
}

const (
	maxOwners  = 128              // remembered; those not seen for longest are forgotten first
	knowsOwner = 1440             // minutes after which an owner's own peak counts, and its requests do not
	usualPods  = 1440             // minutes, the time constant of owner.Pods
	ownerFades = 7 * 1440         // minutes, the half-life of owner.CPU and owner.Memory
	timely     = 10 * time.Second // older measurements are no sample of now
	// latestStart is the last second in which measurements of a minute may begin. The mean of fewer than ten seconds just
	// after an installation is that of starting pods, and would count as the peak of an hour.
	latestStart = 50
	startUp     = 3 * time.Minute // of a pod, whose use then says little of its later one
)

// Decide says what the online pods of a node will need at most within each horizon, from what they use now and from
// their past. Minutes of measurements go into predictors of all online pods together.
//
// What no past of the node can show are pods that were not here before. They are counted with what other pods of the
// same owner used at most on this node, once such pods ran here for a day, else with their requests: in place of the
// prediction while too little is known to predict, later on top of it for as many pods as there are more than usual.
//
// While too little is known, requests often say much more than pods will use, and nothing could be sold for a day. So
// the next hour is then what is used now, with a larger margin and the requests of pods younger than a day, if that is
// less.
//
// For CPU in the next hour, the request counts less with each minute of that day: what a pod has used by then is known,
// and weights give CPU back at once if it uses more after all. Nothing gives memory back, and a day shows other hours.
func Decide(n *model.Node, cpu, memory model.Use, s State) (cpus, bytes [model.Horizons]model.Peak, next State) {
	if n.Load == nil || !cpu.Measured || !memory.Measured {
		return unknown(), unknown(), s
	}
	pods := gather(n)
	s = s.sample(n, pods, cpu, memory)
	prior, news, soon := s.newcomers(pods)
	young := young(n)
	// A node without requests still has a prior: almost nothing.
	cpus = s.peaks(n, s.CPU, Config{
		Limit: float64(n.Load.CPUMilli), Prior: max(prior.cpu, 1), Early: true, Young: young.cpu,
	}, [model.Horizons]float64{model.Hour: soon, model.Day: news.cpu})
	bytes = s.peaks(n, s.Memory, Config{
		Limit: float64(n.Load.Memory), Prior: max(prior.memory, 1), Early: true, Young: young.memory,
	}, [model.Horizons]float64{model.Hour: news.memory, model.Day: news.memory})
	return cpus, bytes, s
}

// OtherDays returns the highest use of online pods on other days, in the hours that begin now: it shows how long a
// trough lasts. It does not count pods that were not here on those days.
func OtherDays(n *model.Node, s State) (cpu, memory model.OtherDays) {
	return s.CPU.ahead(n.Now), s.Memory.ahead(n.Now)
}

func (p *Predictor) ahead(now time.Time) model.OtherDays {
	if p == nil {
		return model.OtherDays{}
	}
	return model.OtherDays{
		FourHours: up(p.OtherDays(now, 4*hourQuarters)), EightHours: up(p.OtherDays(now, 8*hourQuarters)),
	}
}

// unknown is what is said of peaks when nothing was measured: that everything may be needed.
func unknown() (peaks [model.Horizons]model.Peak) {
	for h := range peaks {
		peaks[h].Value = math.MaxInt64
	}
	return peaks
}

// peaks predicts with a predictor, and adds the needs of newcomers beyond that.
func (s State) peaks(
	n *model.Node, p *Predictor, c Config, news [model.Horizons]float64,
) (peaks [model.Horizons]model.Peak) {
	if p == nil {
		p = &Predictor{}
	}
	for h := range model.Horizons {
		r := p.Predict(c, n.Now, h)
		peak := &peaks[h]
		*peak = model.Peak{Known: r.Known, Age: r.Age, Missed: int64(math.Round(r.Missed * 1000)), Checked: int64(r.Checked)}
		value := r.Peak
		peak.Learning = h == model.Hour && (r.Early || r.Prior) && r.Age < maxAge
		if r.Early {
			peak.Margin = up(r.Margin * room(c.Limit, r.Base))
			peak.New = up(c.Young)
		}
		if r.Known {
			added := min(news[h], max(c.Limit-value, 0))
			peak.New = up(added)
			peak.Margin = up(r.Margin * room(c.Limit, r.Base))
			value += added
		}
		peak.Value = up(value)
	}
	return peaks
}

func up(v float64) int64 { return int64(math.Ceil(min(v, 1<<62))) }

// sample takes in what is used now.
func (s State) sample(n *model.Node, pods []group, cpu, memory model.Use) State {
	seen := n.Load.Node.CPU.At
	if seen == s.Minute.Seen || cpu.Age > timely || memory.Age > timely {
		return s
	}
	number := n.Now.Unix() / 60
	if number != s.Minute.Number {
		s = s.turn(n, pods)
		s.Minute = minute{Number: number, From: n.Now.Unix() % 60}
	}
	s.Minute.Seen = seen
	s.Minute.Samples++
	s.Minute.CPU += cpu.Online
	if s.CPU == nil || s.CPU.count < hourQuarters {
		s.Minute.CPU -= min(starting(n), cpu.Online)
	}
	s.Minute.Memory += memory.Online
	return s
}

// starting returns what online pods that began a moment ago use beyond their requests, in milli-cores. In the first
// hour of a node it does not count, because the start of a few pods would be the peak of the whole hour, in which
// nothing would be sold; of CPU, weights give back at once what a pod needs after all. Later, each start counts: a node
// whose pods come and go needs that much.
func starting(n *model.Node) (milli int64) {
	for _, p := range n.Pods {
		age := n.Now.Sub(p.Created)
		if !p.Class.Online() || p.Ended || age < 0 || age >= startUp {
			continue
		}
		if u := n.Load.Pod(p.UID); u != nil && u.CPU.At != 0 {
			milli += max(u.CPU.Milli-p.RequestMilli, 0)
		}
	}
	return milli
}

// turn hands the minute that is over to the predictors.
func (s State) turn(n *model.Node, pods []group) State {
	m := s.Minute
	if m.Samples == 0 || m.From > latestStart {
		return s
	}
	at := time.Unix((m.Number+1)*60-1, 0)
	observe := func(old *Predictor, limit, sum int64) *Predictor {
		p := &Predictor{}
		if old != nil {
			*p = *old
		}
		p.Observe(Config{Limit: float64(limit)}, at, float64(sum)/float64(m.Samples))
		return p
	}
	s.CPU = observe(s.CPU, n.Load.CPUMilli, m.CPU)
	s.Memory = observe(s.Memory, n.Load.Memory, m.Memory)
	s.Owners = remember(s.Owners, pods, m.Number)
	return s
}

// group is the online pods of one owner that are here now.
type group struct {
	owner   string
	pods    int64
	now     pair // used
	request pair
	most    pair // used by one of them
	seen    bool // one of them was measured
}

type pair struct{ cpu, memory float64 }

// gather sums up the online pods by owner, ordered by its name.
func gather(n *model.Node) []group {
	var all []group
	for _, p := range n.Pods {
		if !p.Class.Online() || p.Ended {
			continue
		}
		i, found := slices.BinarySearchFunc(all, p.Owner,
			func(g group, name string) int { return strings.Compare(g.owner, name) })
		if !found {
			all = slices.Insert(all, i, group{owner: p.Owner})
		}
		g := &all[i]
		g.pods++
		g.request.cpu += float64(p.RequestMilli)
		g.request.memory += float64(p.MemoryRequest)
		if u := n.Load.Pod(p.UID); u != nil && u.CPU.At != 0 {
			g.seen = true
			cpu, memory := float64(u.CPU.Milli), float64(u.Memory.WorkingSet)
			g.now.cpu += cpu
			g.now.memory += memory
			g.most.cpu, g.most.memory = max(g.most.cpu, cpu), max(g.most.memory, memory)
		}
	}
	return all
}

// young returns what online pods that began within the last day may need beyond what they use: their requests, of CPU
// less with each minute of that day. A pod whose beginning is in the future counts in full.
func young(n *model.Node) (sum pair) {
	const day = 24 * time.Hour
	for _, p := range n.Pods {
		age := n.Now.Sub(p.Created)
		if !p.Class.Online() || p.Ended || age >= day {
			continue
		}
		var used pair
		if u := n.Load.Pod(p.UID); u != nil && u.CPU.At != 0 {
			used = pair{float64(u.CPU.Milli), float64(u.Memory.WorkingSet)}
		}
		unseen := 1 - float64(max(age, 0))/float64(day)
		sum.cpu += unseen * max(float64(p.RequestMilli)-used.cpu, 0)
		sum.memory += max(float64(p.MemoryRequest)-used.memory, 0)
	}
	return sum
}

// remember brings what is known of the owners up to a minute.
func remember(old []owner, pods []group, now int64) []owner {
	all := make([]owner, 0, len(old)+len(pods))
	for i, j := 0, 0; i < len(old) || j < len(pods); {
		var o owner
		var g group
		switch {
		case j == len(pods) || i < len(old) && old[i].Name < pods[j].owner:
			o, i = old[i], i+1
		case i == len(old) || old[i].Name > pods[j].owner:
			g, j = pods[j], j+1
			o = owner{Name: g.owner, Last: now}
		default:
			o, g, i, j = old[i], pods[j], i+1, j+1
		}
		o.Pods += (float64(g.pods) - o.Pods) / usualPods
		if g.seen {
			fade := math.Exp2(-1.0 / ownerFades)
			o.CPU, o.Memory = max(o.CPU*fade, g.most.cpu), max(o.Memory*fade, g.most.memory)
			o.Minutes = min(o.Minutes+1, knowsOwner)
			o.Last = now
		}
		all = append(all, o)
	}
	if len(all) > maxOwners {
		slices.SortFunc(all, func(a,
			b owner) int {
			return cmp.Or(cmp.Compare(b.Last, a.Last), strings.Compare(a.Name, b.Name))
		})
		all = all[:maxOwners]
		slices.SortFunc(all, func(a, b owner) int { return strings.Compare(a.Name, b.Name) })
	}
	return all
}

// Settled returns the state as if the online pods of a node had been there for long: their owners are known, and each
// pod has used no more than it uses in the measurement. Simulators begin with it.
func (s State) Settled(n *model.Node) State {
	pods := gather(n)
	s.Owners = make([]owner, 0, len(pods))
	for i := range pods {
		g := &pods[i]
		s.Owners = append(s.Owners, owner{
			Name: g.owner, Minutes: knowsOwner, Last: n.Now.Unix() / 60, Pods: float64(g.pods),
			CPU: g.most.cpu, Memory: g.most.memory,
		})
	}
	return s
}

// newcomers returns what the pods that are here would need if nothing were known of this node, and what those of them
// may need beyond their use now that are more than there usually are; soon is the CPU of that in the next hour.
func (s State) newcomers(pods []group) (prior, news pair, soon float64) {
	for i := range pods {
		g := &pods[i]
		var o owner
		if i, found := slices.BinarySearchFunc(s.Owners, g.owner,
			func(o owner, name string) int { return strings.Compare(o.Name, name) }); found {
			o = s.Owners[i]
		}
		count := float64(g.pods)
		need := pair{max(o.CPU, g.request.cpu/count), max(o.Memory, g.request.memory/count)}
		if o.Minutes >= knowsOwner {
			need = pair{o.CPU, o.Memory}
		}
		prior.cpu += count * need.cpu
		prior.memory += count * need.memory
		if more := count - o.Pods; more > 0 {
			news.cpu += more * max(need.cpu-g.now.cpu/count, 0)
			news.memory += more * max(need.memory-g.now.memory/count, 0)
			unseen := 1 - float64(o.Minutes)/knowsOwner
			soon += more * max(o.CPU+unseen*(need.cpu-o.CPU)-g.now.cpu/count, 0)
		}
	}
	return prior, news, soon
}
