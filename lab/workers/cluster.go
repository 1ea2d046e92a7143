package workers

import (
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/jobs"
	"github.com/waterline-io/waterline/internal/sim/node"
	"github.com/waterline-io/waterline/internal/sim/yarn"
)

// cluster is the simulated cluster.
type cluster struct {
	o     *Options
	p     Policy
	set   yarn.Settings
	now   time.Time
	end   time.Time
	nodes []*member
	days  []int64 // second of each node's trace at dawn
	pool  *yarn.Pool
	count count
}

func newCluster(o *Options, p Policy) (*cluster, error) {
	c := &cluster{o: o, p: p, set: p.settings(o), now: node.Dawn().Add(-warmUp), end: node.Dawn().Add(24 * time.Hour)}
	c.pool = yarn.New(c.set, len(o.Machines), jobs.New(o.jobs(), o.Seed, c.now), c.now)
	for i := range o.Machines {
		m := &o.Machines[i]
		from, err := m.DayBegins(o.Day)
		if err != nil {
			return nil, err
		}
		c.days = append(c.days, from)
		c.nodes = append(c.nodes, newMember(o, p, m, from-int64(warmUp.Seconds()), uint64(i)))
	}
	return c, nil
}

// counted reports whether the warm-up is over.
func (c *cluster) counted() bool { return c.now.After(node.Dawn()) }

// step lets a tick pass.
func (c *cluster) step() {
	c.now = c.now.Add(tick)
	c.pool.Counts = c.counted()
	now := c.now.Sub(node.Dawn())
	for i, n := range c.nodes {
		n.use(c.days[i]+int64(now.Seconds()), now)
		c.pool.Live(i, c.now)
		c.work(i, n)
	}
	if !c.p.workers {
		return
	}
	for i, n := range c.nodes {
		if c.p.naive {
			break // it looks at no agent
		}
		n.measure(now, c.bound(i), model.Amount{CPU: int64(c.batch(i, n) * 1000), Memory: c.pool.Used(i).MemoryMiB << 20})
		c.pool.Workers[i].Node = n.Shown()
	}
	c.pool.Jobs.Arrive(c.now)
	c.pool.Place()
	if c.p.naive {
		c.controlNaively()
		return
	}
	c.pool.Round(c.now, func(int) {})
}

// batch returns the cores that containers on a node use now: what online services leave, which come first by weight.
func (c *cluster) batch(i int, n *member) float64 {
	return min(float64(c.pool.Used(i).VCores), float64(c.o.Cores)-n.online)
}

// work lets the containers of a node run, and counts.
func (c *cluster) work(i int, n *member) {
	cores, used := c.batch(i, n), c.pool.Used(i)
	ended := c.pool.Run(i, cores, tick.Seconds())
	if c.counted() {
		c.count.tick(c, n, c.pool.Workers[i].Up(), used, cores, ended)
	}
}

// bound returns what the pod of a worker requests.
func (c *cluster) bound(i int) model.Amount {
	if c.pool.Workers[i].Pod == nil {
		return model.Amount{}
	}
	return c.set.Request()
}

// controlNaively gives each worker what online services leave of its node now. What does not fit has the usual grace.
func (c *cluster) controlNaively() {
	for i, w := range c.pool.Workers {
		switch {
		case w.Pod == nil:
			c.pool.Start(i, c.now)
		case w.Up():
			c.pool.Resize(i, c.naive(c.nodes[i]), c.now.Add(c.set.Grace))
		}
	}
}

// naive returns what online services leave of a node now, below the waterline.
func (c *cluster) naive(n *member) pool.Size {
	left := func(all int64, used float64, floor, ceiling, step int64) int64 {
		v := all*c.o.Waterline/1000 - int64(used)
		return min(max(v/step*step, floor), ceiling)
	}
	f, most, s := c.set.Floor, c.set.Ceiling, c.set.Step
	return pool.Size{
		MemoryMiB: left(c.o.Memory, n.memory, f.MemoryMiB, most.MemoryMiB, s.MemoryMiB),
		VCores:    left(c.o.Cores, n.online, f.VCores, most.VCores, s.VCores),
	}
}
