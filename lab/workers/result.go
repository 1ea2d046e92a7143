package workers

import (
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/sim/node"
	"github.com/waterline-io/waterline/internal/sim/yarn"
)

// count is what is counted in the course of the day.
type count struct {
	ticks                    int
	online, batch            float64 // core-seconds used
	wanted                   float64 // core-seconds that containers were promised
	goodput                  float64 // core-seconds of containers that ended
	managers                 float64 // seconds of NodeManagers
	short, shortMemory       float64 // seconds of nodes in which online services needed what was promised to batch
	worst                    float64 // the most cores by which they did
	seriesOnline, seriesUsed []float64
	seriesShort              []float64 // seconds
	seriesTicks              []int
}

// tick counts a tick of one node.
func (t *count) tick(c *cluster, n *member, up bool, used pool.Size, batch, ended float64) {
	seconds := tick.Seconds()
	t.ticks++
	t.online, t.batch, t.goodput = t.online+n.online*seconds, t.batch+batch*seconds, t.goodput+ended
	t.wanted += float64(used.VCores) * seconds
	if up {
		t.managers += seconds
	}
	part := int((c.now.Sub(node.Dawn()) - 1) / Part)
	for len(t.seriesTicks) <= part {
		t.seriesOnline, t.seriesUsed = append(t.seriesOnline, 0), append(t.seriesUsed, 0)
		t.seriesShort, t.seriesTicks = append(t.seriesShort, 0), append(t.seriesTicks, 0)
	}
	t.seriesOnline[part] += n.online
	t.seriesUsed[part] += batch
	t.seriesTicks[part]++
	if over := n.online + float64(used.VCores) - float64(c.o.Cores); over > 0 {
		t.short, t.worst = t.short+seconds, max(t.worst, over)
		t.seriesShort[part] += seconds
	}
	if n.memory+float64(used.MemoryMiB) > float64(c.o.Memory) {
		t.shortMemory += seconds
	}
}

// Result is what one day was like under a policy.
type Result struct {
	Policy Policy
	Nodes  int
	// OnlinePercent and CPUPercent are the mean CPU of all nodes that online services used, and that all used.
	OnlinePercent, CPUPercent float64
	Goodput                   float64 // core-hours of work that ended
	yarn.Count
	ManagerHours float64 // of NodeManagers
	// Short is for how many seconds in an hour of a node online services used more CPU than containers left them. Weights
	// give it to them all the same, and containers get less than they were promised. ShortMemory is the same of memory,
	// which no weight gives back.
	Short, ShortMemory float64
	Worst              float64 // the most cores by which they did
	Served             float64 // percent of the CPU that containers were promised and got
	Waiting            int     // containers that waited in the end
	// Values for each [Part] of the day: percent of all CPUs, and Short.
	Online, Batch, Shorts []float64
}

func (c *cluster) result() Result {
	t := &c.count
	nodes := len(c.nodes)
	nodeHours := float64(t.ticks) * tick.Seconds() / time.Hour.Seconds()
	cores := float64(t.ticks) * tick.Seconds() * float64(c.o.Cores)
	r := Result{
		Policy: c.p, Nodes: nodes,
		OnlinePercent: 100 * t.online / cores, CPUPercent: 100 * (t.online + t.batch) / cores,
		Goodput: t.goodput / 3600, Count: c.pool.Count, ManagerHours: t.managers / 3600,
		Short: t.short / nodeHours, ShortMemory: t.shortMemory / nodeHours, Worst: t.worst,
		Served: 100, Waiting: c.pool.Jobs.Waiting(),
	}
	if t.wanted > 0 {
		r.Served = 100 * t.batch / t.wanted
	}
	for i, n := range t.seriesTicks {
		all := float64(n) * float64(c.o.Cores) / 100
		r.Online, r.Batch = append(r.Online, t.seriesOnline[i]/all), append(r.Batch, t.seriesUsed[i]/all)
		hours := float64(n) * tick.Seconds() / time.Hour.Seconds()
		r.Shorts = append(r.Shorts, t.seriesShort[i]/hours)
	}
	return r
}

// KilledPerCoreHour returns how many containers were killed for each core-hour of work that ended.
func (r *Result) KilledPerCoreHour() float64 { return ratio(float64(r.Killed), r.Goodput) }

// ResizesPerHour returns how often a NodeManager was resized in an hour.
func (r *Result) ResizesPerHour() float64 { return ratio(float64(r.Resizes), r.ManagerHours) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Metrics returns the figures of all policies. The names end in their units.
func Metrics(results []Result) map[string]float64 {
	m := map[string]float64{}
	for i := range results {
		r := &results[i]
		for name, v := range map[string]float64{
			"online_percent": r.OnlinePercent, "cpu_percent": r.CPUPercent, "goodput_core_hours": r.Goodput,
			"killed_containers": float64(r.Killed), "killed_per_core_hour": r.KilledPerCoreHour(),
			"lost_core_seconds": r.Lost, "manager_starts": float64(r.Starts), "resizes_per_manager_hour": r.ResizesPerHour(),
			"short_seconds_per_node_hour": r.Short, "short_memory_seconds_per_node_hour": r.ShortMemory,
			"worst_short_cores": r.Worst, "served_percent": r.Served, "pushbacks": float64(r.Pushbacks),
			"pushbacks_without_kill_percent": 100 * (1 - r.ForcedShare()),
		} {
			m[r.Policy.Name+"_"+name] = v
		}
	}
	return m
}
