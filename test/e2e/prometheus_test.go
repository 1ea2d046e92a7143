package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

const (
	agentMetrics      = "http://127.0.0.1:19464/metrics"
	prometheusAddress = "127.0.0.1:19490"
)

// The load: processes that would use a whole CPU, in pods with a CFS quota, and one process that only uses memory.
const (
	onlineMilli = 300
	batchMilli  = 400
	heldBytes   = 64 << 20
)

// TestAPIPrometheus lets a real Prometheus scrape an agent under a known load. The chart's rules and dashboard fit what
// the agent publishes, and so do the names of its metrics.
func TestAPIPrometheus(t *testing.T) {
	needPrometheus(t)
	c := newBusyNode(t)
	c.load()
	p := newPrometheus(t)
	c.start()
	eventually(t, "the windows of a second and of a minute are published", func() (bool, string) {
		shown := windowsShown(p)
		return slices.Contains(shown, "1s") && slices.Contains(shown, "1m"), fmt.Sprint(shown)
	})
	if capacity := p.last(v1alpha1.MetricCPUCapacity).value; capacity != float64(runtime.NumCPU()) {
		t.Errorf("the node has %v CPUs, want %d", capacity, runtime.NumCPU())
	}
	eventually(t, fmt.Sprintf("the pod that holds %d bytes is published with them", heldBytes), func() (bool, string) {
		used := p.last(v1alpha1.MetricMemoryUsed + `{class="LS",window="1m"}`).value
		return used >= heldBytes && used <= 1.2*heldBytes, fmt.Sprint(used)
	})
	p.checkRules()
	p.checkDashboard()
	p.checkAttention()
	p.checkMetrics()
}

// needPrometheus skips a test on a machine without Prometheus.
func needPrometheus(t *testing.T) {
	t.Helper()
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
	}
}

// load starts the load, and returns the cgroups of its containers.
func (c *busyNode) load() (online, batch, holder string) {
	c.t.Helper()
	online, batch, holder = c.loaded("online", "", onlineMilli), c.loaded("batch", "BE", batchMilli),
		c.loaded("holder", "", 0)
	c.burn(online)
	c.burn(batch)
	// The process has no child, which would outlive it.
	c.exec(holder, "", "busybox", "sh", "-c", fmt.Sprintf(`held=$(head -c %d /dev/zero | tr '\0' x); kill -STOP $$`,
		heldBytes))
	return online, batch, holder
}

// windowsShown returns the windows that have a figure.
func windowsShown(p *prometheus) []string {
	p.t.Helper()
	series, err := p.query("count by (window) ("+v1alpha1.MetricCPUUsed+")", time.Time{})
	if err != nil {
		p.t.Fatal(err)
	}
	var all []string
	for labels := range series {
		all = append(all, strings.TrimSuffix(strings.TrimPrefix(labels, "map[window:"), "]"))
	}
	return all
}

// prometheus is a real server.
type prometheus struct {
	t    *testing.T
	http http.Client
}

// newPrometheus starts a server that scrapes the agent and evaluates the chart's rules once a second.
func newPrometheus(t *testing.T) *prometheus {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yaml")
	rules, err := filepath.Abs(rulesFile)
	if err == nil {
		err = os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - {job_name: waterline, static_configs: [{targets: [%q]}]}
`, rules, strings.TrimSuffix(strings.TrimPrefix(agentMetrics, "http://"), "/metrics")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return startPrometheus(t, dir, config)
}

// startPrometheus starts a server with a configuration, and with its data in a directory. It ends with the test.
func startPrometheus(t *testing.T, dir, config string) *prometheus {
	t.Helper()
	log := &lockedBuffer{}
	server := exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", prometheusAddress, "--log.level", "warn")
	server.Stderr = log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
		if t.Failed() {
			t.Logf("Prometheus's log:\n%s", log)
		}
	})
	p := &prometheus{t: t, http: http.Client{Timeout: 10 * time.Second}}
	eventually(t, "Prometheus is ready", func() (bool, string) {
		response, err := p.http.Get("http://" + prometheusAddress + "/-/ready")
		if err != nil {
			return false, err.Error()
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
	return p
}

// point is the value of one series at a time.
type point struct {
	at    time.Time
	value float64
}

// query evaluates an expression at a time (zero: now), and returns the points of each series, oldest first. An
// expression that is no range has one point.
func (p *prometheus) query(expr string, at time.Time) (map[string][]point, error) {
	form := url.Values{"query": {expr}}
	if !at.IsZero() {
		form.Set("time", strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64))
	}
	response, err := p.http.PostForm("http://"+prometheusAddress+"/api/v1/query", form)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  []any
				Values [][]any
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	series := map[string][]point{}
	for _, r := range answer.Data.Result {
		delete(r.Metric, "__name__")
		if r.Value != nil {
			r.Values = append(r.Values, r.Value)
		}
		for _, v := range r.Values {
			value, err := strconv.ParseFloat(v[1].(string), 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", expr, err)
			}
			key := fmt.Sprint(r.Metric) // in the order of the labels
			series[key] = append(series[key], point{time.UnixMilli(int64(math.Round(v[0].(float64) * 1000))), value})
		}
	}
	return series, nil
}

// points returns the points of the only series of an expression.
func (p *prometheus) points(expr string, at time.Time) []point {
	p.t.Helper()
	series, err := p.query(expr, at)
	if err != nil || len(series) != 1 {
		p.t.Fatalf("%s is %v, want one series: %v", expr, series, err)
	}
	for _, points := range series {
		return points
	}
	return nil
}

// last returns the newest scraped value of a series, with its time.
func (p *prometheus) last(series string) point {
	p.t.Helper()
	return p.lastBefore(series, time.Time{})
}

// lastBefore returns the newest value up to a time (zero: now).
func (p *prometheus) lastBefore(series string, at time.Time) point {
	p.t.Helper()
	points := p.points(series+"[10s]", at)
	return points[len(points)-1]
}

const (
	rulesFile     = "../../deploy/chart/rules/waterline.yaml"
	dashboardFile = "../../deploy/chart/dashboards/waterline.json"
)

// checkRules checks that the rules are well-formed, that recorded values equal their expressions over the scraped
// values, and that no alert fires.
func (p *prometheus) checkRules() {
	p.t.Helper()
	promtool(p.t, nil, "check", "rules", rulesFile)
	var rules struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	content, err := os.ReadFile(rulesFile)
	if err == nil {
		err = yaml.Unmarshal(content, &rules)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	recorded := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				recorded++
				p.checkRecorded(r.Record, r.Expr)
			}
		}
	}
	if recorded == 0 {
		p.t.Error("no series is recorded")
	}
	if alerts, err := p.query("ALERTS", time.Time{}); err != nil || len(alerts) > 0 {
		p.t.Errorf("alerts: %v, %v", slices.Collect(maps.Keys(alerts)), err)
	}
}

func (p *prometheus) checkRecorded(name, expr string) {
	p.t.Helper()
	eventually(p.t, name+" has the values of its expression", func() (bool, string) {
		recorded, err := p.query(name+"[10s]", time.Time{})
		if err != nil || len(recorded) == 0 {
			return false, fmt.Sprintf("no series: %v", err)
		}
		for labels, points := range recorded {
			is := points[len(points)-1]
			// A scrape may have begun before the evaluation of the rule and ended after it. The rule then used the previous
			// scrape.
			var want [7]map[string][]point
			for i := range want {
				if want[i], err = p.query(expr, is.at.Add(-time.Duration(i)*200*time.Millisecond)); err != nil {
					p.t.Fatal(err)
				}
			}
			if !slices.ContainsFunc(want[:], func(w map[string][]point) bool {
				return len(w[labels]) == 1 && w[labels][0].value == is.value
			}) {
				return false, fmt.Sprintf("%s%s is %v, and its expression is %v", name, labels, is.value, want)
			}
		}
		return true, ""
	})
}

// checkDashboard checks that Prometheus can evaluate all queries of the dashboard, and that they have data, except
// those that can have none here.
func (p *prometheus) checkDashboard() {
	p.t.Helper()
	none := []string{
		"waterline_errors_total", "waterline_rejected_writes_total", // no error occurred
		// No prediction is old enough to have been checked.
		"waterline_prediction_missed_ratio",
		"waterline_interference", "waterline_hot", "waterline_eviction_requests_total", // the policy named and evicted no pod
		"waterline_manager_evictions_total", "waterline_pool", "waterline_batch_cpu_requested_cores", // only an agent is
		"waterline_batch_memory_requested_bytes", "kube_pod_container_resource_requests", // scraped
		"ALERTS", // TestAPIPrometheus checks that no alert fires, and checkAttention what the table shows if some do
	}
	if _, err := os.Stat("/proc/pressure/cpu"); err != nil {
		none = append(none, "waterline_pressure_ratio")
	}
	for _, panel := range readPanels(p.t) {
		for _, target := range panel.Targets {
			may := slices.ContainsFunc(none, func(name string) bool { return strings.Contains(target.Expr, name) })
			eventually(p.t, panel.Title+" has data: "+target.Expr, func() (bool, string) {
				series, err := p.query(strings.NewReplacer("$node", ".*", "$__range", "5m").Replace(target.Expr), time.Time{})
				if err != nil {
					p.t.Fatalf("%s: %v", panel.Title, err)
				}
				return len(series) > 0 || may, "none"
			})
		}
	}
}

// panel is a panel of the dashboard.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

func readPanels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct{ Panels []panel }
	content, err := os.ReadFile(dashboardFile)
	if err == nil {
		err = json.Unmarshal(content, &dashboard)
	}
	if err != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("%d panels: %v", len(dashboard.Panels), err)
	}
	return dashboard.Panels
}

// checkAttention checks which nodes the dashboard lists first, by the rules over made-up values: of twelve nodes with
// alerts the ten that have two, one of them because it is withdrawn, which only the manager's metrics say.
func (p *prometheus) checkAttention() {
	p.t.Helper()
	panels := readPanels(p.t)
	i := slices.IndexFunc(panels, func(q panel) bool { return q.Title == "The ten nodes that need attention" })
	if i < 0 {
		p.t.Fatal("there is no such panel")
	}
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		p.t.Fatal(err)
	}
	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	type values struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	var series []values
	var want []sample
	for n := range 12 {
		node := fmt.Sprintf("n%02d", n)
		old := fmt.Sprintf(`waterline_measurement_age_seconds{instance=%q,resource="cpu"}`, node)
		series = append(series, values{old, "100x20"})
		if n < 2 {
			continue
		}
		second, alert := fmt.Sprintf(`waterline_hot{instance=%q,reason="BatchStarved"}`, node), "WaterlineHot"
		if n == 2 {
			second, alert = fmt.Sprintf(`waterline_node_withdrawn{instance="10.0.0.9:9465",node=%q}`, node), "WaterlineNodesLost"
		}
		series = append(series, values{second, "1x20"})
		for alert, state := range map[string]string{"WaterlineMeasurementOld": "firing", alert: "pending"} {
			want = append(want, sample{fmt.Sprintf(`{instance=%q,alertname=%q,alertstate=%q}`, node, alert, state), 1})
		}
	}
	test, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "tests": []map[string]any{{
		"interval": "1m", "input_series": series, "promql_expr_test": []map[string]any{{
			"expr": strings.ReplaceAll(panels[i].Targets[0].Expr, "$node", ".*"), "eval_time": "10m", "exp_samples": want,
		}},
	}}})
	file := filepath.Join(p.t.TempDir(), "test.yaml")
	if err == nil {
		err = os.WriteFile(file, test, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	promtool(p.t, nil, "test", "rules", file)
}

// checkMetrics runs Prometheus's own linter on the agent's metrics.
func (p *prometheus) checkMetrics() {
	p.t.Helper()
	var shown []byte
	eventually(p.t, "metrics", func() (bool, string) {
		response, err := p.http.Get(agentMetrics)
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		shown, err = io.ReadAll(response.Body)
		return err == nil && response.StatusCode == http.StatusOK, fmt.Sprintf("%s, %v", response.Status, err)
	})
	promtool(p.t, bytes.NewReader(shown), "check", "metrics")
}

func promtool(t *testing.T, stdin io.Reader, args ...string) {
	t.Helper()
	c := exec.Command("promtool", args...)
	c.Stdin = stdin
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
