package web

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/poll"
)

// noon is when tests begin.
var noon = time.Date(2027, 1, 4, 12, 0, 0, 0, time.UTC)

// clock is a clock that tests set.
type clock struct{ since atomic.Int64 }

func (c *clock) now() time.Time          { return noon.Add(time.Duration(c.since.Load())) }
func (c *clock) advance(d time.Duration) { c.since.Add(int64(d)) }

// ask sends a request with a token; "": without one.
func ask(s *Server, token, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// decode reads the answer to a request that must succeed.
func decode[T any](t *testing.T, w *httptest.ResponseRecorder) (value T) {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &value); err != nil {
		t.Fatalf("%v in %.300s", err, w.Body)
	}
	return value
}

// views are all paths with data, and what a stranger could recognise in each.
var views = map[string]string{
	"/api/v1/cluster": `"capacity|[64000`, "/api/v1/nodes": "node-0000", "/api/v1/nodes/node-0000": "SoldPredicted",
	"/api/v1/policies": "web-nodes", "/api/v1/pools": "nightly",
}

// TestRights checks for each view and caller whether there is data. No answer without the right may contain any.
func TestRights(t *testing.T) {
	a := newAPI(t)
	a.populate(3, noon)
	c := &clock{}
	s := a.server(c.now)
	for path := range views {
		for token, want := range map[string]int{
			adminToken: 200, viewerToken: 200, otherToken: 403, "": 401, "expired": 401, "two words": 401,
			strings.Repeat("x", longestToken+1): 401,
		} {
			switch {
			case path == "/api/v1/policies" && token == viewerToken:
				want = 403
			case path == "/api/v1/pools" && want == 403:
				want = 200 // and no pool is in it
			}
			w := ask(s, token, path)
			if w.Code != want {
				t.Errorf("%s with %.20q: %d, want %d: %s", path, token, w.Code, want, w.Body)
			}
			if want == 200 && (token == adminToken || path != "/api/v1/pools") {
				continue
			}
			for _, data := range []string{"node-0", "64000", "SoldPredicted", "web-nodes", "nightly", "Predicted", "checkout"} {
				if strings.Contains(strings.Replace(w.Body.String(), "nodereports.waterline.io node-0000.", "", 1), data) {
					t.Errorf("%s tells %.20q about %s: %s", path, token, data, w.Body)
				}
			}
		}
	}
	if w := ask(s, "", "/api/v1/nodes", "Authorization", "Basic YWRtaW46"); w.Code != 401 {
		t.Errorf("another scheme: %d", w.Code)
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "/api/v1/nodes", nil)
		r.Header.Set("Authorization", "Bearer "+adminToken)
		if s.Handler().ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

// TestPodsOfOthers checks that a caller sees the pods of namespaces that the caller may list, and no name of others.
func TestPodsOfOthers(t *testing.T) {
	a := newAPI(t)
	a.populate(1, noon)
	s := a.server((&clock{}).now)
	type answer struct {
		Pods       []pod
		HiddenPods bool
	}
	all := decode[answer](t, ask(s, adminToken, "/api/v1/nodes/node-0000"))
	some := ask(s, viewerToken, "/api/v1/nodes/node-0000")
	shop := decode[answer](t, some)
	if len(all.Pods) != 7 || all.HiddenPods || len(shop.Pods) != 3 || !shop.HiddenPods {
		t.Errorf("%d pods, others %v; in shop %d, others %v", len(all.Pods), all.HiddenPods, len(shop.Pods), shop.HiddenPods)
	}
	for _, name := range []string{"media", "transcode", "node-exporter"} {
		if strings.Contains(some.Body.String(), name) {
			t.Errorf("%s is visible", name)
		}
	}
	web := all.Pods[slices.IndexFunc(all.Pods, func(p pod) bool { return p.Name == "web-6bb5-x2x" })]
	if web.Class != "LS" || web.Weight != 10240 || web.CPU != 4000 || web.Memory != 4096 {
		t.Errorf("%+v", web)
	}
	batch := all.Pods[slices.IndexFunc(all.Pods, func(p pod) bool { return p.Name == "nightly-0" })]
	if batch.Class != "BE" || batch.Tier != "batch" || batch.CPU != 12000 || batch.Memory != 8192 {
		t.Errorf("%+v", batch)
	}
	for _, name := range []string{"nowhere", "NO%20NAME", strings.Repeat("a", 254)} {
		if w := ask(s, adminToken, "/api/v1/nodes/"+name); w.Code != 404 {
			t.Errorf("a node %s, which does not exist: %d", name, w.Code)
		}
	}
	// A name that nothing can have is not kept with the verdicts about it.
	ask(s, otherToken, "/api/v1/nodes/"+strings.Repeat("a", 100_000))
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	for _, c := range s.access.callers {
		for r := range c.rights {
			if len(r.name) > 253 {
				t.Errorf("a verdict about a name of %d bytes is kept", len(r.name))
			}
		}
	}
}

// TestRevoked checks that a token or a right that the API server takes back counts for half a minute at most, and that
// nothing is shown when it cannot be asked.
func TestRevoked(t *testing.T) {
	a := newAPI(t)
	a.populate(1, noon)
	c := &clock{}
	s := a.server(c.now)
	expect := func(when string, want int) {
		t.Helper()
		w := ask(s, viewerToken, "/api/v1/nodes")
		if w.Code != want || (want == 200) != strings.Contains(w.Body.String(), "node-0000") {
			t.Errorf("%s: %d, want %d: %.200s", when, w.Code, want, w.Body)
		}
	}
	expect("allowed", 200)
	a.users[viewerToken] = nil
	expect("remembered", 200)
	c.advance(trustTTL)
	expect("the right is gone", 403)
	a.users[viewerToken] = []string{"list nodereports"}
	c.advance(trustTTL)
	expect("allowed again", 200)
	a.away = true
	expect("the API server is away, for a moment", 200)
	c.advance(trustTTL)
	expect("the API server is away", 503)
	a.away = false
	expect("it is back", 200)
	delete(a.users, viewerToken)
	c.advance(trustTTL)
	expect("the token has expired", 401)
	a.users[viewerToken] = []string{"list nodereports"}
	expect("the refusal is remembered", 401)
}

// TestFlood checks that wrong tokens cost the API server a bounded number of reviews, that they do not keep out known
// callers, and that the memory for callers is bounded.
func TestFlood(t *testing.T) {
	a := newAPI(t)
	a.populate(1, noon)
	c := &clock{}
	s := a.server(c.now)
	if w := ask(s, adminToken, "/api/v1/nodes"); w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	busy := 0
	for i := range 500 {
		if w := ask(s, fmt.Sprintf("guess-%d", i), "/api/v1/nodes"); w.Code == http.StatusTooManyRequests {
			busy++
		} else if w.Code != 401 {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
	}
	if busy < 400 || a.reviews > 100 {
		t.Errorf("%d of 500 wrong tokens were put off, and the API server reviewed %d", busy, a.reviews)
	}
	c.advance(trustTTL)
	if w := ask(s, adminToken, "/api/v1/nodes"); w.Code != 200 {
		t.Errorf("a known caller is kept out: %d: %s", w.Code, w.Body)
	}
	again := 0
	for range 100 {
		if w := ask(s, adminToken, "/api/v1/me"); w.Code == http.StatusTooManyRequests {
			again++
		}
	}
	if again < 40 {
		t.Errorf("of 100 requests at once, %d were put off", again)
	}
	for i := range 2 * maxRefused {
		key := [32]byte{byte(i), byte(i >> 8)}
		makeRoom(s.access.refused, maxRefused, func(at time.Time) time.Time { return at })
		s.access.refused[key] = c.now()
	}
	if n := len(s.access.refused); n > maxRefused {
		t.Errorf("%d wrong tokens are remembered", n)
	}
}

// TestNodesSince walks through the changes that a page sees.
func TestNodesSince(t *testing.T) {
	a := newAPI(t)
	a.populate(200, noon)
	c := &clock{}
	s := a.server(c.now)
	type part struct {
		Revision string
		Full     bool
		Nodes    [][]any
		Gone     []string
	}
	get := func(since string) (p part) {
		t.Helper()
		c.advance(viewInterval)
		return decode[part](t, ask(s, adminToken, "/api/v1/nodes?since="+since))
	}
	settle := func(name string, is func(n node, known bool) bool) {
		t.Helper()
		if !poll.Until(time.Minute, time.Millisecond, func() bool { return is(s.reports.Get(name)) }) {
			t.Fatalf("the change of %s does not arrive", name)
		}
	}
	first := get("")
	if !first.Full || len(first.Nodes) != 200 {
		t.Fatalf("full %v, %d nodes", first.Full, len(first.Nodes))
	}
	if p := get(first.Revision); p.Full || len(p.Nodes) != 0 || p.Revision != first.Revision {
		t.Errorf("nothing changed: %+v", p)
	}
	a.change("MODIFIED", "node-0007", func(r *v1alpha1.NodeReport) { r.Status.Policy = "new" })
	settle("node-0007", func(n node, _ bool) bool { return n.policy == "new" })
	second := get(first.Revision)
	if len(second.Nodes) != 1 || second.Nodes[0][0] != "node-0007" || second.Nodes[0][2] != "new" {
		t.Errorf("one node changed: %+v", second)
	}
	a.change("DELETED", "node-0003", func(*v1alpha1.NodeReport) {})
	settle("node-0003", func(_ node, known bool) bool { return !known })
	third := get(second.Revision)
	if len(third.Nodes) != 0 || !slices.Equal(third.Gone, []string{"node-0003"}) {
		t.Errorf("one node is gone: %+v", third)
	}
	if p := get(first.Revision); len(p.Nodes) != 1 || len(p.Gone) != 1 {
		t.Errorf("both changes: %+v", p)
	}
	a.change("ADDED", "node-0003", func(r *v1alpha1.NodeReport) { r.Status = statusOf(3, noon) })
	settle("node-0003", func(_ node, known bool) bool { return known })
	if p := get(third.Revision); len(p.Nodes) != 1 || len(p.Gone) != 0 {
		t.Errorf("it is back: %+v", p)
	}
	for _, other := range []string{"nonsense", "000000000000.1", s.instance + ".999999", s.instance + ".-1", s.instance + ".0"} {
		if p := get(other); !p.Full || len(p.Nodes) != 200 {
			t.Errorf("since %s: full %v, %d nodes", other, p.Full, len(p.Nodes))
		}
	}
	before := get("").Revision
	var again []any
	for _, r := range a.reports {
		again = append(again, r)
	}
	if err := s.reports.Replace(again, ""); err != nil {
		t.Fatal(err)
	}
	if p := get(before); len(p.Nodes) != 0 || p.Revision != before {
		t.Errorf("all nodes were listed again, and %d changed", len(p.Nodes))
	}
	c.advance(model.ReportMaxAge)
	if p := get(get("").Revision); len(p.Nodes) != 0 {
		t.Errorf("%d nodes changed", len(p.Nodes))
	}
	if p := get(third.Revision); p.Full || len(p.Nodes) < 190 || p.Nodes[0][1] != "silent" {
		t.Errorf("reports became old: full %v, %d nodes", p.Full, len(p.Nodes))
	}
	w := ask(s, adminToken, "/api/v1/nodes")
	if same := ask(s, adminToken, "/api/v1/nodes", "If-None-Match", w.Header().Get("ETag")); same.Code != 304 ||
		same.Body.Len() != 0 {
		t.Errorf("the same again: %d, %d bytes", same.Code, same.Body.Len())
	}
}

// TestStates checks each state of a node, and which of them count in the sums.
func TestStates(t *testing.T) {
	ago := func(d time.Duration) *metav1.Time { at := metav1.NewTime(noon.Add(-d)); return &at }
	for want, change := range map[state]func(*v1alpha1.NodeReportStatus){
		selling: func(*v1alpha1.NodeReportStatus) {}, silent: func(s *v1alpha1.NodeReportStatus) { s.Changed = ago(time.Hour) },
		hot:       func(s *v1alpha1.NodeReportStatus) { s.Hot = "BatchStarved" },
		draining:  func(s *v1alpha1.NodeReportStatus) { s.Selling = "Draining" },
		closed:    func(s *v1alpha1.NodeReportStatus) { s.Selling = "Closed" },
		observing: func(s *v1alpha1.NodeReportStatus) { s.Mode = "Observe" },
		disabled:  func(s *v1alpha1.NodeReportStatus) { s.Mode, s.Changed = "Disabled", ago(24*time.Hour) },
		full:      func(s *v1alpha1.NodeReportStatus) { s.CPU, s.Memory = nil, nil },
		enforcing: func(s *v1alpha1.NodeReportStatus) {
			for _, r := range []*v1alpha1.ResourceReport{s.CPU, s.Memory} {
				r.Offer, r.Reason = v1alpha1.TierQuantities{}, "NotSold"
			}
		},
		withdrawn: func(s *v1alpha1.NodeReportStatus) {
			s.Conditions = []metav1.Condition{{Type: "Withdrawn", Status: "True"}}
		},
	} {
		status := statusOf(1, noon)
		change(&status)
		n := (&rows{}).read(&v1alpha1.NodeReport{Status: status})
		if got := n.state(noon); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		var all sums
		all.add(&n, noon)
		counts := want != silent && want != withdrawn
		if (all.nodes == 1) != counts || (all.cpu.online > 0) != (counts && want != full) {
			t.Errorf("%s: %+v", want, all)
		}
	}
}

// TestHistory feeds two days, and checks means, bounds, core-hours, and a clock that is set back.
func TestHistory(t *testing.T) {
	h := history{}
	now := noon
	for range int(48 * time.Hour / fine) {
		h.add(now, sums{nodes: 2, cpu: account{batch: 4000 + now.Unix()%2, bound: 6000, capacity: 10_000}})
		now = now.Add(fine)
	}
	if len(h.fine.points) != fineCount || len(h.coarse.points) != coarseCount {
		t.Fatalf("%d and %d points", len(h.fine.points), len(h.coarse.points))
	}
	for _, p := range h.coarse.points {
		if p.samples != 20 || p.at%300 != 0 || p.cpu.capacity/p.samples != 10_000 || p.nodes/int(p.samples) != 2 {
			t.Fatalf("%+v", p)
		}
	}
	if got := hours(h.batch); got < 191.9 || got > 192.1 { // 4 cores for 48 hours
		t.Errorf("batch used %v core-hours", got)
	}
	if got := hours(h.sold); got != 288 {
		t.Errorf("batch requested %v core-hours", got)
	}
	h.add(noon, sums{nodes: 1})
	if len(h.fine.points) != 1 || len(h.coarse.points) != 1 {
		t.Errorf("the clock was set back: %d and %d points", len(h.fine.points), len(h.coarse.points))
	}
}

// TestClusterSums checks the sums against a sum over the reports.
func TestClusterSums(t *testing.T) {
	a := newAPI(t)
	a.populate(300, noon)
	s := a.server((&clock{}).now)
	s.sample()
	var online, batch, offer int64
	for i := range 300 {
		status := statusOf(i, noon)
		old := noon.Sub(status.Changed.Time) > model.ReportMaxAge
		if old || len(status.Conditions) > 0 {
			continue
		}
		online += status.CPU.Online.MilliValue()
		batch += status.CPU.Batch.MilliValue()
		offer += status.CPU.Offer.Batch.MilliValue()
	}
	type answer struct {
		Now  struct{ CPU []int64 }
		Hour [][]any
	}
	got := decode[answer](t, ask(s, adminToken, "/api/v1/cluster"))
	if c := got.Now.CPU; c[3] != online || c[4] != batch || c[5] != offer {
		t.Errorf("%v, want online %d, batch %d, offer %d", c, online, batch, offer)
	}
	if len(got.Hour) != 1 || int64(got.Hour[0][3].([]any)[4].(float64)) != batch {
		t.Errorf("the hour is %v", got.Hour)
	}
}

// TestHostile checks that texts of tenants and nodes stay data: JSON is escaped, and no answer is a page. That a page
// shows them as text is a test with a browser.
func TestHostile(t *testing.T) {
	const bad = `<script>alert(1)</script>"'&`
	a := newAPI(t)
	a.populate(1, noon)
	r := a.reports["node-0000"]
	r.Status.Policy, r.Status.Hot, r.Status.HarmSignal = bad, bad, bad
	r.Status.Conditions = []metav1.Condition{{Type: bad, Message: bad}}
	a.policies[0].Status.Conditions[0].Message = bad
	a.pools[0].Status.Workers[0].Message = bad
	s := a.server((&clock{}).now)
	for _, path := range []string{"/api/v1/nodes", "/api/v1/nodes/node-0000", "/api/v1/policies", "/api/v1/pools",
		"/api/v1/nodes/%3Cscript%3E"} {
		w := ask(s, adminToken, path)
		if strings.Contains(w.Body.String(), "<script") || w.Header().Get("Content-Type") != "application/json" ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v %s", path, w.Header(), w.Body)
		}
	}
}

// TestPage checks the headers of the page, and that it loads nothing from elsewhere.
func TestPage(t *testing.T) {
	s := New(Options{})
	for _, path := range []string{"/", "/app.js", "/style.css"} {
		w := ask(s, "", path)
		csp := w.Header().Get("Content-Security-Policy")
		if w.Code != 200 || !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %d %s", path, w.Code, csp)
		}
		rest := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http://", "https://", "innerHTML", " style=\"", "<style", "onclick=", "eval("} {
			if strings.Contains(rest, bad) {
				t.Errorf("%s contains %q", path, bad)
			}
		}
	}
	if w := ask(s, "", "/nothing"); w.Code != 404 {
		t.Errorf("no such file: %d", w.Code)
	}
}

// TestSize checks the size of 5,000 nodes.
func TestSize(t *testing.T) {
	a := newAPI(t)
	a.populate(5000, noon)
	s := a.server((&clock{}).now)
	w := ask(s, adminToken, "/api/v1/nodes", "Accept-Encoding", "gzip")
	size := w.Body.Len()
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("5,000 nodes: %d bytes, %d compressed", len(plain), size)
	if size > 500_000 || strings.Count(string(plain), "node-") != 5000 {
		t.Errorf("%d bytes compressed, %d nodes", size, strings.Count(string(plain), "node-"))
	}
}

func BenchmarkLook(b *testing.B) {
	s := New(Options{})
	for i := range 5000 {
		_ = s.reports.Add(&v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)},
			Status: statusOf(i, noon)})
	}
	for b.Loop() {
		v := s.look(noon, nil)
		plain, _ := json.Marshal(s.part(v, 0))
		zip(plain)
	}
}

func BenchmarkSample(b *testing.B) {
	s := New(Options{})
	for i := range 5000 {
		_ = s.reports.Add(&v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)},
			Status: statusOf(i, noon)})
	}
	for b.Loop() {
		s.sums(noon)
	}
}

// TestPaused checks that the answer says of each policy whether it is paused.
func TestPaused(t *testing.T) {
	a := newAPI(t)
	a.populate(1, noon)
	a.policies[0].Annotations = map[string]string{v1alpha1.AnnotationPause: "true"}
	var got struct {
		Policies []struct {
			Name   string
			Paused *bool
		}
	}
	w := ask(a.server((&clock{}).now), adminToken, "/api/v1/policies")
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Policies) != 2 {
		t.Fatalf("got %s", w.Body)
	}
	for _, p := range got.Policies {
		if p.Paused == nil || *p.Paused != (p.Name == a.policies[0].Name) {
			t.Errorf("got %s", w.Body)
		}
	}
}
