package redisbench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// TestRepeat checks that a run in which the generator was late, or the CPU slow, is tried three times at most, and one
// without a generator once.
func TestRepeat(t *testing.T) {
	cells := []Cell{
		{Mode: Mode{Name: Plain, Online: true}, Load: 0.3},        // always late
		{Mode: Mode{Name: Plain, Online: true}, Load: 0.6},        // never late
		{Mode: Mode{Name: Waterline, Online: true}, Load: 0.3},    // late twice
		{Mode: Mode{Name: Unsuppressed, Online: true}, Load: 0.3}, // never late
		{Mode: Mode{Name: BatchAlone}},                            // has no generator
	}
	tried := map[string]int{}
	b := &bench{found: Runs{Repeats: 1, Latest: time.Millisecond}, measure: func(_ context.Context, c Cell) (Run, error) {
		key := fmt.Sprintf("%s %v", c.Name, c.Load)
		if c.attempt != tried[key] {
			t.Errorf("%s: attempt %d after %d", key, c.attempt, tried[key])
		}
		tried[key]++
		r := Run{Mode: c.Name, Load: c.Load, Late: []float64{0.9}}
		if c.Load == 0.3 && (c.Name == Plain || c.Name == Waterline && c.attempt < 2) || !c.Online {
			r.Late[0] = 1.1
		}
		if c.Name == Waterline && c.attempt == 1 {
			r.Late[0], r.Requests = 0.9, slowRequests(100, 1)
		}
		return r, nil
	}}
	if err := b.all(t.Context(), cells); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"plain 0.3": 3, "plain 0.6": 1, "waterline 0.3": 3, "unsuppressed 0.3": 1, "batch_alone 0": 1}
	if !maps.Equal(tried, want) || len(b.found.Counted) != 4 || len(b.found.Discarded) != 5 ||
		len(b.found.Of(Plain, 0.3)) != 0 || len(b.found.Of(Waterline, 0.3)) != 1 {
		t.Errorf("%v; %d runs, %d discarded", tried, len(b.found.Counted), len(b.found.Discarded))
	}
}

// TestAnyCPU checks that a run on a slow CPU counts, and is not repeated, where any CPU will do.
func TestAnyCPU(t *testing.T) {
	for anyCPU, counted := range map[bool]int{false: 0, true: 1} {
		b := &bench{cfg: Config{AnyCPU: anyCPU}, found: Runs{Repeats: 1, Latest: time.Millisecond}}
		b.measure = func(context.Context, Cell) (Run, error) {
			return Run{Late: []float64{0.9}, Requests: slowRequests(100, 1)}, nil
		}
		if err := b.all(t.Context(), []Cell{{Mode: Mode{Name: Plain, Online: true}}}); err != nil {
			t.Fatal(err)
		}
		if discarded := attempts * (1 - counted); len(b.found.Counted) != counted || len(b.found.Discarded) != discarded {
			t.Errorf("any CPU %v: %d runs count, %d do not", anyCPU, len(b.found.Counted), len(b.found.Discarded))
		}
	}
}

// TestMinutes checks that no repeat begins after the time for all, but the first.
func TestMinutes(t *testing.T) {
	for minutes, want := range map[int]int{0: 5, 1: 1, 40: 2, 41: 3, 1000: 5} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			b := &bench{cfg: Config{Minutes: minutes}, found: Runs{Repeats: 5}}
			b.measure = func(context.Context, Cell) (Run, error) {
				runs++
				time.Sleep(20 * time.Minute)
				return Run{}, nil
			}
			if err := b.all(t.Context(), []Cell{{Mode: Mode{Name: BatchAlone}}}); err != nil {
				t.Fatal(err)
			}
			if runs != want || b.found.Repeats != want {
				t.Errorf("%d minutes: %d runs in %d repeats, not %d", minutes, runs, b.found.Repeats, want)
			}
		})
	}
}

// slowRequests returns requests some of which are on a slow CPU.
func slowRequests(all, slow int) []load.Request {
	requests := make([]load.Request, all)
	for i := range requests {
		requests[i].Took = slowTimes * RequestCost
		if i < slow {
			requests[i].Took++
		}
	}
	return requests
}

func TestSlowCPU(t *testing.T) {
	for slow, want := range map[int]bool{0: false, 1: false, 2: true} {
		if r := (Run{Requests: slowRequests(200, slow)}); r.slowCPU() != want {
			t.Errorf("%d of 200: %v", slow, !want)
		}
	}
}

// TestUnwaited checks the latency without waits for a CPU: requests queue for each other all the same.
func TestUnwaited(t *testing.T) {
	const ms = time.Millisecond
	r := Run{Requests: []load.Request{
		{Due: 10 * ms, Took: 2 * ms},
		{Due: 11 * ms, Took: 3 * ms}, // begins at 12
		{Due: 20 * ms, Took: 1 * ms},
	}}
	if got := r.unwaited(); !slices.Equal(got, []float64{1, 2, 4}) {
		t.Error(got)
	}
	r.Mode, r.Latency = Plain, []float64{1, 3, 8}
	runs := Runs{Latest: time.Millisecond, Counted: []Run{r}, Discarded: []Run{r, r}}
	runs.Discarded[0].Late, runs.Discarded[1].Latency = []float64{2}, []float64{12}
	result := report.Result{Metrics: map[string]float64{}, Series: map[string][]float64{}}
	runs.addWaits(&result, "plain_", Plain, 0)
	if got := result.Series["plain_p99_waits_ratio"]; !slices.Equal(got, []float64{2, 3}) ||
		result.Metrics["plain_p99_waits_ratio"] != 2.5 {
		t.Errorf("%v, %v", got, result.Metrics)
	}
	r.Mode, r.Latency = Alone, []float64{1, 3, 5}
	runs.Counted = append(runs.Counted, r)
	if runs.addWaits(&result, "plain_", Plain, 0); result.Metrics["plain_p99_waits_over_alone"] != 2 {
		t.Error(result.Metrics)
	}
}

func TestCount(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	r := Run{Lead: 3 * s}
	r.Count([]load.Request{
		{Due: 1 * s, Sent: 1 * s, Ready: 2 * s}, // too early
		{Due: 4 * s, Sent: 4*s + 2*ms, Ready: 4*s + 10*ms},
		{Due: 5 * s, Sent: 5 * s, Ready: 5*s + 20*ms, Refused: true},
		{Due: 6 * s, Sent: 6 * s}, // not answered
	})
	if fmt.Sprint(r.Latency) != "[10 20 30000]" || r.Errors != 2 || r.Late[2] != 2 || len(r.Requests) != 3 {
		t.Errorf("%v, %d errors, late %v", r.Latency, r.Errors, r.Late)
	}
}

func TestParseStress(t *testing.T) {
	got, err := parseStress("metrics:\n    - stressor: cpu\n      bogo-ops: 905\n      " +
		"bogo-ops-per-second-usr-sys-time: 809.39\n" +
		"      bogo-ops-per-second-real-time: 460.195259\n      user-time: 1.1\n")
	if err != nil || got != 460.195259 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "bogo-ops-per-second-real-time: x\n"} {
		if _, err := parseStress(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// TestBatchPods checks what the agent reads from the pods.
func TestBatchPods(t *testing.T) {
	for _, waterline := range []bool{false, true} {
		encoder, burner := batchPods(waterline, false)
		for _, p := range []pod{encoder, burner, serverPod()} {
			text, err := p.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			var manifest corev1.Pod
			if err := yaml.UnmarshalStrict(text, &manifest); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			got, ok := kube.Pod(&manifest, "")
			want := model.ClassLS
			if p.BatchMilli != 0 {
				want = model.ClassBE
			}
			if !ok || got.QoS != p.QoS || got.Class != want || got.Grant.RequestMilli != p.BatchMilli ||
				got.RequestMilli != p.RequestMilli || len(got.Annotations.Notices) > 0 {
				t.Errorf("%+v from\n%s", got, text)
			}
		}
	}
}

func TestFindProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := findProgram(redisProgram)
	if !errors.Is(err, sandbox.ErrUnusable) || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Error(err)
	}
}

func TestReadNodeCPU(t *testing.T) {
	const rest = " S 1 20 20 0 -1 4194560 1 2 3 4 "
	proc := t.TempDir()
	for pid, stat := range map[string]string{
		"1":    "1 (init)" + rest + "100 200 5 6 20 0 1 0 1 2\n",
		"20":   "20 (kubelet)" + rest + "150 50 5 6 20 0 1 0 1 2\n",
		"21":   "21 (containerd-shim)" + rest + "3 4 5 6 20 0 1 0 1 2\n",
		"30":   "30 (kube-controller)" + rest + "0 1 5 6 20 0 1 0 1 2\n",
		"31":   "31 (a) etcd (b)" + rest + "900 1 5 6 20 0 1 0 1 2\n",
		"self": "20 (kubelet)" + rest + "150 50 5 6 20 0 1 0 1 2\n",
	} {
		dir := filepath.Join(proc, pid)
		err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	used, err := readNodeCPU(proc)
	if err != nil || used[Kubelet] != 2070*time.Millisecond || used[ControlPlane] != 10*time.Millisecond ||
		len(used) != 2 {
		t.Errorf("%v, %v", used, err)
	}
	if _, err := readNodeCPU("/proc"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "1 init S", "1 (init) S 0 1", "1 (init)" + rest + "x 200 5"} {
		if _, _, err := parseProcess(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}
