package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// TestPoolPressure takes slack away from the nodes of a pool in steps and gives it back, while jobs of every kind run.
// Workers follow their nodes, with a guard beside each. Guards and the manager are killed too, and in full form the
// ResourceManager. No job fails, and containers get below each lower allowance.
func TestPoolPressure(t *testing.T) {
	p, _, _ := underPressure(t)
	p.end()
}

// underPressure runs that pool. It returns what became of it, and the part of a pool's spec beside yarn.
func underPressure(t *testing.T) (p *pressure, small *pressed, more string) {
	t.Helper()
	length, faults := 40*time.Second, 2
	if soak {
		length, faults = 30*time.Minute, 200
	}
	y := liveYard(t)
	l := y.live(t, "press", 3, pressGrace, 2*time.Minute)
	l.live.guards = t.TempDir()
	p = &pressure{livePool: l, t: t, length: length}
	p.control = y.liveManager(p.managerArgs()...)
	more = fmt.Sprintf(", drain: {grace: %.0fs, timeout: 2m}, identity: {coolDown: 1s}", pressGrace.Seconds())
	l.create("", more)
	y.active(t, "press", 3)
	l.grown(full)

	p.guarded()
	small = p.part(p.shrink, faults)
	p.guarded()
	t.Logf("shrinking with guards: %s", small)
	if len(small.failed) > 0 || small.jobs < 4 {
		t.Errorf("of %d jobs, of which there should be 4, %d failed:\n%s", small.jobs, len(small.failed),
			strings.Join(small.failed, "\n"))
	}
	if len(small.took) == 0 {
		t.Error("no worker used more than it was to have: the steps were too small to show anything")
	}
	return p, small, more
}

// pressGrace is what containers get when their worker shrinks.
const pressGrace = 5 * time.Second

// pressure is a pool whose nodes lose their slack again and again.
type pressure struct {
	*livePool
	t       *testing.T
	length  time.Duration // of each part, at least
	control *process      // the manager

	evicted int // pods, in this part

	mu sync.Mutex // of what is watched
}

func (p *pressure) managerArgs() []string { return []string{"--identity=press", "--guard-image=guard"} }

// pressed is what a part came to.
type pressed struct {
	began     time.Time
	jobs      int
	failed    []string
	coreHours float64   // of containers
	killed    int       // containers, by whomever, that did not ask for it
	lost      float64   // core-hours that they had run
	took      []float64 // seconds for which a worker used more than it was to have
	late      []float64 // the part of them after the deadline
	signals   int       // of guards
	evicted   int       // pods
	restarts  int       // of guards, the manager and the ResourceManager
}

func (s *pressed) killsPerCoreHour() float64 { return float64(s.killed) / max(s.coreHours, 1e-9) }
func (s *pressed) lostPercent() float64      { return 100 * s.lost / max(s.coreHours, 1e-9) }

func (s *pressed) String() string {
	return fmt.Sprintf("%d jobs, %d failed; %d containers killed in %.3f core-hours (%.0f a core-hour), %.1f %% of the "+
		"work lost; %d times over an allowance, below it after %.1f s (p50), %.1f s (p99), %.1f s after the deadline (p99); "+
		"%d signals of guards, %d pods evicted, %d restarts",
		s.jobs, len(s.failed), s.killed, s.coreHours, s.killsPerCoreHour(),
		s.lostPercent(), len(s.took), measure.Quantile(s.took, 0.5), measure.Quantile(s.took, 0.99),
		measure.Quantile(s.late, 0.99), s.signals, s.evicted, s.restarts)
}

// part runs jobs for its length while it takes slack away by a function, and kills something at random times.
func (p *pressure) part(take func(node int, left int64), faults int) (s *pressed) {
	p.t.Helper()
	s, p.evicted = &pressed{began: time.Now()}, 0
	signals := p.signals()
	ctx, cancel := context.WithCancel(p.t.Context())
	var all sync.WaitGroup
	all.Go(func() { p.watch(ctx, s) })
	all.Go(func() {
		pause := p.length / time.Duration(faults+1)
		for i := 0; i < faults && sandbox.Sleep(ctx, pause) == nil; i++ {
			p.harmOne(i)
			p.mu.Lock()
			s.restarts++
			p.mu.Unlock()
		}
	})
	// The part lasts until a worker has used more than is left, which depends on the machine, and all is restarted. A pod
	// that is evicted is never seen to use more. A pool whose workers do not change ends after many steps all the same.
	const mostSteps = 100
	var steps atomic.Int64
	more := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		shown := faults == 0 || len(s.took) > 0 && s.restarts >= faults
		lasts := time.Since(s.began) < p.length // clock: users submit jobs for the length of a part
		return lasts || !shown && steps.Load() < mostSteps
	}
	jobs := p.submit(more)
	jobs.all.Go(func() { // containers that fill the nodes and outlast a deadline
		for more() {
			jobs.one(func() error {
				return runJob(p.t.Context(), p.rm, hadoopBed.Sleep(p.t.Context(), 16, 1, 12*time.Second,
					"-Dmapreduce.job.queuename="+hadoop.LabelQueue))
			})
		}
	})
	r := rand.New(rand.NewPCG(7, 11)) // both parts have the same steps
	for ; more(); steps.Add(1) {
		node, left, lasts := r.IntN(len(p.nodes)), 1+r.Int64N(2), 5*time.Second+time.Duration(r.Int64N(5000))*time.Millisecond
		take(node, left)
		if sandbox.Sleep(ctx, lasts) != nil {
			break
		}
		p.y.offer(p.t, p.nodes[node], p.name, cpuMemory(6, 6))
		time.Sleep(time.Second)
	}
	s.jobs, s.failed = jobs.wait()
	cancel()
	all.Wait()
	ledger, err := hadoopBed.Ledger()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, k := range ledger.Killed {
		if strings.HasPrefix(k.Node, p.name+"-") && k.At.After(s.began) { // clock: earlier kills are not of this part
			s.killed++
			s.lost += max(k.At.Sub(k.Began), 0).Hours()
		}
	}
	slices.Sort(s.took)
	slices.Sort(s.late)
	s.signals, s.evicted = p.signals()-signals, p.evicted
	return s
}

// shrink lowers what a node offers, and leaves the rest to the pool.
func (p *pressure) shrink(node int, left int64) {
	p.y.offer(p.t, p.nodes[node], p.name, cpuMemory(left, left))
}

// used returns what the containers of a node's worker use, by the account of its NodeManager.
func (p *pressure) used(ctx context.Context, node int) (used pool.Size, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	all, err := p.nm.Containers(ctx, "http://"+net.JoinHostPort(p.host(node), "8042"))
	for i := range all {
		if c := &all[i]; !c.Ended() && c.State != "NEW" && c.State != "LOCALIZING" && c.State != "SCHEDULED" {
			used.MemoryMiB += c.Size.MemoryMiB
			used.VCores += c.Size.VCores
		}
	}
	return used, err
}

// watch adds up what containers use, and the times in which a worker uses more than it is to have.
func (p *pressure) watch(ctx context.Context, s *pressed) {
	var all sync.WaitGroup
	for node := range p.nodes {
		all.Go(func() {
			var over, until, last time.Time
			for sandbox.Sleep(ctx, 100*time.Millisecond) == nil {
				used, err := p.used(ctx, node)
				now := time.Now()
				if err != nil {
					over, last = time.Time{}, time.Time{}
					continue
				}
				a, known := p.live.allowance(p.name + "-" + p.nodes[node])
				p.mu.Lock()
				if !last.IsZero() {
					s.coreHours += float64(used.VCores) * now.Sub(last).Hours()
				}
				last = now
				switch fits := !known || used.MemoryMiB <= a.MemoryMiB && used.VCores <= a.VCores; {
				case !fits && over.IsZero():
					over, until = now, a.Until
				case !fits:
					if !a.Until.IsZero() && (until.IsZero() || a.Until.Before(until)) {
						until = a.Until
					}
				case !over.IsZero():
					late := 0.0
					if !until.IsZero() {
						late = max(now.Sub(until).Seconds(), 0)
					}
					s.took, s.late = append(s.took, now.Sub(over).Seconds()), append(s.late, late)
					over = time.Time{}
				}
				p.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// guarded waits until a guard runs beside each worker.
func (p *pressure) guarded() {
	p.t.Helper()
	eventually(p.t, "a guard runs beside each worker", func() (bool, string) {
		n := p.live.guardsRun()
		return n == len(p.nodes), fmt.Sprintf("%d of %d", n, len(p.nodes))
	})
}

// harmOne kills the manager, the guards or the ResourceManager, which come back.
func (p *pressure) harmOne(i int) {
	switch i % 3 {
	case 0:
		p.y.note(p.yarnPool, "the guards are killed")
		p.live.restartGuards(p.t)
	case 1:
		p.y.note(p.yarnPool, "the manager is killed")
		p.control.stop(os.Kill)
		p.control = p.y.liveManager(p.managerArgs()...)
	default:
		p.y.note(p.yarnPool, "the ResourceManager is killed")
		p.killRM(1)
	}
}

// signals returns how many signals the guards of the pool sent so far.
func (p *pressure) signals() (n int) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.live.guards, "*.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			p.t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			var r guardlog.Record
			if json.Unmarshal([]byte(line), &r) == nil && r.Signal != "" {
				n++
			}
		}
	}
	return n
}

// allowance returns what the pod of a worker says that its containers may use.
func (r *liveRuntime) allowance(pod string) (a shed.Allowance, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.workers {
		if w.name == pod && w.allowed != "" {
			err := json.Unmarshal([]byte(w.allowed), &a)
			return a, err == nil
		}
	}
	return a, false
}

// attach starts the guard of a worker in its namespaces, as a sidecar of its pod. The lock is held.
func (r *liveRuntime) attach(w *liveWorker, host string) error {
	const begin = `
until p=$(cut -d' ' -f1 /proc/1/task/1/children) && grep -qa nodemanager.NodeManager /proc/$p/cmdline; do
  sleep 0.1
done 2>/dev/null
exec "$0" --pid=$p "$@"`
	file := filepath.Join(r.guards, w.name)
	w.guard = hadoop.NewDaemon(w.name+"-guard", file+".log", w.daemon.Entering("bash", "-c", begin,
		filepath.Join(built, "bin/waterline-guard"), "--allowance="+file, "--cgroup="+r.guards, "--listen=", "--user=root",
		"--nodemanager=http://"+net.JoinHostPort(host, "8042")))
	return w.guard.Start()
}

// show writes the allowance of a pod where its guard reads it. The lock is held.
func (r *liveRuntime) show(w *liveWorker, allowed string) {
	if r.guards == "" || allowed == w.allowed {
		return
	}
	w.allowed = allowed
	file := filepath.Join(r.guards, w.name)
	err := os.WriteFile(file+".next", []byte(allowed), 0o644)
	if err == nil {
		err = os.Rename(file+".next", file)
	}
	if err != nil {
		r.pool.complaints = append(r.pool.complaints, err.Error()) // the yard's lock is held too
	}
}

// guardsRun returns how many guards run. A guard is the child of the nsenter that started it.
func (r *liveRuntime) guardsRun() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.workers {
		if w.guard == nil {
			continue
		}
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", w.guard.PID()))
		exe, err := os.Readlink(fmt.Sprintf("/proc/%s/exe", strings.TrimSpace(string(children))))
		if err == nil && filepath.Base(exe) == "waterline-guard" {
			n++
		}
	}
	return n
}

// restartGuards ends the guards as kill -9 does, and starts them again.
func (r *liveRuntime) restartGuards(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.workers {
		if w.guard == nil || w.stopping != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		// nsenter forks to enter a process namespace: the guard is its child, in its group.
		err := errors.Join(syscall.Kill(-w.guard.PID(), syscall.SIGKILL), w.guard.Kill(ctx))
		cancel()
		if err == nil {
			err = w.guard.Start()
		}
		if err != nil {
			t.Error(err)
		}
	}
}
