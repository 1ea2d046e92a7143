package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/yarn"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// TestPoolNight runs a pool through a whole night of some minutes: two waves come, jobs of every kind run one after the
// other while the nodes' offers change, and the waves drain for the end of the window, at which all workers are gone.
// Some containers never end by themselves: those, and no others, are killed. What jobs had not finished by the end,
// they finish in the next night.
func TestPoolNight(t *testing.T) { oneNight(t) }

// oneNight runs that night, and returns its figures.
func oneNight(t *testing.T) (l *livePool, figures map[string]float64) {
	t.Helper()
	length, drain := 100*time.Second, 50*time.Second
	if soak {
		length, drain = 30*time.Minute, 3*time.Minute
	}
	y := liveYard(t)
	l = y.live(t, "night", 4, 20*time.Second, 30*time.Minute)
	y.liveManager()
	now := time.Now().UTC()
	window := func(end time.Time) string { // it has whole minutes
		return fmt.Sprintf(`[{"name":"w","start":%q,"end":%q,"timeZone":"UTC","drainBefore":"%.0fs"}]`,
			now.Add(-10*time.Minute).Format("15:04"), end.Format("15:04"), drain.Seconds())
	}
	l.create(", excludeFile: exclude.xml", `, windows: `+window(now.Add(20*time.Minute))+
		`, ramp: {waves: 2, interval: 5s}, drain: {grace: 20s}, identity: {coolDown: 1s}`)
	shown := y.becomes(t, "night", "four active workers",
		func(p *v1alpha1.WorkerPool) bool { return p.Status.Active == 4 })
	explained(t, &shown)
	streaming := l.endless(hadoop.DefaultQueue, "", 4)
	// Once jobs fill their queue, it may have no room for another master before the night ends.
	long := []string{l.endless(hadoop.LabelQueue, hadoop.Label, 1), l.endless(hadoop.LabelQueue, hadoop.Label, 1)}
	for _, id := range long {
		eventually(t, "a job that never ends has its containers", func() (bool, string) {
			a, err := hadoop.AppByID(t.Context(), l.rm, id)
			return err == nil && a.State == hadoop.AppRunning && a.Containers == 2, fmt.Sprintf("%+v, %v", a, err)
		})
	}
	end := time.Now().UTC().Add(length).Truncate(time.Minute).Add(time.Minute)
	if status := y.request(http.MethodPatch, poolPath+"night", `{"spec":{"windows":`+window(end)+`}}`); status != 200 {
		t.Fatalf("setting the end of the window: status %d", status)
	}
	t.Logf("the jobs that never end run, %.0f s before the end", time.Until(end).Seconds())
	jobs := l.submit(func() bool {
		return time.Now().Before(end.Add(-drain)) // clock: users submit jobs until the pool drains
	})
	stop := l.vary()
	time.Sleep(time.Until(end.Add(-drain)))
	stop()
	jobs.add(func() error { // one comes when the pool has begun to drain
		return runJob(t.Context(), l.rm, hadoopBed.Sleep(t.Context(), 2, 1, 2*time.Second,
			"-Dmapreduce.job.queuename="+hadoop.LabelQueue))
	})
	time.Sleep(time.Until(end))
	eventually(t, "all workers have stopped", func() (bool, string) {
		n := y.podsOf("night")
		return n == 0, fmt.Sprint(n)
	})
	late := time.Since(end)
	t.Logf("all workers have stopped %.1f s after the end", late.Seconds())
	y.becomes(t, "night", "the window is closed", func(p *v1alpha1.WorkerPool) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		return c.Reason == "WindowClosed" && c.Status == "True"
	})

	for _, id := range long {
		eventually(t, "a job that never ends has ended with the nodes", func() (bool, string) {
			a, err := hadoop.AppByID(t.Context(), l.rm, id)
			return err == nil && a.State == hadoop.AppFailed, fmt.Sprintf("%+v, %v", a, err)
		})
	}
	if left := jobs.left(); left > 0 {
		t.Logf("%d jobs wait for the next night", left)
		y.request(http.MethodPatch, poolPath+"night", `{"spec":{"windows":null}}`)
	}
	done, failed := jobs.wait()
	l.stayed(streaming)
	t.Logf("%d jobs, %d failed", done, len(failed))
	// At least one of each kind was submitted, and one while the pool drained. They have ended, in the next night if need
	// be.
	if len(failed) > 0 || done < 5 {
		t.Errorf("of %d jobs, of which there should be 5, %d failed:\n%s", done, len(failed), strings.Join(failed, "\n"))
	}
	l.end()
	j := l.unharmed()
	if j.inTime < len(long) {
		t.Errorf("%d containers were killed in their time, of which %d masters never end: the check misses some", j.inTime,
			len(long))
	}
	return l, map[string]float64{
		"failed_jobs": float64(len(failed)), "containers_killed_early": float64(len(j.early)), "jobs": float64(done),
		"containers": float64(j.started), "containers_killed_in_time": float64(j.inTime),
		"workers_gone_after_end_seconds": late.Seconds(),
	}
}

// endless starts an application that never ends, as streaming jobs do: a master and containers, on nodes of a label.
func (l *livePool) endless(queue, label string, containers int) (app string) {
	l.t.Helper()
	a, err := hadoop.Submit(l.t.Context(), l.rm, hadoop.Submission{
		Name: "endless", Queue: queue, Type: "YARN", Label: label, MaxAttempts: 1,
		Command: hadoopBed.ShellMaster("sleep 100000", containers), Master: yarn.Resource{MemoryMiB: 256, VCores: 1},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return a.ID
}

// stayed checks that an application that never ends, in a queue without a default label, runs undisturbed, and ends it.
// The nodes of the pool have room for its containers, and no right to them. They, and the masters of all jobs that did
// not ask for the label themselves, were on the fixed node.
func (l *livePool) stayed(streaming string) {
	l.t.Helper()
	a, err := hadoop.AppByID(l.t.Context(), l.rm, streaming)
	if err != nil || a.State != hadoop.AppRunning || a.Containers != 5 {
		l.t.Errorf("the application that never ends: %+v, %v", a, err)
	}
	ledger, err := hadoopBed.Ledger()
	if err != nil {
		l.t.Fatal(err)
	}
	if on := ledger.On(streaming); len(on) != 1 || on["nm1"] != 5 {
		l.t.Errorf("the application that never ends was on %v, want 5 containers on the fixed node", on)
	}
	if _, err := hadoop.Kill(l.t.Context(), l.rm, streaming); err != nil {
		l.t.Error(err)
	}
	apps, err := hadoop.Apps(l.t.Context(), l.rm)
	if err != nil {
		l.t.Fatal(err)
	}
	masters, elastic := 0, 0
	for _, a := range apps {
		switch {
		case a.Label == hadoop.Label:
		case a.MasterNode != hadoop.NodeID(1):
			l.t.Errorf("the master of %s, %s, was on %s", a.ID, a.Name, a.MasterNode)
		default:
			masters++
		}
		for node, n := range ledger.On(a.ID) {
			if node != "nm1" {
				elastic += n
			}
		}
	}
	l.t.Logf("%d masters were on the fixed node, %d containers on the pool", masters, elastic)
	if masters < 4 || elastic < 10 {
		l.t.Errorf("%d masters and %d containers on the pool show nothing", masters, elastic)
	}
}

// stream is jobs that run one after the other, of several kinds at a time.
type stream struct {
	all sync.WaitGroup

	mu     sync.Mutex
	begun  int
	ended  int
	failed []string
}

// submit runs jobs one after the other for as long as there are to be more, and at least one of each kind.
func (l *livePool) submit(more func() bool) *stream {
	s := &stream{}
	ctx := l.t.Context()
	in := "-Dmapreduce.job.queuename=" + hadoop.LabelQueue
	kinds := [][]func(i int) error{{
		func(int) error { return runJob(ctx, l.rm, hadoopBed.Sleep(ctx, 6, 1, 2*time.Second, in)) },
		func(int) error {
			c, err := hadoopBed.ShellIn(ctx, hadoop.LabelQueue, "sleep 3", 3)
			if err != nil {
				return err
			}
			return runJob(ctx, l.rm, c)
		},
	}, {
		func(i int) error {
			rows, err := hadoopBed.NewRows(fmt.Sprintf("%s-%d", l.name, i), 20_000, 4)
			if err != nil {
				return err
			}
			if err := runJob(ctx, l.rm, hadoopBed.Sort(ctx, rows, 2, in)); err != nil {
				return err
			}
			return rows.Check()
		},
		func(int) error { return l.byREST(ctx) },
	}}
	if soak {
		kinds[1] = append(kinds[1], func(int) error {
			c, err := hadoopBed.Spark(ctx, filepath.Join(built, "yarn/spark"), sums, map[string]string{
				"spark.yarn.queue": hadoop.LabelQueue, "spark.sql.shuffle.partitions": "4",
				"spark.decommission.enabled": "true", "spark.storage.decommission.enabled": "true",
				"spark.storage.decommission.shuffleBlocks.enabled": "true",
				"spark.storage.decommission.fallbackStorage.path":  "file://" + l.t.TempDir() + "/",
			})
			if err != nil {
				return err
			}
			return runJob(ctx, l.rm, c)
		})
	}
	for _, kinds := range kinds {
		s.all.Go(func() {
			for i := 0; i < len(kinds) || more(); i++ {
				s.one(func() error { return kinds[i%len(kinds)](i) })
			}
		})
	}
	return s
}

// sums is a Spark program whose result is checked.
const sums = `
from pyspark.sql import SparkSession, functions as f
spark = SparkSession.builder.appName("sums").getOrCreate()
rows = spark.range(0, 200000, 1, 6).groupBy((f.col("id") % 10).alias("k")).agg(f.sum("id").alias("s")).collect()
assert sum(r.s for r in rows) == 19999900000 and len(rows) == 10
`

// add runs a job beside the others.
func (s *stream) add(job func() error) { s.all.Go(func() { s.one(job) }) }

// one runs a job.
func (s *stream) one(job func() error) {
	s.mu.Lock()
	s.begun++
	s.mu.Unlock()
	err := job()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended++; err != nil {
		s.failed = append(s.failed, err.Error())
	}
}

// left returns how many jobs run.
func (s *stream) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun - s.ended
}

// wait waits until all jobs have ended.
func (s *stream) wait() (done int, failed []string) {
	s.all.Wait()
	return s.ended, s.failed
}

// runJob runs a job's client until the job has ended. If the client failed, the ResourceManager has the last word: when
// a master ends while the ResourceManager is away, MapReduce's client asks the history server, of which there is none.
func runJob(ctx context.Context, rm *yarn.RM, c *exec.Cmd) error {
	j, err := hadoop.StartJob(c)
	if err != nil {
		return err
	}
	failed := j.Wait(ctx)
	if failed == nil || !strings.Contains(j.Output(), historyPort) {
		return failed
	}
	id, err := j.ID(ctx)
	if err != nil {
		return errors.Join(failed, err)
	}
	if app, err := hadoop.AppByID(ctx, rm, id); err != nil || app.FinalStatus != "SUCCEEDED" {
		return errors.Join(failed, err, errors.New(app.Diagnostics))
	}
	return nil
}

// historyPort is where MapReduce's client looks for the history server.
const historyPort = ":10020"

// byREST submits a DistributedShell job without Hadoop's client, and waits until it has ended. While no ResourceManager
// answers, it tries again.
func (l *livePool) byREST(ctx context.Context) error {
	var app hadoop.App
	submitting, cancel := context.WithTimeout(ctx, mostWait)
	defer cancel()
	err := hadoop.Eventually(submitting, func(ctx context.Context) (err error) {
		app, err = hadoop.Submit(ctx, l.rm, hadoop.Submission{
			Name: "by REST", Queue: hadoop.LabelQueue, Type: "YARN", Label: hadoop.Label, MaxAttempts: 2,
			Command: hadoopBed.ShellMaster("sleep 3", 2), Master: yarn.Resource{MemoryMiB: 256, VCores: 1},
		})
		return err
	})
	if err != nil {
		return err
	}
	for id := app.ID; ctx.Err() == nil; {
		time.Sleep(500 * time.Millisecond)
		if app, err = hadoop.AppByID(ctx, l.rm, id); err == nil && app.State.Ended() {
			if app.FinalStatus != "SUCCEEDED" {
				return fmt.Errorf("%s: %s", app.ID, app.Diagnostics)
			}
			return nil
		}
	}
	return ctx.Err()
}

// vary changes the offers of the nodes at random times, until it is told to stop.
func (l *livePool) vary() (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			n := 3 + rand.Int64N(4)
			l.y.offer(l.t, l.nodes[rand.IntN(len(l.nodes))], l.name, cpuMemory(n, n))
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(6 * time.Second)):
			}
		}
	}()
	return func() { cancel(); <-done }
}
