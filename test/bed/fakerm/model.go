package fakerm

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Size is an amount of memory in MiB and of vcores.
type Size struct{ MemoryMiB, VCores int64 }

func (s Size) fits(into Size) bool { return s.MemoryMiB <= into.MemoryMiB && s.VCores <= into.VCores }

func (s Size) times(n int) Size { return Size{s.MemoryMiB * int64(n), s.VCores * int64(n)} }

func (s Size) plus(o Size) Size { return Size{s.MemoryMiB + o.MemoryMiB, s.VCores + o.VCores} }

func (s Size) minus(o Size) Size { return s.plus(o.times(-1)) }

// Ports of NodeManagers.
const (
	idPort  = "45454"
	webPort = "8042"
)

// Options are times and limits. Without a time, what it says happens at once.
type Options struct {
	Boot      time.Duration // from the start of a NodeManager to its registration
	Expiry    time.Duration // from the last word of a NodeManager until it is lost
	Return    time.Duration // from the start of a ResourceManager until NodeManagers register again
	Heartbeat time.Duration // after which a NodeManager knows a new total
	Unsettled time.Duration // for which a node shows zeros after a resize
	Minimum   Size          // the scheduler's minimum allocation
	// Labelled is how long a worker may have more than its floor and not its label, from the moment at which the label
	// was lost or the ResourceManager began to listen again.
	Labelled time.Duration
}

// Demand is containers that somebody would like to have.
type Demand struct {
	Label   string // that the containers ask for; "": the default partition
	Size    Size
	For     time.Duration // that each runs
	PerNode int           // at most, on one node
	All     int           // at most, of the whole demand; what has not landed is pending. 0: it has no end, and none is
}

// Worker is how a NodeManager starts.
type Worker struct {
	Host  string // or host:port
	Size  Size   // in its configuration
	Label string // that it should have. Containers that ask for another one are others'.
	Never bool   // it does not register
}

// Count is what happened so far.
type Count struct {
	Requests  int
	Posts     int // among them, those that change something
	Calls     int // of the administration protocol
	Resizes   int // that changed a total
	Started   int // containers
	Killed    int // containers that the ResourceManager killed, because they did not fit at the deadline
	Misplaced int // containers of others above the floor of a worker that had not its label, see [Options]
}

// Kill is what the ResourceManager killed on a host.
type Kill struct {
	Host       string
	At         time.Time
	Over       time.Time // since when the containers had not fitted
	Total      Size
	Set, Last  time.Time // when it was set, and the total before it
	Containers int
}

// Faults are what is wrong with the ResourceManager.
type Faults struct {
	Silent   bool // it accepts requests and never answers
	Status   int  // of every answer; 0: the right one
	Kerberos bool // it asks for a Kerberos ticket
	Standby  bool
	NoLabels bool // yarn.node-labels.enabled is false
	NoEffect bool // it accepts resizes, and does nothing
	// OtherScheduler means that its scheduler is not the CapacityScheduler, and shows no queues.
	OtherScheduler bool
}

// RM is a ResourceManager. Its methods may be called concurrently.
type RM struct {
	o Options

	mu      sync.Mutex
	started time.Time
	faults  Faults
	labels  map[string]bool   // whether they are exclusive, by name
	hosts   map[string]string // label, by host:0 or host:port
	bared   time.Time         // when labels were lost last, or the ResourceManager could not be told about them
	nodes   map[string]*node  // by id
	demands map[string]Demand
	landed  map[string]int // containers of a demand that landed and were not lost
	count   Count
	kills   []Kill
	silence chan struct{} // closed when the silence ends
}

// node is a NodeManager, as it is and as the ResourceManager shows it.
type node struct {
	worker     Worker
	host, id   string
	rack       string
	health     string
	checked    time.Time   // its health
	state      string      // as the ResourceManager shows it; "": it does not know the node
	up         bool        // its process runs
	fresh      bool        // its process has not registered yet
	boots      time.Time   // when it registers next
	heard      time.Time   // when it was heard from last
	total      Size        // in the ResourceManager
	own        Size        // by its own account
	set, last  time.Time   // when the total was set, and the one before
	told       time.Time   // when it hears of the total
	unsettled  time.Time   // until then the ResourceManager shows zeros
	deadline   time.Time   // of the present total; zero: there is none
	over       time.Time   // since when its containers do not fit; zero: they do
	label      string      // in the ResourceManager
	containers []container // oldest first
}

type container struct {
	demand string
	size   Size
	ends   time.Time
}

// New returns a ResourceManager without nodes. It stands still unless [RM.Run] runs.
func New(o Options) *RM {
	return &RM{
		o: o, started: time.Now(), labels: map[string]bool{}, hosts: map[string]string{}, nodes: map[string]*node{},
		demands: map[string]Demand{}, landed: map[string]int{}, silence: make(chan struct{}),
	}
}

// Run lets time pass until the context ends.
func (r *RM) Run(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			r.Tick(now)
		}
	}
}

// Tick brings everything to a time.
func (r *RM) Tick(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes {
		r.tick(n, now)
	}
}

func (r *RM) tick(n *node, now time.Time) {
	n.containers = slices.DeleteFunc(n.containers, func(c container) bool { return !now.Before(c.ends) })
	switch {
	case !n.up:
		if n.lives() && now.Sub(n.heard) >= r.o.Expiry {
			n.state = "LOST"
		}
		return
	case now.Before(n.boots) || n.worker.Never:
		return
	case n.fresh || !n.lives():
		r.register(n, now)
		return
	}
	n.heard = now
	if !now.Before(n.told) {
		n.own = n.total
	}
	if r.faults.Silent || n.state != "RUNNING" {
		return
	}
	if used := n.used(); used.fits(n.total) {
		n.over = time.Time{}
	} else if n.over.IsZero() {
		n.over = now
	}
	if !n.deadline.IsZero() && !now.Before(n.deadline) {
		r.reduce(n, now)
	}
	for name, d := range r.demands {
		r.land(n, name, d, now)
	}
}

// reduce kills what does not fit at the deadline.
func (r *RM) reduce(n *node, now time.Time) {
	n.deadline = time.Time{}
	k := Kill{Host: n.host, At: now, Over: n.over, Total: n.total, Set: n.set, Last: n.last}
	for ; !n.used().fits(n.total); k.Containers++ {
		r.lose(n.containers[len(n.containers)-1:])
		n.containers = n.containers[:len(n.containers)-1]
	}
	if k.Containers > 0 {
		r.count.Killed += k.Containers
		r.kills = append(r.kills, k)
	}
}

// land lets containers of a demand land on a node while they fit.
func (r *RM) land(n *node, name string, d Demand, now time.Time) {
	if d.Label != n.label && (n.label == "" || d.Label != "" || r.labels[n.label]) {
		return // idle nodes of a label that is not exclusive take containers of the default partition
	}
	for n.running(name) < d.PerNode && (d.All == 0 || r.landed[name] < d.All) && n.used().plus(d.Size).fits(n.total) {
		r.count.Started++
		r.landed[name]++
		n.containers = append(n.containers, container{name, d.Size, now.Add(d.For)})
		if d.Label != n.worker.Label && !n.used().fits(n.worker.Size) && now.Sub(r.bared) > r.o.Labelled {
			r.count.Misplaced++
		}
	}
}

func (n *node) running(demand string) (running int) {
	for _, c := range n.containers {
		if c.demand == demand {
			running++
		}
	}
	return running
}

func (n *node) used() (used Size) {
	for _, c := range n.containers {
		used = used.plus(c.size)
	}
	return used
}

func (n *node) lives() bool { return n.state == "RUNNING" || n.state == "UNHEALTHY" }

// register registers a NodeManager, or refuses it.
func (r *RM) register(n *node, now time.Time) {
	n.fresh = false
	n.heard, n.checked, n.total, n.label, n.deadline = now, now, n.own, r.labelOf(n), time.Time{}
	if n.state = "RUNNING"; !r.o.Minimum.fits(n.total) && len(n.containers) == 0 {
		n.state, n.up = "SHUTDOWN", false
	}
}

func (r *RM) labelOf(n *node) string {
	if label, found := r.hosts[n.id]; found {
		return label
	}
	return r.hosts[n.host+":0"]
}

// idOf returns the id of the NodeManager of a host, or of a host and port.
func idOf(host string) string {
	host = strings.ToLower(host)
	if strings.Contains(host, ":") {
		return host
	}
	return net.JoinHostPort(host, idPort)
}

// Start starts the NodeManager of a host, in place of one that is there.
func (r *RM) Start(w Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := idOf(w.Host)
	host, _, _ := net.SplitHostPort(id)
	n := &node{
		worker: w, host: host, id: id, rack: "/default-rack", up: true, fresh: true, own: w.Size,
		boots: time.Now().Add(r.o.Boot),
	}
	if old := r.nodes[id]; old != nil {
		n.state, n.total, n.label, n.heard = old.state, old.total, old.label, old.heard
	}
	r.nodes[id] = n
}

// Stop ends the NodeManager of a host in order: it says goodbye. It returns how many containers ended with it.
func (r *RM) Stop(host string) int { return r.end(host, true) }

// Die ends the NodeManager of a host without a word. It returns how many containers ended with it.
func (r *RM) Die(host string) int { return r.end(host, false) }

func (r *RM) end(host string, goodbye bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[idOf(host)]
	if n == nil || !n.up {
		return 0
	}
	ended := len(n.containers)
	r.lose(n.containers)
	n.up, n.containers, n.deadline, n.over = false, nil, time.Time{}, time.Time{}
	if goodbye && n.lives() {
		n.state = "SHUTDOWN"
	}
	return ended
}

// Up reports whether the process of a host's NodeManager runs. One that was refused ends by itself.
func (r *RM) Up(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[idOf(host)]
	return n != nil && n.up
}

// Sick sets what the NodeManager of a host says about its health; "": it is well.
func (r *RM) Sick(host, report string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[idOf(host)]
	if n == nil || !n.lives() {
		return
	}
	n.state, n.health, n.checked = "RUNNING", report, time.Now()
	if report != "" {
		n.state = "UNHEALTHY"
	}
}

// Restart kills the ResourceManager with -9 and starts it again.
func (r *RM) Restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = time.Now()
	r.bared = r.started.Add(r.o.Return)
	for _, n := range r.nodes {
		n.state, n.deadline, n.unsettled, n.boots = "", time.Time{}, time.Time{}, r.started.Add(r.o.Return)
		n.total, n.told = n.own, time.Time{}
	}
}

// Break sets what is wrong.
func (r *RM) Break(f Faults) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults, r.bared = f, time.Now()
	close(r.silence)
	r.silence = make(chan struct{})
}

// LoseLabels empties the store of labels.
func (r *RM) LoseLabels() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.labels)
	clear(r.hosts)
	r.bared = time.Now()
	for _, n := range r.nodes {
		n.label = ""
	}
}

// Label gives a host another label, as another administrator would; "": none.
func (r *RM) Label(host, label string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bared = time.Now()
	r.setLabel(strings.ToLower(host)+":0", label)
}

// setLabel sets the label of host:0 or host:port.
func (r *RM) setLabel(id, label string) {
	host, port, _ := net.SplitHostPort(id)
	if port == "0" { // replaces those of all NodeManagers of the host
		maps.DeleteFunc(r.hosts, func(id, _ string) bool { return strings.HasPrefix(id, host+":") })
	}
	set := func(id string) {
		if r.hosts[id] = label; label == "" {
			delete(r.hosts, id)
		}
	}
	set(id)
	for other, n := range r.nodes {
		if n.host != host || port != "0" && other != id {
			continue
		}
		if n.label = label; n.lives() {
			set(other)
		}
	}
}

// Ask sets a demand by its name, in place of the one before.
func (r *RM) Ask(name string, d Demand) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.demands[name], r.landed[name] = d, 0
}

// Counted returns what happened so far.
func (r *RM) Counted() Count {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Kills returns what was killed so far, in its order.
func (r *RM) Kills() []Kill {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.kills)
}

// Node is a NodeManager as it is.
type Node struct {
	State      string // in the ResourceManager; "": it does not know the node
	Label      string
	Total      Size // in the ResourceManager
	Used       Size
	Containers int
}

// Node returns the NodeManager of a host.
func (r *RM) Node(host string) Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[idOf(host)]
	if n == nil {
		return Node{}
	}
	return Node{n.state, n.label, n.total, n.used(), len(n.containers)}
}

// Hosts returns the label of each host in the store of labels.
func (r *RM) Hosts() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]string{}
	for id, label := range r.hosts {
		host, _, _ := net.SplitHostPort(id)
		all[host] = label
	}
	return all
}
