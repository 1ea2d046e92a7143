package recorded

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/sim/cluster"
	"github.com/waterline-io/waterline/test/fixture"
)

// fake is a Prometheus that knows expressions by a part of their text. A series has values from an hour to another, of
// the hours since the beginning.
type fake struct {
	t      *testing.T
	series map[string][]fakeSeries
	broken func(w http.ResponseWriter, form map[string][]string) bool // it answered
	asked  int
}

type fakeSeries struct {
	labels   map[string]string
	value    float64
	from, to float64 // hours
}

var end = time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)

// begin is the beginning of two days.
var begin = end.AddDate(0, 0, -2)

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.asked++
	if err := r.ParseForm(); err != nil {
		f.t.Error(err)
	}
	if f.broken != nil && f.broken(w, r.Form) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	found := f.find(r.Form.Get("query"))
	answer := func(kind string, result any) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"status": "success", "data": map[string]any{"resultType": kind, "result": result},
		})
	}
	number := func(name string) float64 {
		v, err := strconv.ParseFloat(r.Form.Get(name), 64)
		if err != nil {
			f.t.Errorf("%s: %v", name, err)
		}
		return v
	}
	type entry = map[string]any
	if strings.HasSuffix(r.URL.Path, "/query") {
		all := []entry{}
		if strings.HasPrefix(r.Form.Get("query"), "count(") && len(found) > 0 {
			all = append(all, entry{"metric": entry{}, "value": []any{number("time"), strconv.Itoa(len(found))}})
		}
		if strings.HasPrefix(r.Form.Get("query"), "group") {
			for _, s := range found {
				all = append(all, entry{"metric": s.labels, "value": []any{number("time"), "1"}})
			}
		}
		answer("vector", all)
		return
	}
	all := []entry{}
	for _, s := range found {
		values := [][]any{}
		for at := number("start"); at <= number("end"); at += number("step") {
			if hour := (at - float64(begin.Unix())) / 3600; hour > s.from && hour <= s.to {
				values = append(values, []any{at, fmt.Sprint(s.value)})
			}
		}
		if len(values) > 0 {
			all = append(all, entry{"metric": s.labels, "values": values})
		}
	}
	answer("matrix", all)
}

func (f *fake) find(query string) []fakeSeries {
	for part, series := range f.series {
		if strings.Contains(query, part) {
			return series
		}
	}
	return nil
}

func labels(pairs ...string) map[string]string {
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

// small is a cluster of one node. A pod of a Deployment was replaced on the second day, another one ran in the last
// twelve hours only, and a third on the first day only.
func small(t *testing.T) *fake {
	pod := func(name, container string) map[string]string {
		return labels("namespace", "shop", "pod", name, "node", "a", "container", container)
	}
	const web, next, late, gone, daemon = "web-5f6d7c8b9-ddddd", "web-5f6d7c8b9-bbbbb", "web-5f6d7c8b9-ccccc", "old-0",
		"logs-xyz12"
	info := func(name, kind, owner string) fakeSeries {
		return fakeSeries{labels("namespace", "shop", "pod", name, "node", "a", "created_by_kind", kind, "created_by_name",
			owner), 1, 0, 48}
	}
	return &fake{t: t, series: map[string][]fakeSeries{
		`kube_node_info`: {{labels("node", "a", "internal_ip", "10.0.0.1"), 1, 0, 48}},
		`kube_node_status_capacity{resource="cpu"`:   {{labels("node", "a"), 16, 0, 48}},
		`kube_node_status_capacity{resource="mem`:    {{labels("node", "a"), 32 << 30, 0, 48}},
		`kube_node_status_allocatable{resource="cpu`: {{labels("node", "a"), 15, 0, 48}},
		`kube_node_status_allocatable{resource="mem`: {{labels("node", "a"), 30 << 30, 0, 48}},
		`node_cpu_seconds_total{mode!`: {
			{labels("instance", "10.0.0.1:9100"), 3, 0, 48}, {labels("instance", "database:9100"), 64, 0, 48},
		},
		`node_memory_MemTotal_bytes{} - `: {{labels("instance", "10.0.0.1:9100"), 9 << 30, 0, 48}},
		`node_memory_MemAvailable_bytes{`: {{labels("instance", "10.0.0.1:9100"), 9 << 30, 0, 48}},
		`container_cpu_usage_seconds_total{container!`: {
			{pod(web, "main"), 1, 0, 30}, {pod(next, "main"), 1.5, 30, 48}, {pod(late, "main"), 0.5, 36, 48},
			{pod(gone, "main"), 2, 0, 20}, {pod(daemon, "main"), 0.25, 0, 48},
		},
		`container_memory_working_set_bytes{container!`: {
			{pod(web, "main"), 1 << 30, 0, 30}, {pod(next, "main"), 2 << 30, 30, 48}, {pod(late, "main"), 1 << 30, 36, 48},
			{pod(gone, "main"), 1 << 30, 0, 20}, {pod(daemon, "main"), 1 << 28, 0, 48},
		},
		`kube_pod_info`: {
			info(web, "ReplicaSet", "web-5f6d7c8b9"), info(next, "ReplicaSet", "web-5f6d7c8b9"),
			info(late, "ReplicaSet", "web-5f6d7c8b9"), info(gone, "StatefulSet", "old"), info(daemon, "DaemonSet", "logs"),
		},
		`kube_pod_container_resource_requests{resource="cpu"`: {
			{pod(web, "main"), 2, 0, 48}, {pod(next, "main"), 2.5, 0, 48}, {pod(late, "main"), 2, 0, 48},
			{pod(daemon, "main"), 0.5, 0, 48},
		},
		`kube_pod_container_resource_requests{resource="mem`: {{pod(next, "main"), 4 << 30, 0, 48}},
		`kube_pod_container_resource_limits{resource="cpu"`:  {{pod(next, "main"), 4, 0, 48}},
	}}
}

func read(t *testing.T, f *fake, selector string) (*Recording, error) {
	t.Helper()
	web := httptest.NewServer(f)
	t.Cleanup(web.Close)
	s, err := NewServer(web.URL, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	s.wait = time.Millisecond
	return Read(context.Background(), s, Request{Days: 2, Until: end, Selector: selector})
}

// runs are the values of a series, each with the number of times that it follows itself.
func runs(series []int32) string {
	var b strings.Builder
	for i := 0; i < len(series); {
		n := 1
		for i+n < len(series) && series[i+n] == series[i] {
			n++
		}
		fmt.Fprintf(&b, "%d×%d ", n, series[i])
		i += n
	}
	return strings.TrimSpace(b.String())
}

func TestRead(t *testing.T) {
	r, err := read(t, small(t), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Nodes) != 1 || len(r.Pods) != 2 || !r.Begin.Equal(begin) {
		t.Fatalf("%d nodes, %d pods from %s", len(r.Nodes), len(r.Pods), r.Begin)
	}
	n, web, late := r.Nodes[0], r.Pods[0], r.Pods[1]
	const gib = 1 << 30
	// What no pod but that of the DaemonSet used: three CPUs less one for web and two for old, and so on.
	for _, c := range []struct{ name, is, want string }{
		{"CPU beside pods", runs(n.CPU), "240×0 120×2000 72×1500 144×1000"},
		{"memory beside pods", runs(n.Memory), "20×7168 10×8192 6×7168 12×6144"},
		{"CPU of web", runs(web.CPU), "360×1000 216×1500"},
		{"memory of web", runs(web.Memory), "30×1024 18×2048"},
		{"CPU of the late pod", runs(late.CPU), "432×0 144×500"},
	} {
		if c.is != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.is, c.want)
		}
	}
	want := Node{
		Name: "a", Capacity: model.Amount{CPU: 16000, Memory: 32 * gib},
		Allocatable: model.Amount{CPU: 15000, Memory: 30 * gib},
		Pinned:      model.Amount{CPU: 500}, CPU: n.CPU, Memory: n.Memory,
	}
	if d := fixture.Diff(want, n); d != "" {
		t.Errorf("the node differs (-want +got):\n%s", d)
	}
	if web.Name != "shop/web" || web.Request != (model.Amount{CPU: 2500, Memory: 4 * gib}) || web.Limit != 4000 {
		t.Errorf("%s requests %v, limit %d", web.Name, web.Request, web.Limit)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.HasPrefix(notes, "1 of 2 pods ran for less than nine tenths") ||
		len(r.Notes) != 1 {
		t.Errorf("notes:\n%s", notes)
	}
	o := r.Options(cluster.Defaults())
	o.Lifetime = 0
	day, err := cluster.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if before := day.OnlinePercent; before < 18.5 || before > 19 || day.BatchPercent < 10 || day.History != 1 {
		t.Errorf("%.2f %% used before, not 3 of 16 CPUs, and %.2f %% by batch", before, day.BatchPercent)
	}
}

// TestShort checks that days before the first recorded one teach nothing.
func TestShort(t *testing.T) {
	f := small(t)
	for _, all := range f.series {
		for i := range all {
			all[i].from = max(all[i].from, 23)
		}
	}
	r, err := read(t, f, "")
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(r.Notes, "\n")
	if r.Days != 1 || len(r.Pods[0].CPU) != 288 || !r.Begin.Equal(begin.AddDate(0, 0, 1)) ||
		!strings.Contains(notes, "Of 2 days, only the last 1 were recorded.") {
		t.Errorf("%d days from %s: %s", r.Days, r.Begin, notes)
	}
}

// TestPieces checks that a long query is asked for in shorter ones when the server cannot answer it, and again when the
// server is busy.
func TestPieces(t *testing.T) {
	whole, err := read(t, small(t), "")
	if err != nil {
		t.Fatal(err)
	}
	f := small(t)
	busy, refused := 3, 0
	f.broken = func(w http.ResponseWriter, form map[string][]string) bool {
		if busy--; busy >= 0 {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		if form["start"] == nil {
			return false
		}
		from, _ := strconv.ParseFloat(form["start"][0], 64)
		to, _ := strconv.ParseFloat(form["end"][0], 64)
		step, _ := strconv.ParseFloat(form["step"][0], 64)
		if (to-from)/step < 40 {
			return false
		}
		refused++
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"status":"error","errorType":"execution",`+
			`"error":"query processing would load too many samples into memory"}`)
		return true
	}
	pieces, err := read(t, f, "")
	if err != nil {
		t.Fatal(err)
	}
	pieces.From = whole.From
	if d := fixture.Diff(whole, pieces); d != "" || refused == 0 {
		t.Errorf("%d queries were refused; what was read in pieces differs:\n%s", refused, d)
	}
}

// TestMissing checks what is assumed where series are missing.
func TestMissing(t *testing.T) {
	for name, c := range map[string]struct {
		without []string
		want    string
		pods    int
	}{
		"nodes' CPU": {[]string{`node_cpu_seconds_total{mode!`}, "Nodes' CPU was not recorded", 2},
		"requests": {[]string{
			`kube_pod_container_resource_requests{resource="cpu"`, `kube_pod_container_resource_requests{resource="mem`,
			`kube_pod_container_resource_limits{resource="cpu"`,
		}, "each pod is assumed to request the most that it used", 2},
		"owners":    {[]string{`kube_pod_info`}, "kube_pod_info was not recorded", 3},
		"pods":      {[]string{`container_cpu_usage_seconds_total{container!`}, "The CPU of pods was not recorded", 0},
		"pods' MiB": {[]string{`container_memory_working_set_bytes{container!`}, "The memory of pods was not recorded", 2},
		"allocatable": {[]string{
			`kube_node_status_allocatable{resource="cpu`, `kube_node_status_allocatable{resource="mem`,
		}, "kube_node_status_allocatable was not recorded", 2},
	} {
		f := small(t)
		for _, s := range c.without {
			if f.series[s] == nil {
				t.Fatalf("%s: %s", name, s)
			}
			delete(f.series, s)
		}
		r, err := read(t, f, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(r.Pods) != c.pods || !strings.Contains(strings.Join(r.Notes, "\n"), c.want) {
			t.Errorf("%s: %d pods, %q", name, len(r.Pods), r.Notes)
			continue
		}
		if _, err := cluster.Run(context.Background(), r.Options(cluster.Defaults())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrors(t *testing.T) {
	fail := func(code int, text string) func(*fake) {
		return func(f *fake) {
			f.broken = func(w http.ResponseWriter, _ map[string][]string) bool {
				w.WriteHeader(code)
				fmt.Fprint(w, text)
				return true
			}
		}
	}
	scale := func(part string, by float64) func(*fake) {
		return func(f *fake) {
			for i := range f.series[part] {
				f.series[part][i].value *= by
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*fake)
		want   string
	}{
		"no credentials": {fail(401, "no"), "--token-file"},
		"no Prometheus":  {fail(200, "<html>"), "is this the address of a Prometheus?"},
		"not found":      {fail(404, "<html>"), "a path, such as"},
		"selector": {
			fail(400, `{"status":"error","errorType":"bad_data","error":"parse error"}`), "is the --selector right?",
		},
		"down": {fail(503, "no"), "see the server's log"},
		"always too much": {
			fail(503, `{"status":"error","errorType":"timeout","error":"query timed out"}`),
			"choose fewer series with --selector",
		},
		"nothing": {func(f *fake) { f.series = nil }, "it must have one of kube_node_status_capacity, machine_cpu_cores"},
		"no use": {func(f *fake) {
			delete(f.series, `node_cpu_seconds_total{mode!`)
			delete(f.series, `container_cpu_usage_seconds_total{container!`)
		}, "nothing about the CPU of pods and nodes"},
		"milli-cores of nodes": {
			scale(`node_cpu_seconds_total{mode!`, 1000),
			"node a used 3000 CPUs at 2026-11-22T00:00:00Z and has 16: is node_cpu_seconds_total in milli-cores?",
		},
		"milli-cores of pods": {
			scale(`container_cpu_usage_seconds_total{container!`, 1000), "is container_cpu_usage_seconds_total in milli-cores?",
		},
		"milli-cores of requests": {
			scale(`kube_pod_container_resource_requests{resource="cpu"`, 1000),
			"is kube_pod_container_resource_requests in milli-cores?",
		},
		"an hour": {func(f *fake) {
			f.series[`node_cpu_seconds_total{mode!`][0].from = 47
		}, "has less than half a day of node_cpu_seconds_total before 2026-11-24: name another end with --until"},
		"clusters": {func(f *fake) {
			f.series["group by (cluster)"] = []fakeSeries{{labels: labels("cluster", "b")}, {labels: labels("cluster", "a")}}
		}, `has series of 2 clusters: a, b. Choose one, such as --selector 'cluster="a"'`},
	} {
		f := small(t)
		c.change(f)
		if _, err := read(t, f, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := NewServer("prometheus:9090", nil)
	if err == nil || !strings.Contains(err.Error(), "http://prometheus:9090") {
		t.Errorf("an address without http: %v", err)
	}
}

// TestSelector checks that all queries have the selector.
func TestSelector(t *testing.T) {
	f := small(t)
	f.broken = func(_ http.ResponseWriter, form map[string][]string) bool {
		query := form["query"][0]
		if strings.Count(query, "{") != strings.Count(query, `{dc="x"`) {
			t.Errorf("a query without the selector: %s", query)
		}
		return false
	}
	f.series = nil
	if _, err := read(t, f, `dc="x"`); err == nil || !strings.Contains(err.Error(), `with dc="x"`) {
		t.Error(err)
	}
	for _, all := range [][]metric{
		nodeCPU(), nodeMemory(), cpus(), memories(), allocatable("cpu"), podCPU(), podMemory(), podInfo(), nodeNames(),
		podRequests("cpu", "cores"), podLimits("memory", "bytes"),
	} {
		for _, m := range all {
			m = m.with(`dc="x"`)
			for _, expr := range []string{m.count, m.expr} {
				if strings.Count(expr, "{") != strings.Count(expr, `{dc="x",`) || !strings.Contains(expr, "{") {
					t.Errorf("%s: %s", m.name, expr)
				}
			}
		}
	}
}

func TestArchive(t *testing.T) {
	r, err := read(t, small(t), "")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "x")
	if err := r.Save(file); err != nil {
		t.Fatal(err)
	}
	got, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := fixture.Diff(r, got); d != "" {
		t.Errorf("what was saved differs:\n%s", d)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"half": whole[:len(whole)/2], "text": []byte("a,b\n1,2\n"), "empty": nil, "short": whole[:40],
	} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(file); err == nil || !strings.Contains(err.Error(), "Save it anew with --save") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.Pods[0].CPU = r.Pods[0].CPU[1:]
	if err := r.Save(file); err != nil {
		t.Fatal(err)
	}
	const want = "the CPU of pod shop/web has 575 values, not 576"
	if _, err := Open(file); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a value too few: %v", err)
	}
}
