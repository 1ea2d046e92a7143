package pools

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

// drainingRound returns a round of workers that drain, with two containers each by the account of the ResourceManager.
// Worker i has the address 127.99.81.(i+1).
func drainingRound(e *engine, scheme string, n int) *round {
	r := &round{
		k: &keeper{engine: e}, now: time.Now(), t: &trouble{},
		p: &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{YARN: &v1alpha1.YARNSpec{
			ResourceManagers: []string{scheme + "://rm:8088"},
		}}},
		view: &view{nodes: map[string][]yarn.Node{}}, in: pool.Input{Settings: pool.Settings{Graceful: true}},
	}
	for i := range n {
		host := fmt.Sprintf("w-%d.night.yarn.svc.cluster.local", i)
		r.view.nodes[host] = []yarn.Node{{
			ID: net.JoinHostPort(host, fmt.Sprint(nmPort)), State: yarn.NodeRunning, Containers: 2,
		}}
		r.places = append(r.places, place{
			host: host, pod: &podRow{ip: fmt.Sprintf("127.99.81.%d", i+1)},
			worker: &pool.Worker{Name: fmt.Sprintf("w-%d", i), Pod: &pool.Pod{Started: time.Now()}},
		})
	}
	return r
}

// listed returns what was learned of the containers of each worker: -1 is nothing.
func (r *round) listed() (all []int) {
	for i := range r.places {
		r.seen(&r.places[i])
		m := r.places[i].worker.Managers[0]
		if m.Unlisted {
			m.Listed = -1
		}
		all = append(all, m.Listed)
	}
	return all
}

const twoContainers = `{"containers": {"container": [
	{"id": "c1", "state": "RUNNING"}, {"id": "c2", "state": "RUNNING"}]}}`

func answerTwo(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, twoContainers)
}

func listenOn(t *testing.T, ip string, port int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestHungNodeManagers has more hung NodeManagers than a round has time for, before others that answer. After a round
// or two, all others are listed.
func TestHungNodeManagers(t *testing.T) {
	const hung, all = 3 * parallel, 3*parallel + 5
	r := drainingRound(nmEngine(t), "http", all)
	for i := range all {
		l := listenOn(t, r.places[i].pod.ip, webPort) // the kernel accepts
		if i >= hung {
			s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(answerTwo)}}
			s.Start()
			defer s.Close()
		}
	}
	want := append(slices.Repeat([]int{-1}, hung), slices.Repeat([]int{2}, all-hung)...)
	var got []int
	for range 20 { // more than two only if this machine stands still
		r.now = r.now.Add(2 * time.Second)
		r.ask(t.Context())
		if got = r.listed(); slices.Equal(got, want) {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	r.t = &trouble{}
	for range 8 {
		r.now = r.now.Add(2 * time.Second)
		for i := range hung {
			r.k.answers(r.places[i].worker.Name, r.now, fmt.Errorf("hung"))
		}
	}
	r.reportSilent()
	if p := r.t.all[v1alpha1.ConditionNMUnreachable]; len(p.errs) != hung || !strings.Contains(p.message(), "w-0") {
		t.Errorf("%d workers are reported: %+v", len(p.errs), p)
	}
}

// TestSecureNodeManagers lists the containers of a NodeManager whose certificate is for its name, at the port of https,
// and that sees its name in requests. The connection goes to the address of its pod: the name resolves to none.
func TestSecureNodeManagers(t *testing.T) {
	e := nmEngine(t)
	r := drainingRound(e, "https", 1)
	var asked string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked = q.Host
		answerTwo(w, q)
	}))
	_ = s.Listener.Close()
	s.Listener, s.Config.ErrorLog = listenOn(t, r.places[0].pod.ip, securePort), log.New(io.Discard, "", 0)
	host := r.places[0].host
	certificate, roots := certificateFor(t, host)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	s.StartTLS()
	defer s.Close()
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = &tls.Config{RootCAs: roots}
	var err error
	if e.nm, e.peers, err = nodeManagers(yarn.Auth{}, base, anywhere(t).dialWorker); err != nil {
		t.Fatal(err)
	}
	r.ask(t.Context())
	if got := r.listed(); !slices.Equal(got, []int{2}) || asked != net.JoinHostPort(host, fmt.Sprint(securePort)) {
		t.Errorf("listed %v, asked as %q", got, asked)
	}
	e.nm, e.peers, err = nodeManagers(yarn.Auth{}, http.DefaultTransport.(*http.Transport), // it trusts nobody
		anywhere(t).dialWorker)
	if err != nil {
		t.Fatal(err)
	}
	r.ask(t.Context())
	if got := r.listed(); !slices.Equal(got, []int{-1}) {
		t.Errorf("another authority: listed %v", got)
	}
}

// certificateFor returns a certificate for a name, and what trusts it.
func certificateFor(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	certificate, root, err := selfSigned(name)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	return certificate, roots
}
