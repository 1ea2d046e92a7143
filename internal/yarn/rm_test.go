package yarn

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestActive(t *testing.T) {
	_, active := serve(t, map[string][]string{"GET /info": {"info"}, "GET /nodes": {"nodes"}})
	standby, other := serve(t, map[string][]string{"GET /info": {"info-standby"}, "GET /nodes": {"redirect"}})
	c := client(t, other, active)
	info, err := c.Active(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Info{Address: active, State: "STARTED", HAState: "ACTIVE", Version: "3.5.0", Started: info.Started}
	if diff := cmp.Diff(want, info); diff != "" || info.Started.Year() != 2026 {
		t.Errorf("the active one (-want +got):\n%s\nstarted %v", diff, info.Started)
	}
	if _, err := c.Nodes(t.Context()); err != nil || len(standby.requests("GET /nodes")) != 0 {
		t.Errorf("after Active, the standby got %q: %v", standby.requests("GET /nodes"), err)
	}
	infos, err := c.Infos(t.Context())
	if err != nil || len(infos) != 2 || infos[0].HAState != "STANDBY" {
		t.Errorf("Infos: %+v, %v", infos, err)
	}
}

// TestMaxAnswer checks that a client reads no more than it is told.
func TestMaxAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"containers":{}}`))
	}))
	defer s.Close()
	for most, want := range map[int64]string{17: "", 16: "the answer has more than 16 bytes"} {
		c, err := NewNM(HTTPOptions{MaxAnswer: most})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Containers(t.Context(), s.URL)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes: %v, want %q", most, err, want)
		}
	}
}

// TestFailover checks that requests go to the ResourceManager that is active now, whatever the others answer.
func TestFailover(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	nowhere := "http://" + gone.Addr().String()
	first, one := serve(t, map[string][]string{"GET /nodes": {"nodes", "redirect"}})
	second, two := serve(t, map[string][]string{"GET /nodes": {"none-active", "nodes"}})
	c := client(t, nowhere, one, two)
	for i := range 3 {
		if nodes, err := c.Nodes(t.Context()); err != nil || len(nodes) != 2 {
			t.Errorf("request %d: %+v, %v", i, nodes, err)
		}
	}
	// The first one answers once. Then it redirects, and the second one becomes active in the next round.
	if a, b := len(first.requests("GET")), len(second.requests("GET")); a != 3 || b != 3 {
		t.Errorf("the first got %d requests and the second %d, not 3 and 3", a, b)
	}
}

func TestNoActive(t *testing.T) {
	r, standby := serve(t, map[string][]string{
		"GET /nodes": {"redirect"}, "GET /apps": {"none-active"}, "GET /info": {"info-standby"},
	})
	c := client(t, standby)
	_, nodes := c.Nodes(t.Context())
	apps := c.Do(t.Context(), http.MethodGet, "/apps", nil, nil)
	_, active := c.Active(t.Context())
	for _, err := range []error{nodes, apps, active} {
		if !errors.Is(err, ErrNoActive) || !strings.Contains(err.Error(), standby) {
			t.Errorf("%v", err)
		}
	}
	if !errors.Is(nodes, ErrStandby) || !errors.Is(apps, ErrStandby) {
		t.Errorf("nodes: %v; applications: %v", nodes, apps)
	}
	if n := len(r.requests("GET /nodes")); n != rounds {
		t.Errorf("%d requests, not %d", n, rounds)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	tests := map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<html>\n  Welcome</html>"))
		}, "not JSON; check that the address"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"nodes":{"node":[`))
		}, "unexpected EOF"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			nodes := []byte(`{"nodes":{"node":[` + strings.Repeat(" ", 1<<20-20) + `{"id":"a:1"}`)
			for range maxAnswer>>20 + 1 {
				_, err := w.Write(nodes)
				if nodes = append(nodes[:0], ","+strings.Repeat(" ", 1<<20-20)+`{"id":"a:1"}`...); err != nil {
					return
				}
			}
		}, "the answer has more than 67108864 bytes"},
		"silent": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
			"status 403; check the user name"},
		"a node without an id": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"nodes":{"node":{"state":"RUNNING"}}}`))
		}, "a node without an id"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(test.answer)
			defer s.Close()
			c := client(t, s.URL)
			if name == "silent" {
				c.timeout = 50 * time.Millisecond
			}
			if _, err := c.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v; it should contain %q", err, test.want)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	_, standby := serve(t, map[string][]string{"GET /nodes": {"redirect"}})
	c := client(t, standby)
	c.servers.pause = time.Hour // the test's own limit is shorter
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Nodes(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("a call that was given up: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for _, bad := range [][]string{nil, {""}, {"rm.example:8088"}, {"ftp://rm"}, {"http://rm?x=1"}, {"http://ok", "%"}} {
		if _, err := NewRM(bad, HTTPOptions{}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestNodes(t *testing.T) {
	r, base := serve(t, map[string][]string{
		"GET /nodes": {"nodes", "nodes-none"}, "GET /nodes/nm1.bed:45454": {"node-overcommitted"},
		"GET /nodes/nope.bed:1": {"node-unknown"}, "GET /nodes/nm1.bed": {"node-no-port"},
	})
	c := client(t, base)
	nodes, err := c.Nodes(t.Context(), NodeRunning, NodeLost)
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{{
		ID: "nm1.bed:45454", Host: "nm1.bed", State: NodeRunning,
		Version: "3.5.0", Containers: 1, Total: Resource{2048, 4}, Used: Resource{256, 1}, Available: Resource{1792, 3},
	}, {
		ID: "nm2.bed:45454", Host: "nm2.bed", State: NodeRunning,
		Version: "3.5.0", Total: Resource{2048, 4}, Available: Resource{2048, 4}, Labels: []string{"elastic"},
	}}
	if diff := cmp.Diff(want, nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	asked := []string{"GET /nodes?states=RUNNING%2CLOST&user.name=batch"}
	if sent := r.requests("GET /nodes"); !slices.Equal(sent, asked) {
		t.Errorf("sent %q", sent)
	}
	if none, err := c.Nodes(t.Context()); err != nil || len(none) != 0 {
		t.Errorf("no nodes: %v, %v", none, err)
	}
	node, err := c.Node(t.Context(), "nm1.bed:45454")
	if err != nil || node.Total != (Resource{128, 1}) || node.Available != (Resource{-128, 0}) {
		t.Errorf("overcommitted: %+v, %v", node, err)
	}
	if _, err := c.Node(t.Context(), "nope.bed:1"); !errors.Is(err, ErrNotFound) ||
		!strings.Contains(err.Error(), "NotFoundException: nodeId, nope.bed:1, is not found") {
		t.Errorf("an unknown node: %v", err)
	}
	if _, err := c.Node(t.Context(), "nm1.bed"); err == nil || errors.Is(err, ErrNotFound) ||
		!strings.Contains(err.Error(), "Expected host:port") {
		t.Errorf("a node without its port: %v", err)
	}
}

func TestResize(t *testing.T) {
	const id, post = "nm1.bed:45454", "POST /nodes/nm1.bed:45454/resource"
	r, base := serve(t, map[string][]string{post: {"resized"}})
	c := client(t, base)
	if err := c.SendResize(t.Context(), id, Resource{128, 1}, 90*time.Second); err != nil {
		t.Fatal(err)
	}
	want := []string{post + `?user.name=batch {"resource":{"memory":128,"vCores":1},"overCommitTimeout":90000}`}
	if sent := r.requests(post); !slices.Equal(sent, want) {
		t.Errorf("sent %q, not %q", sent, want)
	}
	// Half a millisecond is not 0, which kills at once.
	_ = c.SendResize(t.Context(), id, Resource{256, 1}, time.Millisecond/2)
	if sent := r.requests(post); !strings.HasSuffix(sent[1], `"overCommitTimeout":1}`) {
		t.Errorf("sent %q", sent)
	}
}

// TestResizeRefused checks that nothing is sent if the request can do harm.
func TestResizeRefused(t *testing.T) {
	r, base := serve(t, nil)
	c := client(t, base)
	for _, test := range []struct {
		id      string
		total   Resource
		timeout time.Duration
	}{
		{"nm1.bed", Resource{128, 1}, 0}, {":1", Resource{128, 1}, 0}, {"nm1.bed:99999", Resource{128, 1}, 0},
		{"nm1.bed:1", Resource{-1, 1}, 0}, {"nm1.bed:1", Resource{1, -1}, 0}, {"nm1.bed:1", Resource{1, 1 << 32}, 0},
		{"nm1.bed:1", Resource{1, 1}, -1}, {"nm1.bed:1", Resource{1, 1}, 25 * 24 * time.Hour},
		{"nm1.bed:1", Resource{1, 1}, math.MaxInt64},
	} {
		if err := c.SendResize(t.Context(), test.id, test.total, test.timeout); err == nil {
			t.Errorf("%+v is accepted", test)
		}
	}
	if len(r.sent) > 0 {
		t.Errorf("sent %q", r.sent)
	}
}

func TestLabels(t *testing.T) {
	r, base := serve(t, map[string][]string{
		"GET /get-node-labels":    {"labels-none", "labels-none", "labels"},
		"POST /add-node-labels":   {"label-added", "label-changed", "loose-added"},
		"GET /get-node-to-labels": {"node-labels-none", "node-labels-none", "node-labels"},
		"POST /replace-node-to-labels": {"node-labelled", "label-unknown",
			"node-labelled"},
	})
	c := client(t, base)
	if none, err := c.Labels(t.Context()); err != nil || len(none) != 0 {
		t.Errorf("no labels: %v, %v", none, err)
	}
	if err := c.AddLabel(t.Context(), Label{Name: "elastic", Exclusive: true}); err != nil {
		t.Error(err)
	}
	sent := r.requests("POST /add")
	if sent[0] != `POST /add-node-labels?user.name=batch {"nodeLabelInfo":[{"name":"elastic","exclusivity":true}]}` {
		t.Errorf("sent %q", sent)
	}
	var status *StatusError
	err := c.AddLabel(t.Context(), Label{Name: "elastic"})
	if !errors.As(err, &status) || status.Status != 400 || status.Exception != "BadRequestException" {
		t.Errorf("another exclusivity: %v", err)
	}
	var none *NoEffectError
	if err := c.AddLabel(t.Context(), Label{Name: "other"}); !errors.As(err, &none) {
		t.Errorf("a label that does not appear: %v", err)
	}
	labels, err := c.Labels(t.Context())
	if diff := cmp.Diff([]Label{{Name: "elastic", Exclusive: true}, {Name: "loose"}}, labels); diff != "" || err != nil {
		t.Errorf("labels (-want +got):\n%s%v", diff, err)
	}

	if none, err := c.NodeLabels(t.Context()); err != nil || len(none) != 0 {
		t.Errorf("no nodes with labels: %v, %v", none, err)
	}
	set := map[string]string{"nm2.bed": "elastic", "nm3.bed": "loose", "nm4.bed:1": ""}
	if err := c.SetNodeLabels(t.Context(), set); err != nil {
		t.Error(err)
	}
	want := `POST /replace-node-to-labels?user.name=batch {"nodeToLabels":[{"nodeId":"nm2.bed:0","labels":["elastic"]},` +
		`{"nodeId":"nm3.bed:0","labels":["loose"]},{"nodeId":"nm4.bed:1","labels":[]}]}`
	if sent := r.requests("POST /replace"); sent[0] != want {
		t.Errorf("sent %s, not %s", sent[0], want)
	}
	if err := c.SetNodeLabels(t.Context(), map[string]string{"nm2.bed": "unknown"}); !errors.As(err, &status) {
		t.Errorf("an unknown label: %v", err)
	}
	if err := c.SetNodeLabels(t.Context(), map[string]string{"nm2.bed": ""}); !errors.As(err, &none) {
		t.Errorf("a label that stays: %v", err)
	}
	nodes, err := c.NodeLabels(t.Context())
	mapping := map[string]string{"nm2.bed:0": "elastic", "nm2.bed:45454": "elastic", "nm3.bed:0": "loose"}
	if diff := cmp.Diff(mapping, nodes); diff != "" || err != nil {
		t.Errorf("labels of nodes (-want +got):\n%s%v", diff, err)
	}
}

func TestScheduler(t *testing.T) {
	_, base := serve(t, map[string][]string{
		"GET /scheduler": {"scheduler", `scheduler "capacityScheduler"=>"fairScheduler"`},
	})
	c := client(t, base)
	root, err := c.Scheduler(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, half := Resource{2048, 4}, Resource{1024, 2}
	whole := func(label string) Partition {
		return Partition{Label: label, Capacity: 100, MaxCapacity: 100, Min: all}
	}
	part := func(label string, limit Resource) Partition {
		return Partition{
			Label: label, Capacity: 50, MaxCapacity: 100, Min: half, MasterPercent: 100, MasterLimit: limit,
		}
	}
	busy := part("", all)
	busy.Used = Resource{256, 1}
	want := Queue{Path: "root", Partitions: []Partition{whole(""), whole("elastic")}, Queues: []Queue{{
		Path: "root.batch", State: "RUNNING", Labels: []string{"elastic"}, DefaultLabel: "elastic",
		Partitions: []Partition{part("", all), part("elastic", half)},
	}, {
		Path: "root.default", State: "RUNNING", Labels: []string{"elastic"},
		Partitions: []Partition{busy, part("elastic", half)},
	}}}
	if diff := cmp.Diff(want, root); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	_, base = serve(t, map[string][]string{ // as 3.3.6 answers, without paths
		"GET /scheduler": {`scheduler "queuePath"=>"no"`},
	})
	if root, err = client(t, base).Scheduler(t.Context()); err != nil || cmp.Diff(want, root) != "" {
		t.Errorf("queues without paths (-want +got):\n%s%v", cmp.Diff(want, root), err)
	}
	var other *OtherSchedulerError
	if _, err := c.Scheduler(t.Context()); !errors.As(err, &other) || other.Kind != "fairScheduler" {
		t.Errorf("another scheduler: %v", err)
	}
}

// TestPending reads what applications wait for. Only queues without queues count, so that nothing counts twice.
func TestPending(t *testing.T) {
	const waits = `"pending":{"memory":0,"vCores":0=>"pending":{"memory":3072,"vCores":3`
	// One more queue, which has a queue and shows the sum.
	const above = `"queues":{"queue":[=>"queues":{"queue":[{"queuePath":"root.all",` +
		`"resources":{"resourceUsagesByPartition":[{"partitionName":"elastic","pending":{"memory":64,"vCores":1}}]},` +
		`"queues":{"queue":[{"queuePath":"root.all.one","resources":{"resourceUsagesByPartition":[{"partitionName":"elastic","pending":{"memory":64,"vCores":1}}]}}]}},`
	for _, c := range []struct {
		edit   string
		labels []string
		sum    Resource
		err    string
	}{
		{"", []string{"elastic"}, Resource{}, ""},
		{waits, []string{"elastic"}, Resource{6144, 6}, ""}, // of two queues
		{waits, []string{"", "elastic"}, Resource{12288, 12}, ""},
		{waits, []string{"other"}, Resource{}, ""},
		{above, []string{"elastic"}, Resource{64, 1}, ""},
		{strings.Replace(waits, "3072", "-5", 1), []string{"elastic"}, Resource{0, 6}, ""},
		{strings.Replace(waits, "3072", "9223372036854775807", 1), []string{"elastic"}, Resource{2 << 40, 6}, ""},
		{`"queues"=>"rootQueue"`, []string{"elastic"}, Resource{}, "no queues"},
	} {
		_, base := serve(t, map[string][]string{"GET /scheduler": {"scheduler " + c.edit}})
		got, err := client(t, base).Pending(t.Context(), c.labels...)
		if got != c.sum || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q, %q: %+v, want %+v: %v", c.edit, c.labels, got, c.sum, err)
		}
	}
}

func nodeClient(t *testing.T) *NM {
	t.Helper()
	c, err := NewNM(HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNodeInfo(t *testing.T) {
	_, base := serve(t, map[string][]string{"GET ": {"node-info", `node-info "id"=>"no"`}})
	c := nodeClient(t)
	info, err := c.Info(t.Context(), base)
	want := NMInfo{ID: "nm1.bed:45454", Total: Resource{2048, 4}}
	if diff := cmp.Diff(want, info); diff != "" || err != nil {
		t.Errorf("the NodeManager (-want +got):\n%s%v", diff, err)
	}
	if _, err := c.Info(t.Context(), base); err == nil || !strings.Contains(err.Error(), "does not say its id") {
		t.Errorf("without an id: %v", err)
	}
}

func TestContainers(t *testing.T) {
	id := regexp.MustCompile("[0-9]+_[0-9]+").FindString(string(body(t, "new-app")))
	_, base := serve(t, map[string][]string{"GET /containers": {"containers", "containers-none", `containers "id"=>"no"`}})
	c := nodeClient(t)
	got, err := c.Containers(t.Context(), base)
	want := []Container{{
		ID: "container_" + id + "_01_000001", State: "RUNNING", ExitCode: -1000, User: "root", Size: Resource{256, 1},
		ExecutionType: Guaranteed,
	}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("containers (-want +got):\n%s%v", diff, err)
	}
	if none, err := c.Containers(t.Context(), base); err != nil || len(none) != 0 {
		t.Errorf("no containers: %v, %v", none, err)
	}
	if _, err := c.Containers(t.Context(), base); err == nil || !strings.Contains(err.Error(), "without an id") {
		t.Errorf("a container without an id: %v", err)
	}
}

// TestSignalContainer checks the request for a signal, and what refusals say.
func TestSignalContainer(t *testing.T) {
	const id = "container_1795520061459_0001_01_000002"
	status, asked := http.StatusOK, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		w.WriteHeader(status)
	}))
	defer s.Close()
	c := client(t, s.URL)
	for _, test := range []struct {
		status int
		signal ContainerSignal
		want   string
	}{
		{http.StatusOK, GracefulShutdown, ""},
		{http.StatusForbidden, ForcefulShutdown, "status 403"},
		{http.StatusInternalServerError, ForcefulShutdown, "status 500"},
	} {
		status = test.status
		err := c.SignalContainer(t.Context(), id, test.signal)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%d: %v", test.status, err)
		}
		want := "POST /ws/v1/cluster/containers/" + id + "/signal/" + string(test.signal) + "?user.name=batch"
		if asked != want {
			t.Errorf("%s was asked for, not %s", asked, want)
		}
	}
}
