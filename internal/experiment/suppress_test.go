package experiment

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

	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// drawn is the trace of a step that lasts from 2 to 5 s of 4 CPUs, with a sample every 5 ms, in which batch may use what is
// said from each moment on, in seconds, and uses what it may with a delay of 50 ms.
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
		what   string
		points []float64
		want   step
	}{
		{"at once", []float64{0, 4000, 2.15, 2000, 6.5, 4000}, step{4000, 2000, 0, 2000, 150, 280, 1500, 5}},
		{"in two parts", []float64{0, 4000, 2.1, 3000, 2.2, 2000, 6, 3700}, step{4000, 2000, 0, 2000, 200, 310, 1000, 5}},
		{"nearly at once", []float64{0, 4000, 2.1, 2300, 2.2, 2000, 6, 4000}, step{4000, 2000, 0, 2000, 100, 240, 1000, 5}},
		{"too much", []float64{0, 4000, 2.15, 1500, 2.3, 1000, 3, 2000, 6.5, 4000}, step{4000, 1000, 1000, 2000, 300, 370, 1500, 5}},
		{"late", []float64{0, 4000, 4.2, 2000, 6.5, 4000}, step{4000, 2000, 0, 2000, 2200, 2330, 1500, 5}},
		{"not back", []float64{0, 4000, 2.15, 2000, 6.5, 3500}, step{4000, 2000, 0, 2000, 150, 280, no, 5}},
		{"back little by little", []float64{0, 4000, 2.15, 2000, 6.5, 3000, 7.5, 3600}, step{4000, 2000, 0, 2000, 150, 280, 2500, 5}},
		{"not at all", []float64{0, 4000, 2.15, 3700}, step{4000, 3700, 0, 2000, no, no, no, 5}},
		{"before its time", []float64{0, 4000, 1.9, 3900, 2.15, 2000, 6.5, 4000}, step{4000, 2000, 0, 2000, 150, 280, 1500, 5}},
		{"a moment", []float64{0, 4000, 2.15, 2000, 2.3, 4000}, step{4000, 4000, 0, 2000, no, no, no, 5}},
	} {
		got := drawn(c.points...).judge()
		// The sample in which something is seen, and what was used since the one before the period.
		for name, f := range map[string][2]float64{"down": {got.down, c.want.down}, "used": {got.used, c.want.used}, "back": {got.back, c.want.back}, "late": {got.late, c.want.late}} {
			if math.IsNaN(f[0]) != math.IsNaN(f[1]) || math.Abs(f[0]-f[1]) > 10 {
				t.Errorf("%s: %s is %v, not %v", c.what, name, f[0], f[1])
			}
		}
		if got.before != c.want.before || got.after != c.want.after || got.overshoot != c.want.overshoot || got.online != c.want.online {
			t.Errorf("%s: %v, not %v", c.what, got, c.want)
		}
		again, err := parseStep(got.String())
		if err != nil || again.String() != got.String() {
			t.Errorf("%s: %v read as %v: %v", c.what, got, again, err)
		}
	}
	if s := (&trace{machine: 4000}).judge(); !math.IsNaN(s.down) {
		t.Errorf("without a sample: %v", s)
	}
	if _, err := parseStep("1 2 3"); err == nil {
		t.Error("half a line was read")
	}
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		quota int64
		cpus  model.CPUSet
		want  int64
	}{
		{model.Unlimited, model.CPUs(0, 1, 2, 3), 4000}, {model.Unlimited, model.CPUs(1, 2), 2000}, {50_000, model.CPUs(1), 500},
		{150_000, model.CPUs(1), 1000}, {150_000, model.CPUs(0, 1, 2, 3), 1500}, {900_000, model.CPUs(0, 1, 2, 3, 4, 5), 4000},
	} {
		if got := allowed(c.quota, c.cpus, 4000); got != c.want {
			t.Errorf("quota %d on %s: %d, not %d", c.quota, c.cpus, got, c.want)
		}
	}
}

func TestParseUsage(t *testing.T) {
	for text, want := range map[string]time.Duration{"1234567\n": 1234567, "usage_usec 1234\nuser_usec 1\n": 1234 * time.Microsecond} {
		if got, err := parseUsage([]byte(text)); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "nr_periods 3\n", "usage_usec x\n"} {
		if _, err := parseUsage([]byte(bad)); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}

// suppressed is an experiment of steps that took 1, 2, … ms, on a machine that does nothing else.
func suppressed(n int) Suppression {
	s := Suppression{Machine: "4 × CPU", By: "quota", Length: 6 * time.Second, scheduled: "SCHED_FIFO", reader: 10 * time.Millisecond}
	for i := range n {
		ms := float64(n - i)
		s.steps = append(s.steps, step{4000, 2000, int64(i), 1990, ms, ms + 100, 10 * ms, 5})
	}
	s.window = window{length: 10 * time.Second, busy: 1.001, used: map[string]time.Duration{"online": 5 * time.Second, "batch": 4900 * time.Millisecond, "agent": 100 * time.Millisecond}}
	return s
}

func TestSuppression(t *testing.T) {
	s := suppressed(200)
	r := s.Result()
	for key, want := range map[string]float64{
		"suppress_p50_ms": 100, "suppress_p99_ms": 198, "suppress_max_ms": 200, "use_p99_ms": 298, "giveback_p50_ms": 1000, "giveback_p99_ms": 1980,
		"overshoot_milli_max": 199, "before_milli_p50": 4000, "after_milli_p50": 2000, "online_milli_p50": 1990, "steps": 200, "steps_not_smaller": 0,
		"steps_not_given_back": 0, "reader_late_p99_ms": 5, "other_cpus": 0, "agent_cpus": 0.01, "reader_cpus": 0.001, "cpus_machine": float64(runtime.NumCPU()),
	} {
		if got, found := r.Metrics[key]; !found || got != want {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	if got := r.Headline.String(); got != "p99 198 ms, given back after 1980 ms, p99 (goal: ≤ 300 ms, in every step, and always given back; met)" {
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

// The goal is met by all that was to happen on a machine that does nothing else, and by nothing less.
func TestSuppressionNotMet(t *testing.T) {
	for what, spoil := range map[string]func(*Suppression){
		"given less in the second that follows": func(s *Suppression) { s.steps[0].down, s.steps[1].down, s.steps[2].down = 301, 301, 301 },
		"In 1 steps batch was not given less": func(s *Suppression) {
			s.steps[7].down, s.steps[7].used, s.steps[7].back = math.NaN(), math.NaN(), math.NaN()
		},
		"After 1 steps batch did not have back": func(s *Suppression) { s.steps[7].back = math.NaN() },
		"The rest of the machine used 0.20":     func(s *Suppression) { s.window.busy += 0.2 },
		"of 0 steps":                            func(s *Suppression) { s.steps = nil },
	} {
		s := suppressed(200)
		spoil(&s)
		r := s.Result()
		said := strings.Contains(strings.Join(r.Notes, "\n"), what)
		if r.Headline.Met || !said && !strings.HasPrefix(what, "given less") {
			t.Errorf("%s: %s, %v", what, r.Headline, r.Notes)
		}
		if lost := r.Metrics["steps_not_smaller"] + r.Metrics["steps_not_given_back"]; lost > 1 {
			t.Errorf("%s: one step counts as %v", what, lost)
		}
		if _, err := r.JSON(""); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The agent must take the pods for what they are, and the policy must be one.
func TestSuppressPods(t *testing.T) {
	online, batch := suppressPods()
	for _, p := range []*pod{online, batch} {
		text, err := p.manifest()
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
		if !ok || got.QoS != p.qos || got.Class != want || len(got.Annotations.Notices) > 0 {
			t.Errorf("%+v from\n%s", got, text)
		}
	}
	for _, by := range []model.SuppressMethod{model.SuppressByCpuset, model.SuppressByQuota, model.SuppressByBoth} {
		text, err := policyText("", string(by))
		if err != nil {
			t.Fatal(err)
		}
		p, err := kube.ParsePolicy([]byte(text))
		if err != nil || p.Policy.Mode != model.ModeEnforce || p.Policy.Suppress.By != by || p.Policy.CPU.Waterline != 1000 {
			t.Errorf("%s: %+v, %v", by, p, err)
		}
	}
	if _, err := policyText(filepath.Join(t.TempDir(), "none.yaml"), ""); err == nil {
		t.Error("a policy that is not there was read")
	}
}

// The stepper runs on plain files, and its online load is nobody.
func TestMakeSteps(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for name, text := range map[string]string{"online=cpu.stat": "usage_usec 1\n", "batch=cpu.stat2": "2\n", "quota=cpu.max": "max 100000\n", "cpus=cpuset.cpus": "0\n"} {
		_, file, _ := strings.Cut(name, "=")
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, strings.Replace(name, "=", "="+dir+"/", 1))
	}
	s := stepper{stepping: stepping{files: files, length: 20 * time.Millisecond}, fds: map[string]int{}, start: time.Now()}
	s.trace.machine = 1000
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	if err := s.step(); err != nil {
		t.Fatal(err)
	}
	tr := &s.trace
	if first := tr.samples[0]; first.milli != 1000 || first.online != time.Microsecond || first.batch != 2 || tr.before() != 1000 {
		t.Errorf("%+v", first)
	}
	if took := tr.ended - tr.began; tr.began < lead || took < s.length || tr.samples[len(tr.samples)-1].at < tr.ended {
		t.Errorf("from %v to %v", tr.began, tr.ended)
	}
	if least := 2 * s.length; restAfter(tr) < least+time.Second || s.cost <= 0 {
		t.Errorf("rests for %v; a look takes %v", restAfter(tr), s.cost)
	}
	for _, missing := range files {
		s := stepper{fds: map[string]int{}}
		for _, file := range files {
			if file != missing {
				s.files = append(s.files, file)
			}
		}
		if err := s.open(); err == nil {
			t.Errorf("without %s", missing)
		}
	}
}
