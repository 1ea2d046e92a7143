package suppress

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// drawn is the trace of a step from 2 to 5 s on 4 CPUs, with a sample every 5 ms. The points are moments, in seconds,
// and the allowance of batch from then on. Batch uses all of it with a delay of 50 ms.
func drawn(points ...float64) *trace {
	t := &trace{began: 2 * time.Second, ended: 5 * time.Second, machine: 4000}
	may := func(at time.Duration) int64 {
		var milli float64
		for i := 0; i < len(points); i += 2 {
			if at.Seconds() >= points[i] {
				milli = points[i+1]
			}
		}
		return int64(milli)
	}
	var x sample
	for at := time.Second; at < 8*time.Second; at += sampleEvery {
		x.at, x.milli = at, may(at)
		x.batch += sampleEvery * time.Duration(may(at-50*time.Millisecond)) / 1000
		if at >= t.began && at < t.ended {
			x.online += 2 * sampleEvery
		}
		t.samples = append(t.samples, x)
	}
	return t
}

func TestStep(t *testing.T) {
	no := math.NaN()
	for _, c := range []struct {
		name   string
		points []float64
		want   step
	}{
		{"at once", []float64{0, 4000, 2.15, 2000, 6.5, 4000}, step{4000, 2000, 0, 2000, 150, 280, 1500, 5}},
		{"in two parts", []float64{0, 4000, 2.1, 3000, 2.2, 2000, 6, 3700}, step{4000, 2000, 0, 2000, 200, 310, 1000, 5}},
		{"nearly at once", []float64{0, 4000, 2.1, 2300, 2.2, 2000, 6, 4000}, step{4000, 2000, 0, 2000, 100, 240, 1000, 5}},
		{"too much", []float64{0, 4000, 2.15, 1500, 2.3, 1000, 3, 2000, 6.5, 4000}, step{4000, 1000, 1000, 2000, 300, 370,
			1500, 5}},
		{"late", []float64{0, 4000, 4.2, 2000, 6.5, 4000}, step{4000, 2000, 0, 2000, 2200, 2330, 1500, 5}},
		{"not back", []float64{0, 4000, 2.15, 2000, 6.5, 3500}, step{4000, 2000, 0, 2000, 150, 280, no, 5}},
		{"back little by little", []float64{0, 4000, 2.15, 2000, 6.5, 3000, 7.5, 3600}, step{4000, 2000, 0, 2000, 150, 280,
			2500, 5}},
		{"not at all", []float64{0, 4000, 2.15, 3700}, step{4000, 3700, 0, 2000, no, no, no, 5}},
		{"before its time", []float64{0, 4000, 1.9, 3900, 2.15, 2000, 6.5, 4000}, step{4000, 2000, 0, 2000, 150, 280, 1500,
			5}},
		{"a moment", []float64{0, 4000, 2.15, 2000, 2.3, 4000}, step{4000, 4000, 0, 2000, no, no, no, 5}},
	} {
		got := drawn(c.points...).judge()
		// A sample may come up to 5 ms after the moment, and one more at the begin of the span.
		for name, f := range map[string][2]float64{
			"down": {got.down, c.want.down}, "used": {got.used, c.want.used}, "back": {got.back, c.want.back},
			"late": {got.late, c.want.late},
		} {
			if math.IsNaN(f[0]) != math.IsNaN(f[1]) || math.Abs(f[0]-f[1]) > 10 {
				t.Errorf("%s: %s is %v, not %v", c.name, name, f[0], f[1])
			}
		}
		if got.before != c.want.before || got.after != c.want.after || got.overshoot != c.want.overshoot ||
			got.online != c.want.online {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
		again, err := parseStep(got.String())
		if err != nil || again.String() != got.String() {
			t.Errorf("%s: %v read as %v: %v", c.name, got, again, err)
		}
	}
	if s := (&trace{machine: 4000}).judge(); !math.IsNaN(s.down) {
		t.Errorf("without a sample: %v", s)
	}
	if _, err := parseStep("1 2 3"); err == nil {
		t.Error("no error for half a line")
	}
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		quota int64
		cpus  model.CPUSet
		want  int64
	}{
		{model.Unlimited, model.CPUs(0, 1, 2, 3), 4000},
		{model.Unlimited, model.CPUs(1, 2), 2000},
		{50_000, model.CPUs(1), 500},
		{150_000, model.CPUs(1), 1000},
		{150_000, model.CPUs(0, 1, 2, 3), 1500},
		{900_000, model.CPUs(0, 1, 2, 3, 4, 5), 4000},
	} {
		if got := allowed(cgroup.Raw{Number: c.quota}, c.cpus, 4000); got != c.want {
			t.Errorf("quota %d on %s: %d, not %d", c.quota, c.cpus, got, c.want)
		}
	}
}

// suppressed is an experiment of steps that took 1, 2, … ms, on a machine that does nothing else.
func suppressed(n int) *outcome {
	o := &outcome{by: "quota", length: 6 * time.Second, scheduled: "SCHED_FIFO", reader: 10 * time.Millisecond}
	for i := range n {
		ms := float64(n - i)
		o.steps = append(o.steps, step{4000, 2000, int64(i), 1990, ms, ms + 100, 10 * ms, 5})
	}
	o.window = measure.Window{Length: 10 * time.Second, Busy: 1.001, Used: map[string]time.Duration{
		"online": 5 * time.Second, "batch": 4900 * time.Millisecond, "agent": 100 * time.Millisecond,
	}}
	return o
}

func resultOf(o *outcome) *report.Result {
	r := report.Begin(Name, About)
	o.report(&r)
	return &r
}

func TestResult(t *testing.T) {
	r := resultOf(suppressed(200))
	for key, want := range map[string]float64{
		"suppress_p50_ms": 100, "suppress_p99_ms": 198, "suppress_max_ms": 200, "use_p99_ms": 298, "giveback_p50_ms": 1000,
		"giveback_p99_ms": 1980, "overshoot_milli_max": 199, "before_milli_p50": 4000, "after_milli_p50": 2000,
		"online_milli_p50": 1990, "steps": 200, "steps_not_smaller": 0, "steps_not_given_back": 0, "reader_late_p99_ms": 5,
		"other_cpus": 0, "agent_cpus": 0.01, "reader_cpus": 0.001, "cpus_machine": float64(runtime.NumCPU()),
	} {
		if got, found := r.Metrics[key]; !found || got != want {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	const headline = "p99 198 ms, given back after 1980 ms, p99 " +
		"(goal: ≤ 300 ms, in every step, and always given back; met)"
	if got := r.Headline.String(); got != headline {
		t.Error(got)
	}
	for _, cells := range r.Table.Rows {
		if len(cells) != len(r.Table.Head) {
			t.Errorf("%d cells under %d heads: %v", len(cells), len(r.Table.Head), cells)
		}
	}
	if svg := chart.Standalone(r.Chart); !strings.Contains(svg, "goal 300 ms") {
		t.Error(svg)
	}
	if len(r.Series["suppress_ms"]) != 200 || strings.Contains(strings.Join(r.Notes, "\n"), "The rest of the machine") {
		t.Errorf("%d, %v", len(r.Series["suppress_ms"]), r.Notes)
	}
}

// TestResultNotMet checks what keeps the goal from being met.
func TestResultNotMet(t *testing.T) {
	for note, spoil := range map[string]func(*outcome){
		"none": func(o *outcome) {
			o.steps[0].down, o.steps[1].down, o.steps[2].down = 301, 301, 301
		},
		"In 1 steps batch was not given less": func(o *outcome) {
			o.steps[7].down, o.steps[7].used, o.steps[7].back = math.NaN(), math.NaN(), math.NaN()
		},
		"After 1 steps batch did not have its CPU back": func(o *outcome) { o.steps[7].back = math.NaN() },
		"The rest of the machine used 0.20":             func(o *outcome) { o.window.Busy += 0.2 },
		"of 0 steps":                                    func(o *outcome) { o.steps = nil },
	} {
		o := suppressed(200)
		spoil(o)
		r := resultOf(o)
		noted := strings.Contains(strings.Join(r.Notes, "\n"), note)
		if r.Headline.Met || !noted && note != "none" {
			t.Errorf("%s: %s, %v", note, r.Headline, r.Notes)
		}
		if lost := r.Metrics["steps_not_smaller"] + r.Metrics["steps_not_given_back"]; lost > 1 {
			t.Errorf("%s: one step counts as %v", note, lost)
		}
		if _, err := r.JSON(""); err != nil {
			t.Errorf("%s: %v", note, err)
		}
	}
}

// TestPods checks what the agent reads from the pods.
func TestPods(t *testing.T) {
	online, batch := pods()
	for _, p := range []*sandbox.Pod{online, batch} {
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
		if p == batch {
			want = model.ClassBE
		}
		if !ok || got.QoS != p.QoS || got.Class != want || len(got.Annotations.Notices) > 0 {
			t.Errorf("%+v from\n%s", got, text)
		}
	}
}

// TestReader runs the reader on plain files, without online load.
func TestReader(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"online": "usage_usec 1\n", "batch": "usage_usec 2\n", "quota": "max 100000\n", "cpus": "0\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := stepping{
		Version: cgroup.V2, Online: filepath.Join(dir, "online"), Batch: filepath.Join(dir, "batch"),
		Quota: filepath.Join(dir, "quota"), CPUs: filepath.Join(dir, "cpus"), Length: 20 * time.Millisecond,
	}
	r, err := newReader(in)
	if err != nil {
		t.Fatal(err)
	}
	r.trace.machine = 1000
	if err := r.step(); err != nil {
		t.Fatal(err)
	}
	tr := &r.trace
	first := tr.samples[0]
	if first.milli != 1000 || first.online != time.Microsecond || first.batch != 2*time.Microsecond ||
		tr.before() != 1000 {
		t.Errorf("%+v", first)
	}
	if took := tr.ended - tr.began; tr.began < lead || took < in.Length || tr.samples[len(tr.samples)-1].at < tr.ended {
		t.Errorf("from %v to %v", tr.began, tr.ended)
	}
	if least := 2 * in.Length; restAfter(tr) < least+time.Second || r.cost <= 0 {
		t.Errorf("rests for %v; a sample takes %v", restAfter(tr), r.cost)
	}
	in.CPUs = filepath.Join(dir, "none")
	if _, err := newReader(in); err == nil {
		t.Error("no error for a file that does not exist")
	}
}
