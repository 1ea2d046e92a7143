package yarn

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
)

// questions are for the containers of so many NodeManagers. Worker i has the address 127.99.81.(i+1).
func questions(n int) (all []Question) {
	for i := range n {
		all = append(all, Question{
			Worker: fmt.Sprintf("w-%d", i), Host: fmt.Sprintf("w-%d.night.yarn.svc.cluster.local", i),
			IP: fmt.Sprintf("127.99.81.%d", i+1),
		})
	}
	return all
}

// observerOf returns an observer of a cluster with these base addresses, which trusts an authority.
func observerOf(t *testing.T, address string, ca []byte) *Observer {
	t.Helper()
	dial := (&net.Dialer{}).DialContext
	e := yarn.Endpoint{ResourceManagers: []string{address}, User: "yarn"}
	if ca != nil {
		e.Secret = yarn.Secret{yarn.KeyCA: ca}
	}
	c, err := yarn.NewCluster(yarn.ClusterOptions{Endpoint: e, Dial: dial, DialWorker: dial})
	if err != nil {
		t.Fatal(err)
	}
	return &Observer{Cluster: c}
}

// running returns how many containers run by each answer: -1 is no answer.
func running(answers []Answer) (all []int) {
	for _, a := range answers {
		if !a.Known {
			a.Running = -1
		}
		all = append(all, a.Running)
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
	o, which, now := observerOf(t, "http://rm:8088", nil), questions(all), time.Now()
	for i := range all {
		l := listenOn(t, which[i].IP, yarn.WebPort) // the kernel accepts
		if i >= hung {
			s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(answerTwo)}}
			s.Start()
			defer s.Close()
		}
	}
	want := append(slices.Repeat([]int{-1}, hung), slices.Repeat([]int{2}, all-hung)...)
	var got []int
	for range 20 { // more than two only if this machine stands still
		now = now.Add(2 * time.Second)
		if got = running(o.Ask(t.Context(), now, which)); slices.Equal(got, want) {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	for range 8 {
		now = now.Add(2 * time.Second)
		for i := range hung {
			o.hear(which[i].Worker, now, errors.New("hung"))
		}
	}
	there := func(string) bool { return true }
	if silent := o.Silent(now, there); len(silent) != hung || silent[0].Worker != "w-0" || silent[0].Err == nil {
		t.Errorf("%d workers are reported: %+v", len(silent), silent)
	}
	if silent := o.Silent(now.Add(time.Minute), there); len(silent) != 0 {
		t.Errorf("workers are reported that nobody asks: %+v", silent)
	}
}

// TestManyNodeManagers has more NodeManagers that answer slowly than a round has time for. Each has its turn.
func TestManyNodeManagers(t *testing.T) {
	const all = 5 * parallel
	o, which, now := observerOf(t, "http://rm:8088", nil), questions(all), time.Now()
	for i := range all {
		s := &httptest.Server{Listener: listenOn(t, which[i].IP, yarn.WebPort), Config: &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				time.Sleep(oneTimeout * 2 / 3)
				answerTwo(w, q)
			}),
		}}
		s.Start()
		defer s.Close()
	}
	listed := map[string]bool{}
	for range 20 { // more than two only if this machine stands still
		now = now.Add(2 * time.Second)
		for i, n := range running(o.Ask(t.Context(), now, which)) {
			if n >= 0 {
				listed[which[i].Worker] = true
			}
		}
		if len(listed) == all {
			return
		}
	}
	t.Errorf("only %d of %d were listed", len(listed), all)
}

// TestSecureNodeManagers lists the containers of a NodeManager whose certificate is for its name, at the port of https,
// and that sees its name in requests. The connection goes to the address of its pod: the name resolves to none.
func TestSecureNodeManagers(t *testing.T) {
	which := questions(1)
	var asked string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked = q.Host
		answerTwo(w, q)
	}))
	_ = s.Listener.Close()
	s.Listener = listenOn(t, which[0].IP, yarn.SecureWebPort)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	certificate, root, err := selfSigned(which[0].Host)
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	s.StartTLS()
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})
	got := running(observerOf(t, "https://rm:8090", ca).Ask(t.Context(), time.Now(), which))
	if !slices.Equal(got, []int{2}) || asked != net.JoinHostPort(which[0].Host, fmt.Sprint(yarn.SecureWebPort)) {
		t.Errorf("listed %v, asked as %q", got, asked)
	}
	_, other, err := selfSigned(which[0].Host)
	if err != nil {
		t.Fatal(err)
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Raw})
	got = running(observerOf(t, "https://rm:8090", ca).Ask(t.Context(), time.Now(), which))
	if !slices.Equal(got, []int{-1}) {
		t.Errorf("another authority: listed %v", got)
	}
}

// TestAnswers checks what is learned from a NodeManager.
func TestAnswers(t *testing.T) {
	two := `{"containers": {"container": [
		{"id": "c1", "state": "RUNNING", "totalMemoryNeededMB": 1024, "totalVCoresNeeded": 2},
		{"id": "c2", "state": "DONE", "totalMemoryNeededMB": 4096, "totalVCoresNeeded": 1},
		{"id": "c3", "state": "LOCALIZING", "totalMemoryNeededMB": 512, "totalVCoresNeeded": 1}]}}`
	for _, c := range []struct {
		about, answer string
		name          bool
		want          Answer
	}{
		{"three containers", two, false, Answer{Known: true, Running: 1, Used: yarn.Resource{MemoryMiB: 1536, VCores: 3}}},
		{"no container", `{"containers": null}`, false, Answer{Known: true}},
		{"an error", ``, false, Answer{}},
		{"its name", `{"nodeInfo": {"id": "other:45454"}}`, true, Answer{Known: true, Host: "other"}},
		{"no name", `{"nodeInfo": {"id": "other"}}`, true, Answer{}},
	} {
		which := questions(1)
		which[0].Name = c.name
		s := &httptest.Server{Listener: listenOn(t, which[0].IP, yarn.WebPort), Config: &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, c.answer)
			}),
		}}
		s.Start()
		got := observerOf(t, "http://rm:8088", nil).Ask(t.Context(), time.Now(), which)
		s.Close()
		if !slices.Equal(got, []Answer{c.want}) {
			t.Errorf("%s: %+v, want %+v", c.about, got, c.want)
		}
	}
}
