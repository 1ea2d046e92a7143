package experiment

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

func TestJSON(t *testing.T) {
	r := Result{
		Name: "weights", When: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), Machine: "2 × CPU",
		Metrics: map[string]float64{"ratio": 2.01}, Series: map[string][]float64{"ratio": {2, 2.02}},
	}
	text, err := r.JSON("abc")
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	const golden = `{"name":"weights","when":"2026-05-01T12:00:00Z","machine":"2 × CPU","commit":"abc","metrics":{"ratio":2.01},"series":{"ratio":[2,2.02]}}`
	if err := json.Unmarshal([]byte(golden), &want); err != nil {
		t.Fatal(err)
	}
	if a, b := mustJSON(t, got), mustJSON(t, want); a != b {
		t.Errorf("%s\nnot %s", a, b)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTable(t *testing.T) {
	table := Table{Head: []string{"pod", "share"}, Rows: [][]string{{"light", "9 %"}, {"a", "91.0 %"}}}
	const want = "pod     share\n─────  ──────\nlight     9 %\na      91.0 %\n"
	if got := table.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestQuantile(t *testing.T) {
	values := make([]float64, 200)
	for i := range values {
		values[i] = float64(i + 1)
	}
	for q, want := range map[float64]float64{0.5: 100, 0.99: 198, 1: 200} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v is %v, not %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.99); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestParseHostCPU(t *testing.T) {
	before, err := parseHostCPU([]byte("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := parseHostCPU([]byte("cpu  150 0 100 720 100 0 0 30 0 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := after.stealSince(before); got != 30 {
		t.Errorf("steal is %v %%", got)
	}
	if got := before.stealSince(before); got != 0 {
		t.Errorf("steal in no time is %v %%", got)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x"} {
		if _, err := parseHostCPU([]byte(bad)); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}

// The agent must understand the manifests, and put the pods where the stand-in makes their cgroups.
func TestManifests(t *testing.T) {
	for _, p := range []*pod{
		{name: "weighted", qos: model.Burstable, requestMilli: 100, shares: 8192},
		{name: "plain", qos: model.Burstable, requestMilli: 100},
		{name: "sure", qos: model.Guaranteed, requestMilli: 1000},
		{name: "alone", qos: model.Guaranteed, requestMilli: 1000, cpus: model.CPUExclusive},
	} {
		k := kubelet{manifests: t.TempDir()}
		if err := k.announce(p); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(k.manifests, p.name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var manifest corev1.Pod
		if err := yaml.UnmarshalStrict(text, &manifest); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		got, ok := kube.Pod(&manifest, "")
		if !ok || got.UID != p.uid() || got.QoS != p.qos || got.RequestMilli != p.requestMilli && p.qos == model.Burstable || got.Annotations.Shares != p.shares || len(got.Annotations.Notices) > 0 {
			t.Errorf("%+v from\n%s", got, text)
		}
		if got.Annotations.CPUs != p.cpus || p.cpus != "" && got.Containers[0].ID != p.hash() {
			t.Errorf("asks for CPUs %q as container %q, from\n%s", got.Annotations.CPUs, got.Containers[0].ID, text)
		}
		if !cgroup.ValidContainerID(p.hash()) {
			t.Errorf("container id %q", p.hash())
		}
	}
}

func TestMayUse(t *testing.T) {
	if err := mayUse(0); err != nil {
		t.Error(err)
	}
	if err := mayUse(1000); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "sudo") {
		t.Errorf("user 1000: %v", err)
	}
}

func TestFindAgent(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := FindAgent(""); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("no agent: %v", err)
	}
	if _, err := FindAgent(filepath.Join(dir, "nothing")); err == nil {
		t.Error("an agent that is not there was found")
	}
	agent := filepath.Join(dir, AgentName)
	if err := os.WriteFile(agent, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := FindAgent(""); err != nil || got != agent {
		t.Errorf("%q, %v", got, err)
	}
}

// The outsider runs on plain files: the first is put right by a second writer, the other by nobody would take 5 s, so
// there is none.
func TestOutsider(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu.shares")
	if err := os.WriteFile(file, []byte("8192"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(time.Millisecond):
				// Pwrite does not truncate a plain file, as the kernel's would.
				if err := os.WriteFile(file, []byte("8192"), 0o600); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	var out bytes.Buffer
	err := outsider([]string{file + "=8192"}, time.Second, 1, &out)
	close(stop)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) < 2 {
		t.Fatalf("only %q", lines)
	}
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "0" {
			t.Fatalf("line %q", line)
		}
		if took, err := strconv.ParseFloat(fields[1], 64); err != nil || math.IsNaN(took) || took <= 0 {
			t.Errorf("line %q: %v", line, err)
		}
	}
}

func TestSweep(t *testing.T) {
	parent := t.TempDir()
	const dead = 1 << 30 // above the kernel's greatest pid
	for _, name := range []string{prefix + strconv.Itoa(dead), prefix + strconv.Itoa(os.Getppid()), prefix + "x", "other"} {
		if err := os.MkdirAll(filepath.Join(parent, name, "kubepods"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sweep(parent, removeTree)
	left, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 3 {
		t.Errorf("left are %v: exactly that of the dead process should be gone", left)
	}
}

func TestOwnCgroup(t *testing.T) {
	const v1 = "12:cpuset:/\n4:cpu,cpuacct:/user.slice/a:b\n3:memory:/m\n0::/unified\n"
	for _, tc := range []struct {
		content, controller, dir string
		ok                       bool
	}{
		{v1, "cpu", "/user.slice/a:b", true},
		{v1, "cpuacct", "/user.slice/a:b", true},
		{v1, "cpuset", "/", true},
		{v1, "pids", "", false},
		{"0::/user.slice/session-1.scope\n", "", "/user.slice/session-1.scope", true},
		{"0::/../other\n", "", "/../other", false},
	} {
		if dir, ok := ownCgroup(tc.content, tc.controller); dir != tc.dir || ok != tc.ok {
			t.Errorf("%q of %q: %q, %v", tc.controller, tc.content, dir, ok)
		}
	}
}
