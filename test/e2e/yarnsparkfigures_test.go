//go:build bench

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/yarn"
	labkube "github.com/waterline-io/waterline/lab/kube"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/redisbench"
	"github.com/waterline-io/waterline/lab/sandbox"
	"github.com/waterline-io/waterline/test/bed/cluster"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// The online load of TestYARNSpark comes and goes, in parts of a CPU.
var comesAndGoes = load.Rates{0.2, 0.7, 0.2, 0.7, 0.2}

const (
	sparkSeconds = 150 // in which each mode is measured
	sparkLead    = 30 * time.Second
	// Each query sums up the numbers below queryRows by two digits of their MD5, over a shuffle, in about 2 s of CPU. So
	// many of them count as a job, and the application has more than it can answer in the time.
	queriesPerJob = 16
	mostQueries   = 400
	queryRows     = 2_000_000
)

// sparkPolicy sells more than the smallest pool requests, however busy the machine is. How much CPU the pool's
// containers get does not depend on that: weights and suppression are those of the default. Only minBatch is not. It is
// below what Redis and the node leave, and lets a NodeManager start and Spark go on while something else uses all CPUs.
const sparkPolicy = `apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: spark}
spec:
  mode: Enforce
  cpu: {waterline: 100%, method: Static, ratio: 1000%, minBatch: 25%}
  memory: {waterline: 90%, method: Realtime}
`

// TestYARNSpark measures Redis and Spark on the real node, while the load of Redis comes and goes. Redis runs alone,
// beside Spark in a NodeManager of fixed size without Waterline, and beside Spark in a worker of a pool, in random
// order, with the same requests at the same moments. One Spark application with two executors answers queries all the
// time: its client and its ApplicationMaster, which start on other machines than Redis where there are some, are idle
// most of the time then. Figures of jobs count answered queries, as parts of a job.
func TestYARNSpark(t *testing.T) {
	if *on != "host" {
		t.Skip("the experiment runs on the node itself")
	}
	p := newNight(t)
	if err := p.ShareSpark(filepath.Join(built, "yarn/spark")); err != nil {
		t.Fatal(err)
	}
	node := labNode(t, "spark")
	apps := map[string]*sparkApp{}
	beside := func(mode string, start func() (pod string), end func()) func(context.Context, *sandbox.Sandbox) (
		func() error, error) {
		return func(_ context.Context, s *sandbox.Sandbox) (func() error, error) {
			if err := p.adopt(s, start()); err != nil {
				return nil, err
			}
			app := p.startApp()
			apps[mode] = app
			eventually(t, "Spark answers", func() (bool, string) {
				return app.between(time.Time{}, time.Now()) > 0, app.job.Output()
			})
			return func() error { app.end(); end(); return nil }, nil
		}
	}
	mean := measure.Mean(comesAndGoes)
	var cells []redisbench.Cell
	for _, m := range []redisbench.Mode{
		{Name: redisbench.Alone},
		{Name: redisbench.Plain, Beside: beside(redisbench.Plain, p.plainManager, p.endPlainManager)},
		{Name: redisbench.Waterline, Policy: sparkPolicy, Beside: beside(redisbench.Waterline, p.sparkPool, p.end)},
	} {
		m.Online = true
		cells = append(cells, redisbench.Cell{Mode: m, Lead: sparkLead, Load: mean, Rates: comesAndGoes})
	}
	runs, err := redisbench.Measure(t.Context(), "spark", redisbench.Config{
		Config: sandbox.Config{Helper: filepath.Join(built, "bin/lab")}, Node: node, Seconds: sparkSeconds, Repeats: 1,
		Latest: time.Minute, AnyCPU: true, // no run is repeated, which would take too long
	}, cells)
	if err != nil {
		t.Fatal(err)
	}

	metrics := map[string]float64{"spark_seconds": sparkSeconds}
	failed, lost := 0, 0
	for _, run := range runs.Counted {
		key := "spark_" + run.Mode + "_"
		for figure, value := range runs.Medians(run.Mode, mean) {
			switch figure {
			case "p99_ms", "p50_ms", "late_p99_ms", "errors", "online_cpus", "other_cpus", "load_1m", "steal_percent":
				metrics[key+figure] = measure.Round(value, 3)
			case "cpu_total_percent":
				metrics[key+"cpu_percent"] = measure.Round(value, 1)
			}
		}
		metrics[key+"p99_waits_ratio"] = measure.Median(runs.WaitsRatios(run.Mode, mean))
		app := apps[run.Mode]
		if app == nil {
			continue
		}
		began := run.Began.Add(run.Lead)
		jobs := float64(app.between(began, began.Add(run.Window.Length))) / queriesPerJob
		metrics[key+"jobs_per_hour"] = measure.Round(jobs/run.Window.Length.Hours(), 1)
		metrics[key+"manager_cpus"] = measure.Round(run.Window.CPUsOf(sparkSide), 3)
		lost += app.lost
		if app.ended {
			failed++
		}
	}
	for _, mode := range []string{redisbench.Plain, redisbench.Waterline} {
		key := "spark_" + mode
		metrics[key+"_p99_ratio"] = measure.Round(metrics[key+"_p99_ms"]/metrics["spark_alone_p99_ms"], 3)
		if metrics[key+"_jobs_per_hour"] <= 0 {
			t.Errorf("Spark did nothing in mode %s", mode)
		}
	}
	metrics["spark_failed_jobs"], metrics["spark_containers_killed_early"] = float64(failed), float64(lost)
	if failed+lost > 0 {
		t.Errorf("%d Spark applications ended, and %d executors were lost", failed, lost)
	}
	if slices.ContainsFunc(runs.Counted, func(r redisbench.Run) bool {
		return measure.Quantile(r.Late, 0.99) > measure.Millis(load.LateLimit)
	}) {
		t.Skipf("the machine was too busy to measure: the generator of requests was late by more than %v, p99. These "+
			"figures are not written: %v", load.LateLimit, metrics)
	}
	// By waits, because the CPU is not equally fast in all runs.
	if plain, kept := metrics["spark_plain_p99_waits_ratio"], metrics["spark_waterline_p99_waits_ratio"]; kept > plain {
		t.Errorf("waits for a CPU make p99 %v times as long, and %v times without Waterline", kept, plain)
	}
	c := noCrowd(t)
	c.judge("yarn-spark", metrics, nil)
}

// labNode returns this machine as a node for an experiment. What is made there is deleted when the test ends.
func labNode(t *testing.T, experiment string) *labkube.Host {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err1 := kube.NewClient(config)
	custom, err2 := kube.NewCustomClient(config)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	host, err := labkube.NewHost(t.Context(), labkube.HostConfig{
		Client: client, Custom: custom, Node: cluster.NodeName, Experiment: experiment,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return host
}

// sparkSide is the name, among an experiment's pods, of the NodeManager that runs the executors.
const sparkSide = "nodemanager"

// adopt makes a pod of the Hadoop namespace one whose CPU time the experiment counts.
func (p *night) adopt(s *sandbox.Sandbox, name string) error {
	p.t.Helper()
	pod := object[corev1.Pod](p.t, "pod", name, "-n", hadoopNamespace)
	_, container, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	side := &sandbox.Pod{Name: sparkSide}
	if err := s.Adopt(side, string(pod.UID), container); err != nil {
		return err
	}
	s.AddLoad(side)
	return nil
}

// plainName is the name of the pod of the NodeManager of fixed size.
const plainName = "plain"

// plainPod is that pod. It requests what Redis and the node's own pods leave of the node.
func plainPod() hadoop.NodePod {
	return hadoop.NodePod{Name: plainName, MemoryMiB: 1536, VCores: 2, Resources: "requests: {cpu: 400m, memory: 2Gi}"}
}

// plainManager starts a NodeManager of fixed size, as without co-location, and returns the name of its pod.
func (p *night) plainManager() string {
	p.t.Helper()
	label := map[string]string{p.NodeHost(plainName): hadoop.Label}
	if err := p.rm.SetNodeLabels(p.t.Context(), label); err != nil {
		p.t.Fatal(err)
	}
	if out, err := tryApply(p.NodeManifest(plainPod())); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	p.yarnPods.until(plainName, yarn.NodeRunning)
	return plainName
}

func (p *night) endPlainManager() {
	p.t.Helper()
	kubectl(p.t, "delete", "pod", plainName, "-n", hadoopNamespace, ready)
	if err := p.rm.SetNodeLabels(p.t.Context(), map[string]string{p.NodeHost(plainName): ""}); err != nil {
		p.t.Error(err)
	}
}

// sparkPool makes a pool whose worker has room for two executors at its floor, and grows to all CPUs. It returns the
// name of the worker's pod.
func (p *night) sparkPool() string {
	p.t.Helper()
	p.pool(`
  size: {floor: {cpu: 200m, memory: 1536Mi}, ceiling: {cpu: "2", memory: 1536Mi}, step: {cpu: 200m, memory: 256Mi},
    follow: {window: 0s}}
  identity: {coolDown: 1s}`)
	p.active(1)
	return "night-" + p.node.name
}

// sparkApp is a Spark application that answers queries until it is killed.
type sparkApp struct {
	p        *night
	cancel   context.CancelFunc
	finished chan struct{}
	job      *hadoop.Job

	mu      sync.Mutex
	answers []time.Time // when right answers came
	ended   bool        // by itself
	lost    int         // executors, before the last answer
}

// query and rightAnswer are a query and its row.
var (
	query = fmt.Sprintf("select sum(s), count(*) from (select substr(md5(string(id)), 1, 2) k, sum(id) s "+
		"from range(0, %d, 1, 4) group by k);", queryRows)
	rightAnswer = fmt.Sprintf("%d\t256\n", queryRows*(queryRows-1)/2)
)

// startApp submits the application.
func (p *night) startApp() *sparkApp {
	p.t.Helper()
	address := object[corev1.Pod](p.t, "pod", "client", "-n", hadoopNamespace).Status.PodIP
	job, err := hadoop.StartJob(p.SparkSQL(context.Background(), address, strings.Repeat(query, mostQueries),
		map[string]string{
			"spark.sql.shuffle.partitions":            "4",
			"spark.yarn.executor.nodeLabelExpression": hadoop.Label,
		}))
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &sparkApp{p: p, cancel: cancel, finished: make(chan struct{}), job: job}
	go func() {
		defer close(a.finished)
		a.watch(ctx)
	}()
	p.t.Cleanup(a.end)
	return a
}

// watch notes when answers come, and kills the application when the context ends.
func (a *sparkApp) watch(ctx context.Context) {
	for right := 0; ctx.Err() == nil; {
		select {
		case <-a.job.Done():
			a.ended = true
			a.p.t.Errorf("the Spark application ended after %d answers: %v: %s", right, a.job.Wait(ctx), a.job.Output())
			return
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
		now := strings.Count(a.job.Output(), rightAnswer)
		a.mu.Lock()
		for ; right < now; right++ {
			a.answers = append(a.answers, time.Now())
		}
		a.mu.Unlock()
	}
	out := a.job.Output()
	a.lost = strings.Count(out[:max(strings.LastIndex(out, rightAnswer), 0)], "Lost executor")
	a.kill()
}

// kill kills the application.
func (a *sparkApp) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), mostWait)
	defer cancel()
	for {
		apps, err := hadoop.Apps(ctx, a.p.rm, hadoop.AppSubmitted, hadoop.AppAccepted, hadoop.AppRunning)
		for _, app := range apps {
			_, killErr := hadoop.Kill(ctx, a.p.rm, app.ID)
			err = errors.Join(err, killErr)
		}
		select {
		case <-a.job.Done():
			return
		case <-time.After(time.Second):
		case <-ctx.Done():
			a.p.t.Errorf("the Spark application does not end: %v: %s", err, a.job.Output())
			return
		}
	}
}

// end kills the application.
func (a *sparkApp) end() {
	a.cancel()
	<-a.finished
}

// between returns how many right answers came in a time.
func (a *sparkApp) between(from, to time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := slices.DeleteFunc(slices.Clone(a.answers), func(at time.Time) bool { return at.Before(from) || !at.Before(to) })
	return len(in)
}
