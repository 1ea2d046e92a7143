// Package guard is the shell of waterline-guard, which runs beside a NodeManager in its pod. It reads what the worker
// may use, the NodeManager's containers, their processes and the cgroup that they share, has decide/node/shed decide,
// and delivers the signals.
//
// What a process says of itself is its tenant's to write. So a process belongs to a container only if it names the
// container in its environment, runs as the container's user, and the NodeManager lists that container or listed it
// before. A signal reaches a process by a pidfd, after all of that was checked again. A tenant who forges the id of a
// container so only exposes processes of their own.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/yarn"
)

// Paces of the loop.
const (
	every = time.Second
	// idle is the pace while nothing is over and memory is far from its limit.
	idle = 5 * time.Second
	// listEvery is the pace of the NodeManager's list while nothing is over. A NodeManager lists a container that has
	// ended until its application was told, for some seconds.
	listEvery = 5 * time.Second
	// scanEvery is the pace of looks at processes then. They are needed for the time in which the NodeManager might be
	// silent.
	scanEvery = 30 * time.Second
	// listWithin bounds one request to the NodeManager.
	listWithin = 5 * time.Second
)

// busyPart is the part of the memory limit, in percent, from which on the loop does not slow down.
const busyPart = 50

// Options are those of a guard.
type Options struct {
	Settings shed.Settings
	// Allowance is the path of the file with the manager's annotation waterline.io/pool-allowance.
	Allowance string
	// NodeManager is the base address of its web services, such as http://127.0.0.1:8042.
	NodeManager string
	// User is who the guard is to the NodeManager and the ResourceManager where Hadoop's authentication is simple.
	User string
	// PID is the process of the NodeManager. 0: it is found, as the oldest process that a container runtime started with
	// the NodeManager's main class.
	PID int
	// Cgroup is the directory of the NodeManager's cgroup. Empty: what the NodeManager sees at /sys/fs/cgroup. On v1 it
	// holds one directory for each controller.
	Cgroup string
	// ResourceManagers are the base addresses of their web services. The active one is asked to have containers ended that
	// the guard may not signal. Empty: they stay.
	ResourceManagers []string
	// OtherUsers means that containers run as other users than the NodeManager, as with the Linux container executor.
	OtherUsers bool
	// Proc is the mount point of procfs; /proc if empty.
	Proc string
	// Message is the path of the container's termination message. A file that is not there is not made.
	Message string
	// Out gets one line of JSON for each [guardlog.Record].
	Out io.Writer
	Log *slog.Logger
}

// Guard sheds containers of one NodeManager.
type Guard struct {
	o     Options
	nm    *yarn.NM
	rm    *yarn.RM // nil: it is not asked
	asked chan asked
	state shed.State

	allowance allowanceFile
	cgroup    meter
	processes scanner
	listing   listing
	failed    []shed.Outcome       // actions that reached nobody; a round tells of one
	refused   map[string]time.Time // by container: when the kernel last refused a signal
	missed    string               // the container that had the last signal, if no process got it
	hits      map[string][]hit     // by container: the signals that it got
	records   records
	message   message
	logged    map[string]string // by what was done: the error in the log
	last      shed.Decision
	listAsked time.Time
	leavers   struct {
		since time.Time
		count int // of records since then
	}
}

// hit is a signal that a container got.
type hit struct {
	at     time.Time
	signal shed.Signal
	remote bool   // the ResourceManager was asked for it
	reason string // its code
}

// New returns a guard. It does nothing before [Guard.Run].
func New(o Options) (*Guard, error) {
	o.Proc = cmp.Or(o.Proc, "/proc")
	switch s := o.Settings; {
	case s.KillsPerMinute < 0:
		return nil, fmt.Errorf("%d kills a minute: write 0 or more", s.KillsPerMinute)
	case s.HardPercent < 50 || s.HardPercent > 100:
		return nil, fmt.Errorf("a hard mark of %d %% of the memory limit: write 50 to 100", s.HardPercent)
	}
	// A NodeManager has at most a few hundred containers, of 1 kB each.
	nm, err := yarn.NewSimpleNM(yarn.HTTPOptions{Auth: yarn.Auth{User: o.User}, Timeout: listWithin, MaxAnswer: 4 << 20})
	if err != nil {
		return nil, err
	}
	var rm *yarn.RM
	if len(o.ResourceManagers) > 0 {
		options := yarn.HTTPOptions{Auth: yarn.Auth{User: o.User}, Timeout: listWithin, MaxAnswer: 64 << 10}
		if rm, err = yarn.NewSimpleRM(o.ResourceManagers, options); err != nil {
			return nil, err
		}
	}
	return &Guard{
		o: o, nm: nm, rm: rm, asked: make(chan asked),
		allowance: allowanceFile{path: o.Allowance}, cgroup: meter{dir: o.Cgroup},
		processes: scanner{proc: o.Proc, remote: rm != nil},
		listing:   listing{known: map[string]*listed{}}, refused: map[string]time.Time{},
		hits: map[string][]hit{}, records: records{out: o.Out}, message: message{path: o.Message},
		logged: map[string]string{},
	}, nil
}

// Run sheds until the context ends.
func (g *Guard) Run(ctx context.Context) {
	lists := make(chan answer, 1)
	asking := false
	for {
		select {
		case a := <-lists:
			asking = false
			g.take(ctx, a)
		default:
		}
		select {
		case a := <-g.asked:
			g.heard(ctx, a)
		default:
		}
		now := time.Now()
		if !asking && (g.last.Closely || now.Sub(g.listAsked) >= listEvery) {
			// The NodeManager answers slowly while it is busy, and the guard must not wait for it at the hard mark.
			asking, g.listAsked = true, now
			go func() { lists <- g.ask(ctx) }()
		}
		pause := g.round(ctx, now)
		select {
		case <-ctx.Done():
			g.end(time.Now())
			return
		case <-time.After(pause):
		}
	}
}

// end records the containers that ended with their worker. The kubelet ends a sidecar after all other containers of its
// pod, so a NodeManager that still runs means that only the guard ends.
func (g *Guard) end(now time.Time) {
	if _ = g.processes.find(now, g.o.PID); g.processes.manager.pid != 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(g.listing.known)) {
		if l := g.listing.known[id]; l.Known && l.Holds {
			g.write(context.Background(), guardlog.Record{
				At: now, Container: id, User: l.user, Master: l.Master, Left: true, WithWorker: true, Tried: g.tried(id),
			})
		}
	}
}

// round reads, decides and acts once. It returns the time until the next round.
func (g *Guard) round(ctx context.Context, now time.Time) time.Duration {
	in := shed.Input{Now: now, Settings: g.o.Settings}
	if len(g.failed) > 0 {
		in.Outcome, g.failed = g.failed[0], g.failed[1:]
	}
	var changed bool
	var err error
	in.Allowance, changed, err = g.allowance.read()
	g.logOnce(ctx, "reading the allowance", err)
	g.logOnce(ctx, "finding the NodeManager", g.processes.find(now, g.o.PID))
	if g.cgroup.dir == "" || g.cgroup.found {
		g.cgroup.follow(g.o.Proc, g.processes.manager)
	}
	in.Memory, in.CPU, err = g.cgroup.read(now)
	g.logOnce(ctx, "reading the cgroup of the NodeManager", err)
	if g.last.Closely || in.Memory.Near(in.Settings) || len(g.hits) > 0 || now.Sub(g.processes.at) >= scanEvery {
		g.logOnce(ctx, "reading processes", g.processes.scan(now, g.o.OtherUsers))
	}
	in.Listed, in.Scanned = g.listing.at, g.processes.at
	in.Container = g.containers(now)
	g.last, g.state = shed.Decide(&in, g.state)
	if g.last.Signal != shed.None {
		g.deliver(ctx, now)
	}
	g.recordEnds(now)
	g.records.show(view{
		At: now, Allowance: in.Allowance, Memory: in.Memory, CPU: in.CPU, Listed: in.Listed, Scanned: in.Scanned,
		NodeManager: g.processes.manager.pid, Containers: in.Container, Waits: waitsFor(g.last), Settings: g.o.Settings,
		Errors: g.troubles(),
	})
	m := &in.Memory
	filling := m.Limit > 0 && m.Used-m.Reclaimable >= m.Limit/100*busyPart
	if g.last.Closely || changed || len(g.hits) > 0 || filling {
		return every
	}
	return idle
}

func waitsFor(d shed.Decision) string {
	if d.Signal != shed.None || d.Reason.Code == "" {
		return ""
	}
	return d.Reason.String()
}

// containers returns what is known of the containers: those that the NodeManager lists, those that it listed and that
// left processes behind, and, while it is silent, those that processes name.
func (g *Guard) containers(now time.Time) []shed.Container {
	var all []shed.Container
	claims := map[string]string{} // by attempt: the first container that is a master by its environment
	for id, l := range g.listing.known {
		p := g.processes.of[id]
		if !l.gone.IsZero() && p == nil && (g.processes.at.After(g.listing.at) || now.Sub(l.gone) > goneFor) {
			delete(g.listing.known, id)
			continue
		}
		if p != nil {
			l.started, l.claims = p.started, l.claims || p.master
		}
		if l.claims && (claims[attempt(id)] == "" || id < claims[attempt(id)]) {
			claims[attempt(id)] = id
		}
	}
	for id, l := range g.listing.known {
		c := l.Container
		c.Started, c.Refused = l.started, g.refused[id]
		c.Master = c.Master || claims[attempt(id)] == id
		if p := g.processes.of[id]; p != nil {
			c.Processes, c.Decommissions = len(p.members), p.decommissions
		}
		c.Remote = c.Processes == 0 && c.Holds && g.processes.hidden && g.rm != nil &&
			now.Sub(g.listing.at) <= silentAfter
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b shed.Container) int { return strings.Compare(a.ID, b.ID) })
	if now.Sub(g.listing.at) > silentAfter {
		for id, p := range g.processes.of {
			if g.listing.known[id] == nil && guardlog.IsContainer(id) {
				all = append(all, shed.Container{
					ID: id, Master: true, Started: p.started, Processes: len(p.members), Refused: g.refused[id],
				})
			}
		}
	}
	return all
}

// deliver sends the signal that was decided to the processes of the container.
func (g *Guard) deliver(ctx context.Context, now time.Time) {
	d := g.last
	r := guardlog.Record{
		At: now, Container: d.Container, Signal: string(d.Signal), Reason: string(d.Reason.Code),
		Why: d.Reason.Details(), Operands: d.Reason.Operands, Tried: g.tried(d.Container),
	}
	if l := g.listing.known[d.Container]; l != nil {
		r.User, r.Master = l.user, l.Master
	}
	n, err := g.processes.signal(d.Container, d.Signal)
	if r.Processes = n; n == 0 && (err != nil || g.processes.of[d.Container] == nil) {
		r.Asked = g.askRM(ctx, d.Container, d.Signal, now)
	}
	if n > 0 || r.Asked { // delivered, unless the ResourceManager refuses
		g.missed = ""
		g.hits[d.Container] = append(g.hits[d.Container], hit{now, d.Signal, r.Asked, r.Reason})
		delete(g.refused, d.Container)
	} else {
		g.failed = append(g.failed, shed.Outcome{Container: d.Container})
		// The processes that a scan found may have ended. A chain of short ones does that again and again, and then others
		// have their turn.
		if err != nil || g.missed == d.Container {
			g.refused[d.Container] = now
		}
		g.missed = d.Container
	}
	if err != nil {
		r.Error = err.Error()
	}
	if !r.Asked {
		g.logOnce(ctx, "signalling "+d.Container, err)
	}
	g.write(ctx, r)
}

func (g *Guard) tried(id string) []guardlog.Try {
	var all []guardlog.Try
	for _, h := range g.hits[id] {
		all = append(all, guardlog.Try{At: h.at, Signal: string(h.signal), Reason: h.reason})
	}
	return all
}

// recordEnds records the end of containers that got a signal.
func (g *Guard) recordEnds(now time.Time) {
	for id := range g.refused {
		if g.listing.known[id] == nil && g.processes.of[id] == nil {
			delete(g.refused, id)
			delete(g.logged, "signalling "+id)
		}
	}
	for id, hits := range g.hits {
		last := hits[len(hits)-1]
		if g.processes.of[id] != nil || !g.processes.at.After(last.at) {
			continue
		}
		r := guardlog.Record{At: now, Container: id, Left: true, Tried: g.tried(id)}
		if l := g.listing.known[id]; l != nil {
			if last.remote && !l.Ended {
				continue // the NodeManager alone sees its processes
			}
			r.User, r.Master, r.Exit, l.told = l.user, l.Master, l.exit, true
		}
		delete(g.hits, id)
		g.logOnce(context.Background(), "signalling "+id, nil)
		g.write(context.Background(), r)
	}
}

func (g *Guard) write(ctx context.Context, r guardlog.Record) {
	r.Application = guardlog.Application(r.Container)
	g.logOnce(ctx, "writing a record", g.records.add(r))
	g.logOnce(ctx, "writing the termination message", g.message.add(r))
}

// logOnce logs an error. The same error is logged once until the next success.
func (g *Guard) logOnce(ctx context.Context, doing string, err error) {
	switch {
	case err == nil:
		delete(g.logged, doing)
	case ctx.Err() == nil && g.logged[doing] != err.Error():
		g.logged[doing] = err.Error()
		g.o.Log.Warn(doing, "err", err)
	}
}

func (g *Guard) troubles() []string {
	var all []string
	for doing, err := range g.logged {
		all = append(all, doing+": "+err)
	}
	return all
}

// attempt is the part of a container's id that its application's attempt has too.
func attempt(id string) string { return id[:max(strings.LastIndexByte(id, '_'), 0)] }

// master reports whether a container is the master of its application by its id: the first of its attempt. A container
// that was reserved for it and not used makes it a later one. Then its environment says so, of one container an
// attempt, because the environment is the tenant's to write.
func master(id string) bool {
	i := strings.LastIndexByte(id, '_')
	return strings.TrimLeft(id[i+1:], "0") == "1"
}

// errNoManager is the error while there is no NodeManager.
var errNoManager = errors.New("no process is a NodeManager; does the pod share its process namespace?")
