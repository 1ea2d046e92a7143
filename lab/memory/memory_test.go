package memory

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/decide/node/memory"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/lab/counter"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// journalOf returns a directory with a journal.
func journalOf(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "journal.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestParseEvents(t *testing.T) {
	const text, stat = "low 1\nhigh 2\nmax 3\noom 9\noom_kill 4\noom_group_kill 9\n",
		"anon 9\nworkingset_refault_anon 9\nworkingset_refault_file 5\n"
	got, err := parseEvents(text, stat)
	if want := (events{refaults: 5, low: 1, high: 2, max: 3, killed: 4}); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if more := got.since(events{1, 1, 1, 1, 1}); more != (events{4, 0, 1, 2, 3}) {
		t.Errorf("%+v", more)
	}
	for _, bad := range [][2]string{
		{"", stat}, {text, "anon 9\n"}, {strings.Replace(text, "4", "x", 1), stat}, {"low", stat},
	} {
		if _, err := parseEvents(bad[0], bad[1]); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestReclaimed(t *testing.T) {
	const now = `"Now":"2026-01-01T12:00:00Z"`
	const line = `{"Node":{` + now + `,"Pods":[],"Reclaimed":{"UID":"b","Requested":9,"Freed":4}},"Plan":{}}` + "\n" +
		`{"Node":{` + now + `}}` + "\n"
	for text, want := range map[string]int64{"": 0, line: 4, line + line: 8, line + `{"Node":{"Recl`: 4} {
		if got, err := reclaimed(journalOf(t, text)); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	if _, err := reclaimed(journalOf(t, "x\n"+line)); err == nil {
		t.Error("no error for a file that is no journal")
	}
	if got, err := reclaimed(t.TempDir()); got != 0 || err != nil {
		t.Errorf("without a journal: %d, %v", got, err)
	}
}

func TestReadBytes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.max")
	read := func(text string) (int64, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return readBytes(file)
	}
	for text, want := range map[string]int64{"max\n": model.Unlimited, "4096\n": 4096} {
		if got, err := read(text); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	if _, err := read("much\n"); err == nil {
		t.Error("no error for a word")
	}
}

// measured is an experiment that met its goal.
func measured() *outcome {
	f := &outcome{seconds: 10}
	for i, m := range modes() {
		f.runs[i].mode = m.name
		f.runs[i].window = measure.Window{Length: 10 * time.Second, Busy: 1, Used: map[string]time.Duration{
			"online": 5 * time.Second, "batch": 5 * time.Second,
		}}
		f.runs[i].answered = 2000
	}
	roomy, plain, waterline := &f.runs[1], &f.runs[2], &f.runs[3]
	roomy.answered = 1600
	plain.answered, plain.waited, waterline.waited = 1000, 300, 95
	plain.online.refaults, plain.online.killed, plain.batch.killed = 5000, 1, 2
	waterline.answered, waterline.online.refaults, waterline.reclaimed = 1900, 500, 32<<20
	waterline.worked, waterline.batch.high = 64<<10, 7
	waterline.seconds = []counts{{used: 3 << 19}, waterline.counts}
	return f
}

func resultOf(o *outcome) *report.Result {
	r := report.Begin(Name, About)
	o.report(&r)
	return &r
}

func TestResult(t *testing.T) {
	r := resultOf(measured())
	for key, want := range map[string]float64{
		"alone_requests": 2000, "alone_requests_per_second": 200, "plain_requests_from_memory_percent": 70,
		"plain_refaults_pages": 5000, "plain_batch_oom_kills": 2, "waterline_reclaimed_mib": 32,
		"waterline_batch_work_mib": 64, "waterline_batch_high_events": 7, "requests_ratio_alone": 1.25,
		"requests_ratio_plain": 0.625, "requests_ratio_waterline": 1.1875, "refaults_ratio": 0.1,
		"waterline_batch_cpus": 0.5, "seconds": 10,
	} {
		if got, found := r.Metrics[key]; !found || got != want {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	const headline = "refaults 5000 → 500, 70.0 → 95.0 % of requests from memory, 1 → 0 times killed " +
		"(goal: online is not killed, a tenth of the refaults, 95 % of requests from memory; met)"
	if got := r.Headline.String(); got != headline {
		t.Error(got)
	}
	for _, cells := range r.Table.Rows {
		if len(cells) != len(r.Table.Head) {
			t.Errorf("%d cells under %d heads: %v", len(cells), len(r.Table.Head), cells)
		}
	}
	if got := r.Series["waterline_batch_mib"]; len(got) != 2 || got[0] != 1.5 {
		t.Error(got)
	}
	if svg := chart.Standalone(r.Chart); !strings.Contains(svg, "500 refaults") {
		t.Error(svg)
	}
	if strings.Contains(strings.Join(r.Notes, "\n"), "outside of the pods") {
		t.Error(r.Notes)
	}
}

// TestResultNotMet checks what keeps the goal from being met.
func TestResultNotMet(t *testing.T) {
	for name, spoil := range map[string]func(*outcome){
		"online is killed":       func(f *outcome) { f.runs[3].online.killed = 1 },
		"a refault too many":     func(f *outcome) { f.runs[3].online.refaults = 501 },
		"nothing is short":       func(f *outcome) { f.runs[2].online.refaults, f.runs[3].online.refaults = 0, 0 },
		"a few from the disk":    func(f *outcome) { f.runs[3].waited = 96 },
		"nothing was answered":   func(f *outcome) { f.runs[1].answered, f.runs[3].answered = 0, 0 },
		"others use the machine": func(f *outcome) { f.runs[0].window.Busy, f.runs[3].online.killed = 1.5, 1 },
	} {
		f := measured()
		spoil(f)
		r := resultOf(f)
		if r.Headline.Met {
			t.Errorf("%s: %s", name, r.Headline)
		}
		notes := strings.Join(r.Notes, "\n")
		if name == "nothing is short" && !strings.Contains(notes, "nothing is shown") ||
			name == "others use the machine" && !strings.Contains(notes, "0.50 CPUs (alone)") {
			t.Errorf("%s: %s", name, notes)
		}
		if _, err := r.JSON(""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for key, value := range r.Metrics {
			if math.IsNaN(value) || math.IsInf(value, 0) {
				t.Errorf("%s: %s is %v", name, key, value)
			}
		}
	}
}

// TestPods checks what the agent reads from the pods and the policy, and that the pods have the OOM scores that NRI
// would set.
func TestPods(t *testing.T) {
	for _, m := range modes() {
		parsed, err := kube.ParsePolicy(fmt.Appendf(nil, policy, m.protects))
		effect := &parsed.Policy
		if err != nil || effect.Mode != model.ModeEnforce || effect.Protect.Memory != m.protects ||
			effect.Suppress.By != model.SuppressByNone {
			t.Fatalf("%+v, %v", parsed, err)
		}
		online, batch := pods(m.protects)
		plainOnline, plainBatch := pods(false)
		for _, p := range []struct {
			*sandbox.Pod
			class    model.Class
			kubelets int
		}{{online, model.ClassLS, plainOnline.OOMScore}, {batch, model.ClassBE, plainBatch.OOMScore}} {
			text, err := p.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			var manifest corev1.Pod
			if err := yaml.UnmarshalStrict(text, &manifest); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			got, ok := kube.Pod(&manifest, "")
			if !ok || got.QoS != p.QoS || got.Class != p.class || len(got.Annotations.Notices) > 0 ||
				got.MemoryRequest+got.Grant.Memory != p.Memory {
				t.Errorf("%+v from\n%s", got, text)
			}
			want := p.kubelets
			if other := memory.OOMScore(got, effect, p.kubelets); other != 0 {
				want = other
			}
			if p.OOMScore != want {
				t.Errorf("mode %s: %s starts with %d, and would with %d", m.name, p.Name, p.OOMScore, want)
			}
		}
	}
}

// lines fails its writer after so many lines.
type lines struct {
	bytes.Buffer
	left int
}

// Write takes lines until there are enough.
func (l *lines) Write(b []byte) (int, error) {
	if l.left--; l.left < 0 {
		return 0, os.ErrClosed
	}
	return l.Buffer.Write(b)
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	f, err := makeFile(dir, 2*chunk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	if info, err := os.Stat(file); err != nil || info.Size() != 2*chunk {
		t.Fatal(info, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v stay behind if this process is killed: %v", left, err)
	}
	if err := dropCache(file); err != nil {
		t.Error(err)
	}
	for key, run := range map[string]func(*lines) error{
		"answered=": func(out *lines) error { return serve(reading{file, 2 * chunk}, out) },
		"done=":     func(out *lines) error { return hog(reading{file, 2 * chunk}, chunk, 2*chunk, out) },
	} {
		out, done := &lines{left: 2}, counter.New(key)
		if err := run(out); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := done.Write(out.Bytes()); err != nil || done.Count() < 1 {
			t.Errorf("%q: %v, %v", out.String(), done.Count(), err)
		}
	}
	if err := serve(reading{file, 4 * chunk}, &lines{}); err == nil || !strings.Contains(err.Error(), "it ends at") {
		t.Errorf("for a file that is too short: %v", err)
	}
}
