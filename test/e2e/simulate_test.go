package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recordedCluster writes what a Prometheus scrapes in two days of two nodes: each has eight CPUs, a node_exporter and a
// kubelet, a pod of a DaemonSet, and three web pods. Web pods use two CPUs by day and half of one by night.
func recordedCluster(w io.Writer, begin time.Time) {
	const (
		every = 60 // seconds between two scrapes
		days  = 2
	)
	web := func(second int) float64 { // CPU of a web pod since the beginning
		day, rest := second/86400, float64(second%86400)
		used := 0.5 / 3 * rest
		if busy := rest - 12*3600; busy > 0 {
			used += 1.5 / 3 * busy
		}
		return float64(day)*(0.5/3*86400+1.5/3*12*3600) + used
	}
	all := func(family, kind string, series map[string]func(second int) float64) {
		fmt.Fprintf(w, "# TYPE %s %s\n", strings.TrimSuffix(family, "_total"), kind)
		for labels, value := range series {
			for s := 0; s <= days*86400; s += every {
				fmt.Fprintf(w, "%s{%s} %g %d\n", family, labels, value(s), begin.Unix()+int64(s))
			}
		}
	}
	flat := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	type family = map[string]func(second int) float64
	busy, total, free, names := family{}, family{}, family{}, family{}
	used, kept, info, requests, capacity := family{}, family{}, family{}, family{}, family{}
	for node := range 2 {
		name, address := fmt.Sprintf("n%d", node), fmt.Sprintf("10.0.0.%d", node)
		names[fmt.Sprintf("node=%q,internal_ip=%q", name, address)] = flat(1)
		for _, what := range []string{"capacity", "allocatable"} {
			capacity[fmt.Sprintf("%s node=%q,resource=\"cpu\"", what, name)] = flat(8)
			capacity[fmt.Sprintf("%s node=%q,resource=\"memory\"", what, name)] = flat(16 << 30)
		}
		total[fmt.Sprintf("instance=\"%s:9100\"", address)] = flat(16 << 30)
		free[fmt.Sprintf("instance=\"%s:9100\"", address)] = flat(11 << 30)
		for cpu := range 8 {
			of := fmt.Sprintf("instance=\"%s:9100\",cpu=\"%d\",mode=", address, cpu)
			busy[of+`"user"`] = func(s int) float64 { return (3*web(s) + 0.3*float64(s)) / 8 }
			busy[of+`"idle"`] = func(s int) float64 { return float64(s) - (3*web(s)+0.3*float64(s))/8 }
		}
		pod := func(name, kind, owner string, cpu func(int) float64, request float64) {
			pod := fmt.Sprintf("namespace=\"shop\",pod=%q", name)
			of := fmt.Sprintf("%s,container=\"main\",image=\"x\",node=\"n%d\"", pod, node)
			used[of], kept[of] = cpu, flat(1<<30)
			info[fmt.Sprintf("%s,node=\"n%d\",created_by_kind=%q,created_by_name=%q", pod, node, kind, owner)] = flat(1)
			requests[pod+`,container="main",resource="cpu"`] = flat(request)
			requests[pod+`,container="main",resource="memory"`] = flat(2 << 30)
		}
		pod(fmt.Sprintf("logs-%d", node), "DaemonSet", "logs", func(s int) float64 { return 0.1 * float64(s) }, 0.25)
		for i := range 3 {
			pod(fmt.Sprintf("web-7d9f8b6c5-x%d%dzz", node, i), "ReplicaSet", "web-7d9f8b6c5", web, 0.7)
		}
	}
	all("node_cpu_seconds_total", "counter", busy)
	all("node_memory_MemTotal_bytes", "gauge", total)
	all("node_memory_MemAvailable_bytes", "gauge", free)
	all("container_cpu_usage_seconds_total", "counter", used)
	all("container_memory_working_set_bytes", "gauge", kept)
	all("kube_pod_info", "gauge", info)
	all("kube_pod_container_resource_requests", "gauge", requests)
	all("kube_node_info", "gauge", names)
	for _, what := range []string{"capacity", "allocatable"} {
		of := family{}
		for labels, v := range capacity {
			if rest, found := strings.CutPrefix(labels, what+" "); found {
				of[rest] = v
			}
		}
		all("kube_node_status_"+what, "gauge", of)
	}
	fmt.Fprintln(w, "# EOF")
}

// TestAPISimulate simulates what a real Prometheus recorded, and again what was saved of it.
func TestAPISimulate(t *testing.T) {
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	var text bytes.Buffer
	recordedCluster(&text, time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -2))
	file, config := filepath.Join(dir, "samples"), filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, nil, "tsdb", "create-blocks-from", "openmetrics", file, filepath.Join(dir, "data"))
	startPrometheus(t, dir, config)
	simulate := func(from, to string, more ...string) map[string]float64 {
		t.Helper()
		out, err := program("waterline", append([]string{
			"simulate", "cluster", "--from-prometheus", from, "--json", filepath.Join(dir, to), "--load", "0.5",
		}, more...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{"2 nodes and 6 pods, as recorded on ", "1 days before taught the predictors"} {
			if !strings.Contains(out, want) {
				t.Errorf("the report does not say %q:\n%s", want, out)
			}
		}
		if strings.Contains(out, "was not recorded") || strings.Contains(out, "missing") {
			t.Errorf("all was recorded:\n%s", out)
		}
		read, err := os.ReadFile(filepath.Join(dir, to))
		var figures struct{ Metrics map[string]float64 }
		if err == nil {
			err = json.Unmarshal(read, &figures)
		}
		if err != nil {
			t.Fatal(err)
		}
		return figures.Metrics
	}
	saved := filepath.Join(dir, "saved")
	live := simulate("http://"+prometheusAddress, "live.json", "--days", "2", "--save", saved)
	// A node used 0.8 CPUs of eight by night and 2.3 by day.
	if before := live["waterline_online_percent"]; math.Abs(before-100*1.55/8) > 0.5 {
		t.Errorf("online pods and system daemons used %.2f %%, not %.2f %%", before, 100*1.55/8)
	}
	if live["waterline_batch_core_hours"] < 10 || live["waterline_unplaced_online_pods"] != 0 || live["nodes"] != 2 {
		t.Errorf("figures: %v", live)
	}
	for name, v := range simulate(saved, "again.json") {
		if v != live[name] {
			t.Errorf("%s is %g as read from the server, and %g as saved", name, live[name], v)
		}
	}
	out, err := program("waterline", "simulate", "cluster", "--from-prometheus", "http://"+prometheusAddress, "--selector",
		"cluster=")
	if err == nil || !strings.Contains(err.Error()+out, "is the --selector right?") {
		t.Errorf("a wrong selector: %v, %s", err, out)
	}
}
