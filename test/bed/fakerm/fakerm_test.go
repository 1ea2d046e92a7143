package fakerm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/waterline-io/waterline/internal/yarn"
	bed "github.com/waterline-io/waterline/test/bed/yarn"
)

// recording reads an answer of a real ResourceManager.
func recording(t *testing.T, name string) *http.Response {
	t.Helper()
	file, err := os.Open(filepath.Join("../../../internal/yarn/testdata/rm", name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	r, err := http.ReadResponse(bufio.NewReader(file), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() { _ = r.Body.Close() })
	return r
}

// recorded answers with recordings, by method and path.
type recorded struct {
	t       *testing.T
	answers map[string]string
}

func (r recorded) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name, found := r.answers[req.Method+" "+req.URL.Path]
	if !found {
		r.t.Errorf("no recording for %s %s", req.Method, req.URL.Path)
		return
	}
	from := recording(r.t, name)
	for key, values := range from.Header {
		w.Header()[key] = values
	}
	w.WriteHeader(from.StatusCode)
	_, _ = io.Copy(w, from.Body)
}

// situation is the one of the recordings: nm1 runs a container, nm2 has the label elastic, and nm3 the label loose but
// no NodeManager.
func situation(t *testing.T, o Options) *RM {
	t.Helper()
	r := New(o)
	now := time.Now()
	r.labels["elastic"], r.labels["loose"] = true, false
	r.setLabel("nm2.bed:0", "elastic")
	r.setLabel("nm3.bed:0", "loose")
	for _, host := range []string{"nm1.bed", "nm2.bed"} {
		r.Start(Worker{Host: host, Size: Size{2048, 4}})
	}
	r.Tick(now.Add(time.Second))
	r.hosts["nm2.bed:45454"] = "elastic"
	r.Ask("one", Demand{Size: Size{256, 1}, For: time.Hour, PerNode: 1})
	r.Tick(now.Add(2 * time.Second))
	return r
}

// fields returns the type of every field of a JSON document, by its path. Elements of lists are one.
func fields(v any, path string, into map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		into[path] = "object"
		for key, value := range v {
			fields(value, path+"."+key, into)
		}
	case []any:
		into[path] = "list"
		for _, value := range v {
			fields(value, path+"[]", into)
		}
	default:
		into[path] = fmt.Sprintf("%T", v)
	}
}

// TestShape compares answers with recordings of the same situation, field by field: status, kind, names and types. It
// compares every field, and so those that internal/yarn reads.
func TestShape(t *testing.T) {
	const cluster = "/ws/v1/cluster"
	none, full := New(Options{}), situation(t, Options{})
	standby, over := situation(t, Options{}), situation(t, Options{})
	standby.Break(Faults{Standby: true})
	busy := situation(t, Options{}).NodeManager("nm1.bed", "")
	resize := func(memory int) string {
		return fmt.Sprintf(`{"resource":{"memory":%d,"vCores":1},"overCommitTimeout":15000}`, memory)
	}
	for _, c := range []struct {
		recording string
		of        http.Handler
		request   string
		body      string
	}{
		{"info", full, "GET " + cluster + "/info", ""},
		{"info-standby", standby, "GET " + cluster + "/info", ""},
		{"redirect", standby, "GET " + cluster + "/nodes", ""},
		{"nodes", full, "GET " + cluster + "/nodes", ""},
		{"nodes-none", none, "GET " + cluster + "/nodes", ""},
		{"node", full, "GET " + cluster + "/nodes/nm1.bed:45454", ""},
		{"node-unknown", full, "GET " + cluster + "/nodes/nope.bed:1", ""},
		{"node-no-port", full, "GET " + cluster + "/nodes/nm1.bed", ""},
		{"resized", over, "POST " + cluster + "/nodes/nm1.bed:45454/resource", resize(128)},
		{"node-overcommitted", over, "GET " + cluster + "/nodes/nm1.bed:45454", ""},
		{"labels", full, "GET " + cluster + "/get-node-labels", ""},
		{"labels-none", none, "GET " + cluster + "/get-node-labels", ""},
		{"node-labels", full, "GET " + cluster + "/get-node-to-labels", ""},
		{"node-labels-none", none, "GET " + cluster + "/get-node-to-labels", ""},
		{"label-added", full, "POST " + cluster + "/add-node-labels",
			`{"nodeLabelInfo":[{"name":"elastic","exclusivity":true}]}`},
		{"loose-added", full, "POST " + cluster + "/add-node-labels",
			`{"nodeLabelInfo":[{"name":"loose","exclusivity":false}]}`},
		{"label-changed", full, "POST " + cluster + "/add-node-labels",
			`{"nodeLabelInfo":[{"name":"elastic","exclusivity":false}]}`},
		{"label-unknown", full, "POST " + cluster + "/replace-node-to-labels",
			`{"nodeToLabels":[{"nodeId":"nm1.bed:0","labels":["unknown"]}]}`},
		{"node-labelled", full, "POST " + cluster + "/replace-node-to-labels",
			`{"nodeToLabels":[{"nodeId":"nm2.bed:0","labels":["elastic"]}]}`},
		{"node-info", busy, "GET /ws/v1/node", ""},
		{"containers", busy, "GET /ws/v1/node/containers", ""},
	} {
		want := recording(t, c.recording)
		method, path, _ := strings.Cut(c.request, " ")
		answer := httptest.NewRecorder()
		c.of.ServeHTTP(answer, httptest.NewRequest(method, path, strings.NewReader(c.body)))
		got := answer.Result()
		kind := func(r *http.Response) string { return strings.ReplaceAll(r.Header.Get("Content-Type"), " ", "") }
		if got.StatusCode != want.StatusCode || kind(got) != kind(want) {
			t.Errorf("%s: status %d, %q; the real one %d, %q", c.recording, got.StatusCode, kind(got), want.StatusCode,
				kind(want))
		}
		if !strings.HasPrefix(kind(want), "application/json") {
			continue
		}
		types := [2]map[string]string{{}, {}}
		for i, r := range []*http.Response{want, got} {
			var document any
			if err := json.NewDecoder(r.Body).Decode(&document); err != nil {
				t.Fatalf("%s: %v", c.recording, err)
			}
			fields(document, "", types[i])
		}
		if d := cmp.Diff(types[0], types[1]); d != "" {
			t.Errorf("%s: -real +fake\n%s", c.recording, d)
		}
	}
}

// TestClient lets the real client read both, and compares what it understands.
func TestClient(t *testing.T) {
	const cluster = "/ws/v1/cluster"
	real := httptest.NewServer(recorded{t, map[string]string{
		"GET " + cluster + "/info": "info", "GET " + cluster + "/nodes": "nodes",
		"GET " + cluster + "/get-node-labels":         "labels",
		"GET " + cluster + "/get-node-to-labels":      "node-labels",
		"GET " + cluster + "/nodes/nm1.bed:45454":     "node",
		"GET " + cluster + "/nodes/nope.bed:1":        "node-unknown",
		"POST " + cluster + "/add-node-labels":        "label-added",
		"POST " + cluster + "/replace-node-to-labels": "node-labelled",
	}})
	defer real.Close()
	fake := httptest.NewServer(situation(t, Options{}))
	defer fake.Close()
	type all struct {
		Info    yarn.Info
		Nodes   []yarn.Node
		Node    yarn.Node
		Labels  []yarn.Label
		Hosts   map[string]string
		Missing bool
	}
	read := func(address string) (a all) {
		c, err := yarn.NewRM([]string{address}, yarn.HTTPOptions{Auth: yarn.Auth{User: "batch"}})
		if err != nil {
			t.Fatal(err)
		}
		var errs [7]error
		a.Info, errs[0] = c.Active(t.Context())
		a.Nodes, errs[1] = c.Nodes(t.Context())
		a.Node, errs[2] = c.Node(t.Context(), "nm1.bed:45454")
		errs[3] = c.AddLabel(t.Context(), yarn.Label{Name: "elastic", Exclusive: true})
		errs[4] = c.SetNodeLabels(t.Context(), map[string]string{"nm2.bed": "elastic"})
		a.Labels, errs[5] = c.Labels(t.Context())
		a.Hosts, errs[6] = c.NodeLabels(t.Context())
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		_, err = c.Node(t.Context(), "nope.bed:1")
		a.Missing = errors.Is(err, yarn.ErrNotFound)
		return a
	}
	if d := cmp.Diff(read(real.URL), read(fake.URL), cmpopts.IgnoreFields(yarn.Info{}, "Address", "Started")); d != "" {
		t.Errorf("-real +fake\n%s", d)
	}
}

// TestLife follows NodeManagers through their lives by the real client.
func TestLife(t *testing.T) {
	now := time.Now()
	pass := func(r *RM, d time.Duration) { now = now.Add(d); r.Tick(now) }
	r := New(Options{Expiry: 10 * time.Second, Heartbeat: time.Second, Minimum: Size{512, 1}})
	s := httptest.NewServer(r)
	defer s.Close()
	c, err := yarn.NewRM([]string{s.URL}, yarn.HTTPOptions{Auth: yarn.Auth{User: "batch"}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, want Node) {
		t.Helper()
		if got := r.Node("nm1.bed"); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.AddLabel(t.Context(), yarn.Label{Name: "elastic", Exclusive: true}))
	must(c.SetNodeLabels(t.Context(), map[string]string{"nm1.bed": "elastic"}))
	r.Ask("jobs", Demand{Label: "elastic", Size: Size{1024, 1}, For: time.Minute, PerNode: 10})
	r.Ask("others", Demand{Size: Size{1024, 1}, For: time.Minute, PerNode: 10})
	r.Start(Worker{Host: "nm1.bed", Size: Size{1024, 1}, Label: "elastic"})
	pass(r, time.Second)
	pass(r, time.Second)
	check("registered", Node{"RUNNING", "elastic", Size{1024, 1}, Size{1024, 1}, 1})

	_, err = bed.Resize(t.Context(), c, "nm1.bed:45454", yarn.Resource{MemoryMiB: 4096, VCores: 4}, time.Minute)
	must(err)
	pass(r, 2*time.Second)
	check("grown", Node{"RUNNING", "elastic", Size{4096, 4}, Size{4096, 4}, 4})
	_, err = bed.Resize(t.Context(), c, "nm1.bed:45454", yarn.Resource{MemoryMiB: 2048, VCores: 4}, 20*time.Second)
	must(err)
	pass(r, 15*time.Second)
	check("before the deadline", Node{"RUNNING", "elastic", Size{2048, 4}, Size{4096, 4}, 4})
	pass(r, 5*time.Second)
	check("after the deadline", Node{"RUNNING", "elastic", Size{2048, 4}, Size{2048, 2}, 2})
	if kills := r.Kills(); len(kills) != 1 || kills[0].Containers != 2 || kills[0].At.Sub(kills[0].Over) < 20*time.Second {
		t.Errorf("%+v", kills)
	}

	_, err = bed.Resize(t.Context(), c, "nm1.bed:45454", yarn.Resource{MemoryMiB: 1024, VCores: 1}, 20*time.Second)
	must(err)
	r.Restart() // before the NodeManager hears of it
	pass(r, time.Second)
	pass(r, 30*time.Second)
	check("with another ResourceManager", Node{"RUNNING", "elastic", Size{2048, 4}, Size{2048, 2}, 2})

	r.LoseLabels()
	pass(r, time.Second)
	check("without labels", Node{"RUNNING", "", Size{2048, 4}, Size{2048, 2}, 2})
	pass(r, time.Minute)
	pass(r, time.Second)
	if n := r.Counted().Misplaced; n != 1 { // of two containers, one is within the floor
		t.Errorf("%d containers of others are above the floor, want 1", n)
	}

	if n := r.Die("nm1.bed"); n != 2 {
		t.Errorf("%d containers ended", n)
	}
	pass(r, 11*time.Second)
	check("dead", Node{"LOST", "", Size{2048, 4}, Size{}, 0})
	r.Start(Worker{Host: "nm1.bed", Size: Size{256, 1}})
	pass(r, time.Second)
	check("too small", Node{"SHUTDOWN", "", Size{256, 1}, Size{}, 0})
	r.Start(Worker{Host: "nm1.bed", Size: Size{512, 1}})
	pass(r, time.Second)
	r.Stop("nm1.bed")
	check("stopped", Node{"SHUTDOWN", "", Size{512, 1}, Size{}, 0})
}

// TestFaults checks that the real client understands what is wrong.
func TestFaults(t *testing.T) {
	r := situation(t, Options{Unsettled: 300 * time.Millisecond})
	s := httptest.NewServer(r)
	defer s.Close()
	c, err := yarn.NewRM([]string{s.URL}, yarn.HTTPOptions{
		Auth: yarn.Auth{User: "batch"}, Timeout: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Break(Faults{Standby: true})
	if _, err := c.Nodes(t.Context()); !errors.Is(err, yarn.ErrStandby) {
		t.Errorf("standby: %v", err)
	}
	r.Break(Faults{Status: http.StatusForbidden})
	var status *yarn.StatusError
	if _, err := c.Active(t.Context()); !errors.As(err, &status) || status.Status != http.StatusForbidden {
		t.Errorf("forbidden: %v", err)
	}
	r.Break(Faults{Silent: true})
	if _, err := c.Active(t.Context()); !errors.Is(err, yarn.ErrNoActive) {
		t.Errorf("silent: %v", err)
	}
	r.Break(Faults{NoLabels: true})
	err = c.AddLabel(t.Context(), yarn.Label{Name: "new"})
	if !errors.As(err, &status) || !strings.Contains(status.Message, "node-labels.enabled") {
		t.Errorf("without labels: %v", err)
	}
	r.Break(Faults{NoEffect: true})
	var none *yarn.NoEffectError
	size := yarn.Resource{MemoryMiB: 1024, VCores: 1}
	if _, err := bed.Resize(t.Context(), c, "nm1.bed:45454", size, time.Minute); !errors.As(err, &none) {
		t.Errorf("without effect: %v", err)
	}
	r.Break(Faults{})
	before := r.Counted().Requests
	if n, err := bed.Resize(t.Context(), c, "nm1.bed:45454", size, time.Minute); err != nil || !n.Settled() {
		t.Errorf("%+v, %v", n, err)
	}
	if n := r.Counted().Requests - before; n < 4 {
		t.Errorf("%d requests, want one at least that shows zeros", n)
	}
	if nodes, err := c.Nodes(t.Context()); err != nil || slices.ContainsFunc(nodes, func(n yarn.Node) bool {
		return n.State == yarn.NodeRunning && !n.Settled()
	}) {
		t.Errorf("%+v, %v", nodes, err)
	}
}
