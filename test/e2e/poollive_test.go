package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/yarn"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// liveRuntime runs real NodeManagers, which register at the real ResourceManager of this process's namespaces. It does
// what a kubelet and a container runtime do: it puts the pod's configuration together, runs its hook, keeps its times,
// and starts a container again that ended.
type liveRuntime struct {
	y      *yard
	pool   *yarnPool
	guards string // directory for the files and logs of guards; empty: there are none

	mu      sync.Mutex
	workers map[types.UID]*liveWorker
	ports   int
}

// liveWorker is the container of a pod.
type liveWorker struct {
	name     string
	daemon   *hadoop.Daemon
	starts   int
	ended    time.Time     // when its end was seen; zero: it runs
	stopping chan struct{} // closed when the pod has stopped; nil: it is not to stop
	guard    *hadoop.Daemon
	allowed  string // what its pod says that its containers may use
}

// Times of a container that is started again: at once the first time, later after a while.
const (
	firstRestart  = time.Second
	laterRestarts = 10 * time.Second
)

func (r *liveRuntime) worker(k *yarnPod) *liveWorker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers[k.pod.UID]
}

// start implements [podRuntime].
func (r *liveRuntime) start(ctx context.Context, k *yarnPod) (ip string, err error) {
	addresses, err := net.LookupHost(k.host)
	if err != nil {
		return "", fmt.Errorf("a worker's host has no name; the test names the hosts of its nodes: %w", err)
	}
	w := r.worker(k)
	if w == nil {
		conf, err := r.configuration(ctx, k.pod)
		if err != nil {
			return "", err
		}
		r.mu.Lock()
		r.ports++
		port := 20000 + r.ports
		r.mu.Unlock()
		w = &liveWorker{name: k.pod.Name}
		o := hadoop.WorkerOptions{Name: w.name, Host: k.host, Conf: conf, Shuffle: port}
		for _, e := range k.pod.Spec.Containers[0].Env {
			o.Env = append(o.Env, e.Name+"="+e.Value)
		}
		if w.daemon, err = hadoopBed.Worker(o); err != nil {
			return "", err
		}
		r.mu.Lock()
		r.workers[k.pod.UID] = w
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w.starts++
	w.ended = time.Time{}
	if err := w.daemon.Start(); err != nil || r.guards == "" {
		return addresses[0], err
	}
	return addresses[0], r.attach(w, k.host)
}

// configuration returns the files of the pod's projected volume.
func (r *liveRuntime) configuration(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	files := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			var config corev1.ConfigMap
			err := r.y.core.Get().Namespace(pod.Namespace).Resource("configmaps").Name(source.ConfigMap.Name).Do(ctx).
				Into(&config)
			if err != nil {
				return nil, err
			}
			for key, content := range config.Data {
				if len(source.ConfigMap.Items) == 0 {
					files[key] = content
				}
			}
			for _, item := range source.ConfigMap.Items {
				files[item.Path] = config.Data[item.Key]
			}
		}
	}
	return files, nil
}

// up implements [podRuntime].
func (r *liveRuntime) up(k *yarnPod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.workers[k.pod.UID]
	if w == nil {
		return false
	}
	r.show(w, k.pod.Annotations[v1alpha1.AnnotationPoolAllowance])
	select {
	case <-w.daemon.Done():
	default:
		return true
	}
	pause := firstRestart
	if w.starts > 1 {
		pause = laterRestarts
	}
	if w.ended.IsZero() {
		w.ended = time.Now()
	}
	return time.Since(w.ended) < pause // clock: a kubelet pauses before it starts a container again
}

// stops implements [podRuntime].
func (r *liveRuntime) stops(k *yarnPod, _ time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.workers[k.pod.UID]
	if w == nil {
		return true
	}
	if !r.y.ended(&w.stopping, func() { r.terminate(k, w) }) {
		return false
	}
	delete(r.workers, k.pod.UID)
	return true
}

// ended begins to terminate a worker, the first time, and reports whether that is done.
func (y *yard) ended(stopping *chan struct{}, terminate func()) bool {
	if *stopping == nil {
		done := make(chan struct{})
		*stopping = done
		y.jobs.Go(func() {
			defer close(done)
			terminate()
		})
	}
	select {
	case <-*stopping:
		return true
	default:
		return false
	}
}

// terminate runs the pod's hook, tells the NodeManager to end, and kills it when the pod's time is over.
func (r *liveRuntime) terminate(k *yarnPod, w *liveWorker) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := func() bool { // a second deletion may have made the time shorter
		r.y.mu.Lock()
		defer r.y.mu.Unlock()
		return !time.Now().Before(k.pod.DeletionTimestamp.Time) // clock: a kubelet ends a pod when its time is over
	}
	hooked := make(chan struct{})
	hook := w.daemon.Inside(ctx, k.pod.Spec.Containers[0].Lifecycle.PreStop.Exec.Command...)
	go func() {
		defer close(hooked)
		_ = hook.Run() // it is killed with the NodeManager, or when the time is over
	}()
	await := func(done <-chan struct{}, least time.Duration) (ended bool) {
		for began := time.Now(); ; {
			select {
			case <-w.daemon.Done():
				return true
			case <-done:
				return true
			case <-time.After(50 * time.Millisecond):
			}
			if over() && time.Since(began) >= least { // clock: a kubelet gives a process two seconds after SIGTERM
				return false
			}
		}
	}
	await(hooked, 0)
	cancel()
	at := time.Now()
	stopping, stop := context.WithTimeout(context.Background(), time.Second)
	_ = w.daemon.Stop(stopping) // it may take longer
	stop()
	if !await(nil, 2*time.Second-time.Since(at)) {
		r.y.note(r.pool, "the NodeManager of %s is killed, %.1f s after SIGTERM", w.name, time.Since(at).Seconds())
	}
	r.end(w)
}

// end kills what is left of a worker.
func (r *liveRuntime) end(w *liveWorker) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := errors.Join(w.daemon.Kill(ctx), hadoopBed.RemoveWorker(w.name))
	if err != nil {
		r.y.complain(r.pool, err)
	}
}

// kill implements [podRuntime].
func (r *liveRuntime) kill(k *yarnPod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.workers[k.pod.UID]; w != nil && w.stopping == nil {
		delete(r.workers, k.pod.UID)
		r.y.jobs.Go(func() { r.end(w) })
	}
}

// killManager ends the NodeManager of a worker as kill -9 does. Its containers end with it, as in a pod.
func (r *liveRuntime) killManager(t testing.TB, pod string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.workers {
		if w.name != pod {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.daemon.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("there is no worker %s", pod)
}

func (y *yard) complain(p *yarnPool, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	p.complaints = append(p.complaints, err.Error())
}

// note writes down what happened, for when a test fails.
func (y *yard) note(p *yarnPool, format string, args ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	p.notes = append(p.notes, time.Now().Format(time.StampMilli)+" "+fmt.Sprintf(format, args...))
}

// livePool is a pool of real NodeManagers.
type livePool struct {
	*yarnPool
	y     *yard
	t     *testing.T
	name  string
	rm    *yarn.RM
	nm    *yarn.NM
	nodes []string
	floor string // of the size of workers, as the pool's spec has it
	live  *liveRuntime
	began time.Time
}

// liveYard returns a cluster without nodes and pools, with the configuration of the real ResourceManager.
func liveYard(t *testing.T) *yard {
	t.Helper()
	if *on != "yarn" {
		t.Skip("there is no ResourceManager; -on=yarn starts one")
	}
	y := newYard(t)
	data := map[string]string{}
	for _, name := range []string{"core-site.xml", "yarn-site.xml", "mapred-site.xml", "log4j.properties"} {
		content, err := os.ReadFile(filepath.Join(hadoopBed.ConfDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		data[name] = string(content)
	}
	config := &corev1.ConfigMap{Data: data}
	config.Name = "hadoop"
	err := y.core.Post().Namespace(poolNamespace).Resource("configmaps").Body(config).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	return y
}

// liveManager starts a manager that carries out pools.
func (y *yard) liveManager(args ...string) *process {
	return y.manager(append([]string{"--pools=" + poolNamespace, "--exclude-dir=" + hadoopBed.ConfDir()}, args...)...)
}

// live returns a pool, which does not exist yet, with nodes that offer something.
func (y *yard) live(t *testing.T, name string, nodes int, grace, drain time.Duration) *livePool {
	t.Helper()
	p := &yarnPool{label: hadoop.Label, grace: grace, drain: drain}
	r := &liveRuntime{y: y, pool: p, workers: map[types.UID]*liveWorker{}}
	p.runtime = r
	o, err := hadoopBed.HTTPOptions(hadoop.Admin)
	if err != nil {
		t.Fatal(err)
	}
	l := &livePool{yarnPool: p, y: y, t: t, name: name, floor: "{cpu: 1, memory: 1Gi}", live: r, began: time.Now()}
	if l.rm, err = yarn.NewRM(hadoopBed.URLs(), o); err != nil {
		t.Fatal(err)
	}
	if l.nm, err = yarn.NewNM(o); err != nil {
		t.Fatal(err)
	}
	y.mu.Lock()
	y.pools[name] = p
	y.mu.Unlock()
	for i := range nodes {
		node := fmt.Sprintf("%s-%d", name, i)
		if _, err := hadoopBed.NameHost(poolHost(name, node)); err != nil {
			t.Fatal(err)
		}
		y.offer(t, node, name, cpuMemory(6, 6))
		l.nodes = append(l.nodes, node)
	}
	t.Cleanup(func() {
		if t.Failed() {
			y.mu.Lock()
			defer y.mu.Unlock()
			t.Logf("pool %s:\n%s", name, strings.Join(p.notes, "\n"))
		}
	})
	return l
}

// create makes the pool. more is the part of its spec beside yarn, and of that part.
func (l *livePool) create(ofYARN, more string) {
	l.t.Helper()
	var addresses []string
	for _, address := range hadoopBed.URLs() {
		addresses = append(addresses, fmt.Sprintf("%q", address))
	}
	l.y.create(l.t, fmt.Sprintf(`
apiVersion: waterline.io/v1alpha1
kind: WorkerPool
metadata: {name: %[1]s, namespace: %[2]s}
spec: {yarn: {resourceManagers: [%[3]s], user: root, label: {name: %[4]s}, configMap: {name: hadoop},
  overhead: {cpu: 100m, memory: 512Mi}%[5]s}, nodeSelector: {matchLabels: {pool: %[1]s}},
  template: {spec: {containers: [{name: worker, image: hadoop}]}},
  size: {floor: %[7]s, ceiling: {cpu: 4, memory: 4Gi}, step: {cpu: 1, memory: 1Gi}, pause: 1s,
    follow: {window: 0s}}%[6]s}
`, l.name, poolNamespace, strings.Join(addresses, ", "), hadoop.Label, ofYARN, more, l.floor))
}

// end deletes the pool, and waits until it is gone.
func (l *livePool) end() {
	l.t.Helper()
	kubectl(l.t, "delete", "workerpool", l.name, "-n", poolNamespace, "--ignore-not-found", "--timeout=4m")
}

func (l *livePool) host(i int) string { return poolHost(l.name, l.nodes[i]) }

// manager returns a NodeManager as the ResourceManager shows it; one that it does not know is empty.
func (l *livePool) manager(i int) yarn.Node {
	l.t.Helper()
	n, err := l.rm.Node(l.t.Context(), l.host(i)+":45454")
	if err != nil && !errors.Is(err, yarn.ErrNotFound) && !errors.Is(err, yarn.ErrNoActive) {
		l.t.Fatal(err)
	}
	return n
}

// grown waits until every NodeManager has a total.
func (l *livePool) grown(want yarn.Resource) {
	l.t.Helper()
	for i := range l.nodes {
		eventually(l.t, fmt.Sprintf("%s offers %v", l.host(i), want), func() (bool, string) {
			n := l.manager(i)
			return n.State == yarn.NodeRunning && n.Total == want, fmt.Sprintf("%+v", n)
		})
	}
}

// job starts a job's client, and returns it with its application's id.
func (l *livePool) job(c *exec.Cmd) (*hadoop.Job, string) {
	l.t.Helper()
	j, err := hadoop.StartJob(c)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), mostWait)
	defer cancel()
	id, err := j.ID(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	return j, id
}

// finish waits until a job has succeeded.
func (l *livePool) finish(j *hadoop.Job) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), mostWait)
	defer cancel()
	if err := j.Wait(ctx); err != nil {
		l.t.Fatal(err)
	}
}

// remember writes down what the marks of a pod say now, if that changed. The yard's lock is held.
func (p *yarnPool) remember(k *yarnPod, now time.Time) {
	until := k.ending().by
	for i := len(p.marked) - 1; i >= 0; i-- {
		if m := p.marked[i]; m.pod == k.pod.Name {
			if m.until.Equal(until) {
				return
			}
			break
		}
	}
	p.marked = append(p.marked, marked{k.pod.Name, now, until})
}

// mayEnd reports whether marks of a worker's pod say that its containers may be ended at a time.
func (p *yarnPool) mayEnd(pod string, at time.Time) bool {
	const clocks = 200 * time.Millisecond // the manager's deadline is rounded on the way
	may := false
	for _, m := range p.marked {
		if m.pod == pod && m.at.Before(at) {
			may = !m.until.IsZero() && !at.Add(clocks).Before(m.until)
		}
	}
	return may
}

// judgement is what became of the containers of a pool's workers.
type judgement struct {
	started, inTime int
	early           []hadoop.Killed // that were killed before marks of their worker's pod allowed it
}

// judged reads the logs of the daemons. Jobs should have ended.
func (l *livePool) judged() (j judgement) {
	l.t.Helper()
	ledger, err := hadoopBed.Ledger()
	if err != nil {
		l.t.Fatal(err)
	}
	l.y.mu.Lock()
	defer l.y.mu.Unlock()
	j.started = ledger.Started
	for _, k := range ledger.Killed {
		// One that never started counts whatever its node was.
		if !strings.HasPrefix(k.Node, l.name+"-") && k.Node != "" || k.At.Before(l.began) { // clock: of an earlier test
			continue
		}
		if l.mayEnd(k.Node, k.At) {
			j.inTime++
		} else {
			j.early = append(j.early, k)
		}
	}
	return j
}

// unharmed checks that no container of the pool was killed before its time so far.
func (l *livePool) unharmed() judgement {
	l.t.Helper()
	j := l.judged()
	if len(j.early) > 0 {
		l.t.Errorf("containers were killed before their time: %+v", j.early)
	}
	if len(l.complaints) > 0 {
		l.t.Errorf("%q", l.complaints)
	}
	l.t.Logf("of %d containers on all nodes so far, %d were killed in their time", j.started, j.inTime)
	return j
}

// sleepers starts containers that sleep: applications of one container each, on the label. As applications they count
// as failed, because they do not register as masters do. As containers they succeed. Both queues get some, because each
// lets masters use half of the label.
func (l *livePool) sleepers(count int, memory int64, each time.Duration) (ids []string) {
	l.t.Helper()
	for i := range count {
		app, err := hadoop.Submit(l.t.Context(), l.rm, hadoop.Submission{
			Name: "sleep", Queue: []string{hadoop.LabelQueue, hadoop.DefaultQueue}[i%2], Type: "TEST", Label: hadoop.Label,
			MaxAttempts: 1, Command: fmt.Sprintf("exec sleep %.1f", each.Seconds()),
			Master: yarn.Resource{MemoryMiB: memory, VCores: 1},
		})
		if err != nil {
			l.t.Fatal(err)
		}
		ids = append(ids, app.ID)
	}
	return ids
}

// containers waits until so many containers run on the pool's nodes, by the NodeManagers' own account. The
// ResourceManager counts those that it has only allocated, which are lost with it.
func (l *livePool) containers(count int) {
	l.t.Helper()
	eventually(l.t, fmt.Sprintf("%d containers run", count), func() (bool, string) {
		n := 0
		for _, node := range l.nodes {
			n += l.runs(node)
		}
		return n == count, fmt.Sprint(n)
	})
}

// runs returns how many containers of a node's worker run.
func (l *livePool) runs(node string) (n int) {
	// None if it is gone.
	base, port := "http://", "8042"
	if *kerberos {
		base, port = "https://", "8044"
	}
	all, _ := l.nm.Containers(l.t.Context(), base+net.JoinHostPort(poolHost(l.name, node), port))
	for _, c := range all {
		if c.State == "RUNNING" {
			n++
		}
	}
	return n
}

// idle waits until no application is left.
func (l *livePool) idle() {
	l.t.Helper()
	eventually(l.t, "all applications have ended", func() (bool, string) {
		apps, err := hadoop.Apps(l.t.Context(), l.rm, "NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", hadoop.AppRunning)
		return err == nil && len(apps) == 0, fmt.Sprintf("%v, %+v", err, apps)
	})
}

// killRM ends a ResourceManager as kill -9 does, and starts it again.
func (l *livePool) killRM(i int) {
	l.t.Helper()
	l.endRM(i)
	l.startRM(i)
}

// endRM ends a ResourceManager as kill -9 does.
func (l *livePool) endRM(i int) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	if err := hadoopBed.RM(i).Kill(ctx); err != nil {
		l.t.Fatal(err)
	}
}

// startRM starts a ResourceManager.
func (l *livePool) startRM(i int) {
	l.t.Helper()
	if err := hadoopBed.RM(i).Start(); err != nil {
		l.t.Fatal(err)
	}
}
