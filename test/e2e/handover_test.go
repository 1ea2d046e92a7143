package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// replicas are managers of one cluster behind one address, like behind a Service.
type replicas struct {
	*managed
	running map[string]*process // by identity
	ports   map[string]int      // of the webhooks
	leaving sync.Map            // names of replicas that get no new connections, like from a Service once their pods end
}

// newReplicas starts the proxy before the managers. A connection goes to the first replica that accepts it.
func newReplicas(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{managed: newManaged(t), running: map[string]*process{}, ports: map[string]int{"a": 19451, "b": 19452,
		"c": 19453}}
	listener, err := net.Listen("tcp", webhookAddress())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			from, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			} else if err != nil {
				t.Error(err)
				return
			}
			go r.pass(from)
		}
	})
	return r
}

// pass connects a client to a replica, until one of the two closes.
func (r *replicas) pass(from net.Conn) {
	defer from.Close()
	for name, port := range r.ports {
		if _, leaves := r.leaving.Load(name); leaves {
			continue
		}
		to, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer to.Close()
		go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
		_, _ = io.Copy(from, to)
		return
	}
}

// replica starts a manager and waits until it answers.
func (r *replicas) replica(name string) {
	r.t.Helper()
	r.running[name] = r.manager("--identity", name, "--listen", r.address(name), "--webhook",
		fmt.Sprintf("127.0.0.1:%d", r.ports[name]))
	eventually(r.t, name+" is ready", func() (bool, string) {
		response, err := http.Get("http://" + r.address(name) + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
}

// address is where a replica publishes its metrics.
func (r *replicas) address(name string) string {
	return fmt.Sprintf("127.0.0.1:%d", r.ports[name]+10)
}

// leader waits until a replica other than the given one leads, and returns its name.
func (r *replicas) leader(not string) string {
	r.t.Helper()
	var who string
	eventually(r.t, "a replica leads", func() (bool, string) {
		holder := object[coordinationv1.Lease](r.t, "lease", "waterline-manager", "-n",
			"waterline-system").Spec.HolderIdentity
		if holder != nil {
			who = *holder
		}
		return who != "" && who != not && strings.Contains(metricsAt(r.address(who)), "waterline_manager_leading 1\n"), who
	})
	for name := range r.running {
		if name != who { // a replica that released its Lease may publish that a moment later
			eventually(r.t, name+" no longer leads", func() (bool, string) {
				return !strings.Contains(metricsAt(r.address(name)), "waterline_manager_leading 1\n"), who + " leads too"
			})
		}
	}
	return who
}

// knows waits until the leading replica has seen all nodes.
func (r *replicas) knows(name string, nodes int) {
	r.t.Helper()
	line := fmt.Sprintf(`waterline_nodes{state="agent"} %d`, nodes)
	eventually(r.t, line, func() (bool, string) {
		all := metricsAt(r.address(name))
		return strings.Contains(all, line+"\n"), all
	})
}

// probes are batch pods that are created one after the other.
type probes struct {
	gate    sync.Mutex // while it is locked, no manager has a probe's admission request
	made    atomic.Int64
	refused atomic.Int64
	killed  atomic.Bool // a manager was killed after the last pod that did not slip
}

// creating creates batch pods until the context ends, and records the slipped ones. The first pod after a kill may
// slip, because the API server may send the admission request on the connection to the dead manager. A pod that the API
// server refuses has not slipped; its creator tries again.
func (r *replicas) creating(ctx context.Context, p *probes) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"probe","labels":{"waterline.io/qos":"BE"}},` +
		`"spec":{"schedulerName":"none","containers":[{"name":"c","image":"none","resources":{"requests":{"cpu":"1"}}}]}}`
	for ctx.Err() == nil {
		p.gate.Lock()
		answer, ok := r.admin.do(r.t, http.MethodPost, "/api/v1/namespaces/default/pods?dryRun=All", "application/json", pod)
		killed := p.killed.Swap(false)
		p.gate.Unlock()
		switch n := p.made.Add(1); {
		case ok && strings.Contains(answer, `"waterline.io/batch-cpu":"1k"`):
		case !ok:
			p.refused.Add(1)
			r.t.Logf("pod %d was refused: %s", n, answer)
		case killed:
			r.t.Logf("pod %d, the first after a kill, slipped", n)
		default:
			r.t.Errorf("pod %d slipped: %s", n, answer)
		}
	}
}

// TestAPIHandover ends leading managers, in both ways, while pods are created and nodes are lost. No pod slips, each
// new leader leaves what the one before did, and requests to the API server cease.
func TestAPIHandover(t *testing.T) { handOver(t) }

// handOver returns how long it took until another replica led, after one that ended in good order.
func handOver(t *testing.T) (took time.Duration) {
	t.Helper()
	r := newReplicas(t)
	const count = 11 // so that two nodes lost one after the other do not look like the manager's own fault
	for i := range count {
		r.node(fmt.Sprintf("h%d", i), ours, "")
	}
	r.replica("a")
	r.replica("b")
	first := r.leader("")
	r.knows(first, count)
	before := r.requests()

	ctx, cancel := context.WithCancel(t.Context())
	var p probes
	var creating sync.WaitGroup
	creating.Go(func() { r.creating(ctx, &p) })
	defer creating.Wait()
	defer cancel()

	t.Log("the leading replica and an agent are killed. " +
		"The result of an admission request in progress would be unknown")
	p.gate.Lock()
	r.running[first].stop(os.Kill)
	p.killed.Store(true)
	p.gate.Unlock()
	killed := time.Now()
	delete(r.running, first)
	r.ready("h1", false)
	second := r.leader(first)
	t.Logf("%s leads %s after %s was killed", second, time.Since(killed).Round(100*time.Millisecond), first)
	r.replica("c")
	r.knows(second, count)
	r.expectWithdrawn("h1", "AgentNotReady")
	r.rests()
	changes := r.admin.record(t, strings.TrimSuffix(reports, "/"))

	t.Log("the next replica ends in good order; pods are created all the time")
	ended := time.Now()
	_ = r.running[second].cmd.Process.Signal(syscall.SIGTERM)
	time.AfterFunc(time.Second, func() { r.leaving.Store(second, true) }) // until a Service has removed it
	third := r.leader(second)
	took = time.Since(ended)
	t.Logf("%s leads %s after %s got SIGTERM", third, took.Round(100*time.Millisecond), second)
	r.running[second].stop(syscall.SIGTERM)
	delete(r.running, second)
	r.ready("h2", false)
	r.expectWithdrawn("h2", "AgentNotReady")

	eventually(t, "20 pods were created", func() (bool, string) {
		made := p.made.Load()
		return made >= 20, fmt.Sprint(made)
	})
	cancel()
	creating.Wait()
	if refused := p.refused.Load(); refused > 2 { // one for each manager that ended
		t.Errorf("%d pods were refused", refused)
	}
	t.Logf("%d pods were created, %d refused", p.made.Load(), p.refused.Load())
	// A manager repeats an action in each round until the API server reports the result, and no longer.
	r.rests()
	// Two nodes are withdrawn. Each of the three leaders may repeat an action in the rounds in which it has not seen the
	// result, and a new one asks again for what it finds.
	n := r.requests() - before
	if t.Logf("withdrawing two nodes took %v requests to the API server", n); n < 2 || n > 20 {
		t.Errorf("withdrawing two nodes took %v requests to the API server, want 2 to 20", n)
	}
	for _, c := range changes() {
		if c.name != "h2" {
			t.Errorf("the new leader changed an object of the previous one: %s %s: %s", c.kind, c.name, c.object)
		}
	}
	return took
}

// rests waits until six looks in a row find no new request about reports, a second apart.
func (r *replicas) rests() {
	r.t.Helper()
	last, same := r.requests(), 0
	eventually(r.t, "no more requests", func() (bool, string) {
		time.Sleep(time.Second) // reading its counters costs the API server some time
		if now := r.requests(); now == last {
			same++
		} else {
			last, same = now, 0
		}
		return same > 5, fmt.Sprint(last)
	})
}

// requests returns how many requests to withdraw or restore an offer the API server got since its start, including
// those that changed nothing.
func (r *replicas) requests() float64 {
	r.t.Helper()
	all, ok := r.admin.do(r.t, http.MethodGet, "/metrics", "", "")
	if !ok {
		r.t.Fatalf("%.200s", all)
	}
	sum := 0.0
	for line := range strings.Lines(all) {
		name, labels, found := strings.Cut(strings.TrimSpace(line), "{")
		labels, value, ends := strings.Cut(labels, "} ")
		if !found || !ends || name != "apiserver_request_total" || !strings.Contains(labels, `subresource="status"`) {
			continue
		}
		if strings.Contains(labels, `resource="nodereports"`) && strings.Contains(labels, `verb="APPLY"`) {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				r.t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
