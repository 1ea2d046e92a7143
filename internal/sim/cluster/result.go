package cluster

import (
	"math"
	"time"

	"github.com/waterline-io/waterline/internal/sim/yarn"
)

const (
	parts     = int(day / Part)
	minutes   = int(day / time.Minute)
	wholeNode = 1_000_000 // a whole node in balances
)

// count is what is counted in the course of the day. Whole numbers, so that it does not depend on the order of nodes.
// Amounts of CPU are milli-core-seconds, those of time are seconds of nodes.
type count struct {
	parts   [parts]part
	balance [minutes]balance
	rounds  int64

	// Of the cluster.
	goodput  float64 // core-seconds of tasks that ended
	lost     float64 // core-seconds that evicted tasks had worked
	ended    int
	evicted  int
	placed   int
	unplaced int // online pods for which no node had room
	met      int64
	weighted int64
}

// part is what is counted in a [Part] of the day.
type part struct {
	seconds, capacity     int64
	online, batch, wanted int64
	offered, limit, crews int64
	lacked                int64 // that online pods wanted beyond the node
	short, shortMemory    int64 // time in which online pods used more than was left for them
	shortCPU              int64 // by how much
	above, onlineAbove    int64 // time above the waterline, of all or of online pods
}

// balance is what nodes use at a minute: sums of millionths of each, and of their squares.
type balance struct {
	nodes           int64
	online, online2 int64
	all, all2       int64
	most            int64 // of online pods on a node
}

// pass counts seconds of a node in which nothing changed. They are in one part of the day.
func (t *count) pass(n *member, seconds int64) {
	p := &t.parts[min(int(n.since/Part), parts-1)]
	online, wanted := n.system+n.online, n.system+n.demand
	p.seconds += seconds
	p.capacity += n.Capacity.CPU * seconds
	p.online += online * seconds
	p.batch += n.used * seconds
	p.wanted += n.wants * seconds
	if c := n.crew; c != nil && c.pod != nil {
		p.crews += c.pod.used * seconds
	}
	p.offered += max(n.Offer.CPU, n.bound.CPU) * seconds
	if p.limit += n.Capacity.CPU * seconds; n.Limit >= 0 {
		p.limit -= max(n.Capacity.CPU-n.Limit, 0) * seconds
	}
	if over := wanted - n.Capacity.CPU; over > 0 {
		p.lacked += over * seconds
	}
	if over := wanted + n.wants - n.Capacity.CPU; over > 0 && n.wants > 0 {
		p.short += seconds
		p.shortCPU += min(over, n.wants) * seconds
	}
	if n.kept+n.memory+n.held > n.Capacity.Memory && n.held > 0 {
		p.shortMemory += seconds
	}
	if online+n.used > n.Ceiling {
		p.above += seconds
	}
	if online > n.Ceiling {
		p.onlineAbove += seconds
	}
}

// minute counts what a node uses at a minute.
func (t *count) minute(n *member, minute int) {
	b := &t.balance[min(minute, minutes-1)]
	online := (n.system + n.online) * wholeNode / n.Capacity.CPU
	all := (n.system + n.online + n.used) * wholeNode / n.Capacity.CPU
	b.nodes++
	b.online, b.online2 = b.online+online, b.online2+online*online
	b.all, b.all2 = b.all+all, b.all2+all*all
	b.most = max(b.most, online)
}

func (a *part) add(b *part) {
	a.seconds, a.capacity = a.seconds+b.seconds, a.capacity+b.capacity
	a.online, a.batch = a.online+b.online, a.batch+b.batch
	a.wanted, a.offered, a.lacked = a.wanted+b.wanted, a.offered+b.offered, a.lacked+b.lacked
	a.limit, a.crews = a.limit+b.limit, a.crews+b.crews
	a.short, a.shortMemory, a.shortCPU = a.short+b.short, a.shortMemory+b.shortMemory, a.shortCPU+b.shortCPU
	a.above, a.onlineAbove = a.above+b.above, a.onlineAbove+b.onlineAbove
}

func (t *count) add(u *count) {
	for i := range t.parts {
		t.parts[i].add(&u.parts[i])
	}
	for i := range t.balance {
		a, b := &t.balance[i], &u.balance[i]
		a.nodes, a.online, a.online2 = a.nodes+b.nodes, a.online+b.online, a.online2+b.online2
		a.all, a.all2, a.most = a.all+b.all, a.all2+b.all2, max(a.most, b.most)
	}
	t.rounds += u.rounds
}

// Result is what one day was like.
type Result struct {
	Nodes     int
	Pods      int // online
	Scheduler Scheduler
	Policy    string
	Services  int // different parts and days of the trace that online pods use
	History   int // days that teach the predictors

	// CPU, in percent of all nodes', in the mean of the day.
	OnlinePercent, BatchPercent, CPUPercent float64
	OfferedPercent                          float64 // to batch
	LimitPercent                            float64 // that suppression let batch use
	// Batch work, in core-hours: used, of pods that ended, and lost with evicted pods.
	BatchHours, Goodput, Lost float64
	Ended, Evicted, Waiting   int
	Served                    float64 // percent of the CPU that batch pods requested and got
	// Violations: minutes of a node and day in which online pods used more than what batch pods' requests left of the
	// node. Weights give it to them all the same, and batch pods get less than they requested. ShortHours is by how much,
	// in core-hours. ShortMemory is the same of memory, which no weight gives back.
	Short, ShortMemory, ShortHours float64
	// Minutes of a node and day above the waterline: of all, and of online pods alone; and core-hours that online pods
	// wanted beyond their node.
	Above, OnlineAbove, LackedHours float64
	// Standard deviation of the nodes' CPU, in percent of a node, in the mean of the minutes: of online pods, and of all.
	// Highest is the mean of the fullest node's CPU by online pods.
	OnlineSpread, Spread, Highest float64
	// WeightsMet is the share of pods with a weight, in percent, that get the CPU that it lets them expect while all pods
	// want CPU.
	WeightsMet float64
	Placed     int // pods that got a node
	Unplaced   int // online pods for which no node had room; they are left out
	// API writes in a second, of the whole cluster.
	NodeWrites, ReportWrites float64
	Rounds                   int64 // of decisions
	Hours                    Hours
	Pool                     *PoolResult // nil: there was no pool
}

// PoolResult is what the pool's workers did. They are part of batch.
type PoolResult struct {
	Hours         float64 // core-hours that containers used
	Goodput, Lost float64 // core-hours of containers that ended, and that killed ones had worked
	yarn.Count
	Waiting int // containers, in the end
}

// Hours are values for each [Part] of the day: percent of all CPUs; minutes in an hour of a node; standard deviation in
// percent of a node.
type Hours struct {
	Online, Batch, Offered []float64
	Short, Above           []float64
	OnlineSpread, Spread   []float64
	Workers                []float64 // CPU that the pool's workers used; a part of Batch
}

func (s *simulation) result() Result {
	t := &s.count
	for _, n := range s.nodes {
		n.pass(day, t)
	}
	for i := range s.counts {
		t.add(&s.counts[i])
	}
	r := Result{
		Nodes: s.o.Nodes, Pods: len(s.online), Scheduler: s.o.Scheduler, Policy: s.o.Policy.Name, Services: s.distinct,
		History: s.history, Goodput: t.goodput / 3600, Lost: t.lost / 3600, Ended: t.ended, Evicted: t.evicted,
		Waiting: s.jobs.Waiting(), Served: 100, Placed: t.placed, Unplaced: t.unplaced, Rounds: t.rounds,
	}
	var all part
	for i := range t.parts {
		r.Hours.add(&t.parts[i])
		all.add(&t.parts[i])
	}
	cpu := float64(all.capacity) / 100 // one percent, in milli-core-seconds
	r.OnlinePercent, r.BatchPercent = float64(all.online)/cpu, float64(all.batch)/cpu
	r.CPUPercent, r.OfferedPercent = r.OnlinePercent+r.BatchPercent, float64(all.offered)/cpu
	r.LimitPercent = float64(all.limit) / cpu
	const hours = 1000 * 3600
	r.BatchHours, r.ShortHours = float64(all.batch)/hours, float64(all.shortCPU)/hours
	r.LackedHours = float64(all.lacked) / hours
	if all.wanted > 0 {
		r.Served = 100 * float64(all.batch) / float64(all.wanted)
	}
	aDay := func(seconds int64) float64 { return float64(seconds) / float64(all.seconds) * minutesADay }
	r.Short, r.ShortMemory = aDay(all.short), aDay(all.shortMemory)
	r.Above, r.OnlineAbove = aDay(all.above), aDay(all.onlineAbove)
	if t.weighted > 0 {
		r.WeightsMet = 100 * float64(t.met) / float64(t.weighted)
	}
	var writes, reports int64
	for _, n := range s.nodes {
		writes, reports = writes+n.writes, reports+n.reports
	}
	r.NodeWrites, r.ReportWrites = float64(writes)/day.Seconds(), float64(reports)/day.Seconds()
	r.spreads(t)
	if s.pool != nil {
		r.Pool = &PoolResult{
			Hours: float64(all.crews) / hours, Lost: s.pool.Count.Lost / 3600, Count: s.pool.Count,
			Waiting: s.pool.Jobs.Waiting(),
		}
		for _, n := range s.nodes {
			r.Pool.Goodput += n.crew.goodput / 3600
		}
	}
	return r
}

const minutesADay = float64(minutes)

func (r *Result) spreads(t *count) {
	const one = wholeNode / 100 // percent
	const each = int(Part / time.Minute)
	r.Hours.OnlineSpread, r.Hours.Spread = make([]float64, parts), make([]float64, parts)
	for i := range t.balance {
		b := &t.balance[i]
		online, all := deviation(b.nodes, b.online, b.online2)/one, deviation(b.nodes, b.all, b.all2)/one
		r.OnlineSpread += online / minutesADay
		r.Spread += all / minutesADay
		r.Highest += float64(b.most) / one / minutesADay
		r.Hours.OnlineSpread[i/each] += online / float64(each)
		r.Hours.Spread[i/each] += all / float64(each)
	}
}

// deviation returns the standard deviation of n values by their sum and the sum of their squares.
func deviation(n, sum, squares int64) float64 {
	if n == 0 {
		return 0
	}
	mean := float64(sum) / float64(n)
	return math.Sqrt(max(float64(squares)/float64(n)-mean*mean, 0))
}

func (h *Hours) add(p *part) {
	one := float64(p.capacity) / 100
	minutes := float64(p.seconds) / 60 // a minute of each hour of a node
	h.Online = append(h.Online, ratio(p.online, one))
	h.Batch = append(h.Batch, ratio(p.batch, one))
	h.Workers = append(h.Workers, ratio(p.crews, one))
	h.Offered = append(h.Offered, ratio(p.offered, one))
	h.Short = append(h.Short, ratio(p.short, minutes))
	h.Above = append(h.Above, ratio(p.above, minutes))
}

func ratio(a int64, b float64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / b
}

// Metrics returns the figures. The names end in their units.
func (r *Result) Metrics() map[string]float64 {
	m := map[string]float64{
		"online_percent": r.OnlinePercent, "batch_percent": r.BatchPercent, "cpu_percent": r.CPUPercent,
		"offered_percent": r.OfferedPercent, "limit_percent": r.LimitPercent,
		"batch_core_hours": r.BatchHours, "goodput_core_hours": r.Goodput,
		"lost_core_hours": r.Lost, "ended_pods": float64(r.Ended), "evicted_pods": float64(r.Evicted),
		"waiting_pods": float64(r.Waiting), "served_percent": r.Served,
		"violation_minutes_per_node_day": r.Short, "violation_core_hours": r.ShortHours,
		"violation_memory_minutes_per_node_day": r.ShortMemory, "above_waterline_minutes_per_node_day": r.Above,
		"online_above_waterline_minutes_per_node_day": r.OnlineAbove, "online_lacked_core_hours": r.LackedHours,
		"online_stddev_percent": r.OnlineSpread, "cpu_stddev_percent": r.Spread, "online_highest_percent": r.Highest,
		"weights_met_percent": r.WeightsMet, "placed_pods": float64(r.Placed), "unplaced_online_pods": float64(r.Unplaced),
		"node_status_writes_per_second": r.NodeWrites, "node_report_writes_per_second": r.ReportWrites,
	}
	if p := r.Pool; p != nil {
		m["pool_core_hours"], m["pool_goodput_core_hours"], m["pool_lost_core_hours"] = p.Hours, p.Goodput, p.Lost
		m["pool_killed_containers"], m["pool_waiting_containers"] = float64(p.Killed), float64(p.Waiting)
		m["pool_manager_starts"], m["pool_resizes"] = float64(p.Starts), float64(p.Resizes)
		m["pool_pushbacks"], m["pool_pushbacks_without_kill_percent"] = float64(p.Pushbacks), 100*(1-p.ForcedShare())
	}
	return m
}

// Series returns the values in the course of the day. The names end in their units.
func (h *Hours) Series() map[string][]float64 {
	return map[string][]float64{
		"online_percent": h.Online, "batch_percent": h.Batch, "offered_percent": h.Offered,
		"workers_percent": h.Workers, "violation_minutes_per_node_hour": h.Short,
		"above_waterline_minutes_per_node_hour": h.Above,
		"online_stddev_percent":                 h.OnlineSpread, "cpu_stddev_percent": h.Spread,
	}
}
