package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/agent/serve"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/golden"
)

// shape is a machine: so many of each thing in the one before, numbered as servers do: all first threads, socket by
// socket, then all second ones.
type shape struct{ sockets, nodes, domains, cores, threads int }

func (s shape) topology() *model.Topology {
	t := &model.Topology{}
	cores := s.sockets * s.nodes * s.domains * s.cores
	for id := range cores * s.threads {
		core := id % cores
		domain := core / s.cores
		node := domain / s.domains
		t.CPUs = append(t.CPUs, model.CPU{ID: id, Core: core, L3: domain * s.cores, Node: node, Socket: node / s.nodes})
	}
	for id := range s.sockets * s.nodes {
		t.Nodes = append(t.Nodes, model.NUMANode{ID: id, Memory: 64 << 30})
	}
	return t
}

// given gives out the CPUs of a machine as an agent might: all that are not exclusive are for everybody.
func given(t *model.Topology, reserved string, pods ...serve.CPUPod) *serve.CPUMap {
	m := &serve.CPUMap{Topology: t, Reserved: cpuSet(reserved), Pods: pods}
	for _, p := range pods {
		if p.Mode == model.CPUExclusive {
			m.Exclusive = m.Exclusive.Or(p.CPUs)
		} else {
			m.Share = m.Share.Or(p.CPUs)
		}
	}
	m.Shared = t.Online().Minus(m.Exclusive).Minus(m.Reserved)
	return m
}

func cpuSet(list string) model.CPUSet {
	s, err := model.ParseCPUs(list)
	if err != nil {
		panic(err)
	}
	return s
}

func own(pod string, mode model.CPUMode, cpus string) serve.CPUPod {
	parts := strings.Split(pod, "/")
	return serve.CPUPod{Namespace: parts[0], Name: parts[1], Container: parts[2], Mode: mode, CPUs: cpuSet(cpus)}
}

// cpuMaps are the machines whose maps are in testdata/cpus.
func cpuMaps() map[string]*serve.CPUMap {
	const exclusive, share = model.CPUExclusive, model.CPUShare
	vm, xeon := shape{1, 1, 1, 2, 1}.topology(), shape{2, 1, 1, 10, 2}.topology()
	hybrid := &model.Topology{Nodes: []model.NUMANode{{ID: 0, Memory: 32 << 30}}}
	for id := range 20 {
		core := id
		if id < 16 {
			core = id &^ 1
		}
		hybrid.CPUs = append(hybrid.CPUs, model.CPU{ID: id, Core: core})
	}
	// Sockets numbered in turn, as some makers' firmware does, a CPU offline, and memory without CPUs.
	turns := &model.Topology{
		Nodes: []model.NUMANode{{ID: 0, Memory: 64 << 30}, {ID: 1, Memory: 64 << 30}, {ID: 2, Memory: 128 << 30}},
	}
	for id := range 40 {
		if id != 22 {
			turns.CPUs = append(turns.CPUs, model.CPU{ID: id, Core: id % 20, L3: id % 2, Node: id % 2, Socket: id % 2})
		}
	}
	all := map[string]*serve.CPUMap{
		"vm":         given(vm, ""),
		"vm-granted": given(vm, "0", own("shop/web-0/web", exclusive, "1")),
		"xeon":       given(xeon, "0,20"),
		"xeon-granted": given(xeon, "0,20",
			own("shop/api-7d9c5b-x2x/api", share, "3,23"),
			own("shop/db-0/db", exclusive, "4-7,24-27"),
			own("shop/db-0/exporter", exclusive, "8"),
			own("shop/queue-0/queue", share, "3,23"),
			own("shop/web-0/web", exclusive, "1-2,21-22"),
			own("train/ps-0/ps", exclusive, "10-19,30-39")),
		"epyc": given(shape{2, 1, 8, 8, 2}.topology(), "0,128"),
		"epyc-granted": given(shape{2, 1, 8, 8, 2}.topology(), "0,128",
			own("shop/db-0/db", exclusive, "8-23,136-151"),
			own("shop/web-0/web", exclusive, "1-2,129-130"),
			own("video/encode-3/ffmpeg", share, "64-71,192-199")),
		"epyc-nps4-512": given(shape{2, 4, 4, 8, 2}.topology(), "0-1,256-257",
			own("shop/db-0/db", exclusive, "8-15,264-271")),
		"hybrid": given(hybrid, "16", own("shop/web-0/web", exclusive, "4-7"), own("shop/web-1/web", exclusive, "17")),
		"turns":  given(turns, "0,20"),
		"fault":  given(vm, "", own("shop/web-0/web", exclusive, "1"), own("shop/web-1/web", exclusive, "1")),
		"no-topology": {
			Notices: []string{"the topology cannot be read: /sys/devices/system/cpu/online: no such file or directory"},
		},
	}
	all["xeon-granted"].Notices = []string{
		"shop/batch-1: exclusive needs a whole number of CPUs as limit, and 1500m is none: it runs as none",
	}
	all["fault"].Shared.Add(1)
	all["turns"].Shared.Remove(19)
	return all
}

// TestCPUMaps compares maps with those in testdata/cpus.
func TestCPUMaps(t *testing.T) {
	for name, m := range cpuMaps() {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printCPUMap(&out, m, name, plain); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if line = strings.TrimSuffix(line, "\n"); strings.HasSuffix(line, " ") || len(line) > 160 {
					t.Errorf("%q ends in a space or is too long", line)
				}
			}
			golden.Compare(t, filepath.Join("testdata/cpus", name+".txt"), out.String())
		})
	}
}

// TestCPUPlans compares what would move with what is in testdata/cpus.
func TestCPUPlans(t *testing.T) {
	request := serve.CPURequest{Namespace: "shop", Name: "web-0", Mode: model.CPUExclusive}
	for name, p := range plans() {
		var out bytes.Buffer
		if err := printCPUPlan(&out, p, request); err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, filepath.Join("testdata/cpus", name+".txt"), out.String())
	}
}

func plans() map[string]*serve.CPUPlan {
	return map[string]*serve.CPUPlan{
		"plan-none": {},
		"plan": {Moves: []serve.CPUMove{
			{
				Namespace: "shop", Name: "api-0", Container: "api", From: cpuSet("0-39"), To: cpuSet("0,2-20,22-39"),
				Why: "2 CPUs became exclusive",
			},
			{Namespace: "shop", Name: "web-0", Container: "web", From: cpuSet("0-39"), To: cpuSet("1,21"),
				Why: "asks for 2 exclusive CPUs; a whole core is free in NUMA node 0"},
		}},
	}
}

// TestCPUMapCoversAll checks on each machine that every CPU online is in exactly one row, with a mark of its own.
func TestCPUMapCoversAll(t *testing.T) {
	for name, m := range cpuMaps() {
		v := newCPUView(m)
		var seen model.CPUSet
		for i := range v.rows {
			r := &v.rows[i]
			if seen.Overlaps(r.cpus) || len(r.marks)*r.cores.Len() != r.cpus.Len() {
				t.Errorf("%s: row %+v shows CPUs twice, or not all", name, r)
			}
			seen = seen.Or(r.cpus)
		}
		if seen != v.online {
			t.Errorf("%s: shown are %s of %s", name, seen, v.online)
		}
	}
}

// TestPaint checks that colours are the only difference on a terminal, and that there are none elsewhere.
func TestPaint(t *testing.T) {
	m := cpuMaps()["fault"]
	var coloured, monochrome bytes.Buffer
	if err := errors.Join(printCPUMap(&coloured, m, "", painted),
		printCPUMap(&monochrome, m, "", paintFor(&monochrome))); err != nil {
		t.Fatal(err)
	}
	text := coloured.String()
	for {
		before, rest, found := strings.Cut(text, "\x1b[")
		if !found {
			break
		}
		_, after, _ := strings.Cut(rest, "m")
		text = before + after
	}
	if text != monochrome.String() || strings.Contains(monochrome.String(), "\x1b") || text == coloured.String() {
		t.Errorf("in colours\n%q\nwithout\n%q", coloured.String(), monochrome.String())
	}
}

func TestOnlyNode(t *testing.T) {
	for _, tc := range []struct {
		nodes []string
		want  string
		says  string
	}{
		{nil, "", "no agent runs in namespace waterline-system"},
		{[]string{"a"}, "a", ""},
		{[]string{"b", "a"}, "", "name a node with --node: there are a, b"},
		{strings.Split("g f e d c b a", " "), "", "there are a, b, c, d, e and 2 more"},
	} {
		got, err := onlyNode(slices.Clone(tc.nodes), "waterline-system")
		if got != tc.want || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%v: %q, %v", tc.nodes, got, err)
		}
	}
}

// TestNoAgentOnNode asks an API server for the agent of a node that has none, and for the node of a pod.
func TestNoAgentOnNode(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		if strings.HasSuffix(r.URL.Path, "/namespaces/shop/pods/web-0") {
			answer = &corev1.Pod{
				TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, Spec: corev1.PodSpec{NodeName: "worker-3"},
			}
		} else {
			asked = r.URL.Path + " " + r.FormValue("fieldSelector")
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	a, err := connectTo(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	node, err := findNode(t.Context(), a, "shop", "web-0")
	if err != nil || node != "worker-3" {
		t.Fatalf("the pod is on %q, %v", node, err)
	}
	_, _, err = forwardToNode(t.Context(), a, node, agentPort)
	if err == nil || err.Error() != "no agent runs on node worker-3, in namespace waterline-system" {
		t.Errorf("got %v", err)
	}
	if want := "/api/v1/namespaces/waterline-system/pods status.phase=Running,spec.nodeName=worker-3"; asked != want {
		t.Errorf("asked was %q, want %q", asked, want)
	}
	if _, err = findNode(t.Context(), a, "", ""); err == nil ||
		!strings.Contains(err.Error(), "no agent runs in namespace") {
		t.Errorf("without a node: %v", err)
	}
}

// serveAgent stands in for the local listener of an agent.
func serveAgent(w http.ResponseWriter, r *http.Request) {
	var answer any = cpuMaps()["vm-granted"]
	switch plan := r.FormValue("plan"); {
	case r.URL.Path == "/explain":
		http.Error(w, "this node has no such pod", http.StatusNotFound)
		return
	case r.URL.Path != "/cpus":
		http.NotFound(w, r)
		return
	case plan == "shop/nobody=share":
		http.Error(w, "this node has no pod nobody in namespace shop", http.StatusNotFound)
		return
	case plan == "shop/web-0=exclusive":
		answer = plans()["plan"]
	case plan != "":
		answer = &serve.CPUPlan{Refusal: fmt.Sprintf("%s asks for 3 CPUs, and 1 of 2 could be given", plan)}
	}
	_ = json.NewEncoder(w).Encode(answer)
}
