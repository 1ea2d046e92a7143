package experiment

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// colocation is an experiment of three repeats at one load, on as many CPUs as this machine has, all of them used. In the
// repeats the latencies are 1, 2 and 4 times those given.
func colocation(latency map[string]float64) Colocation {
	c := Colocation{measured: measured{Repeats: 3, Latest: time.Millisecond, Machine: "2 × CPU"}, Loads: []float64{0.6}}
	all := float64(runtime.NumCPU())
	for i, factor := range []float64{1, 4, 2} {
		for _, name := range []string{modeAlone, modePlain, modeUnsuppressed, modeWaterline, modeBatch} {
			r := colocated{mode: name, lead: settled, load: 0.6, repeat: i, began: time.Unix(1000, 0), scheduled: "SCHED_FIFO", waited: time.Second}
			r.window = window{length: 10 * time.Second, busy: all, used: map[string]time.Duration{}}
			if name == modeBatch {
				r.load, r.scheduled = 0, ""
			} else {
				r.window.used["redis"] = 6 * time.Second
				var asked []asked
				for n := range 100 {
					asked = append(asked, made(float64(n)/50, 0.0001, factor*latency[name]/1000*float64(n+1)/100))
				}
				asked[99].ahead, asked[99].server = 7, schedstat{30 * time.Millisecond, 20 * time.Millisecond}
				for n := range asked {
					asked[n].due, asked[n].sent, asked[n].ready = asked[n].due+settled, asked[n].sent+settled, asked[n].ready+settled
				}
				r.count(asked)
			}
			if name == modeAlone {
				r.window.busy = 0.6
			} else {
				left := time.Duration((all - float64(r.window.used["redis"])/float64(10*time.Second)) * float64(10*time.Second))
				r.window.used["ffmpeg"], r.window.used["stress-ng"] = left/2, left-left/2
				r.frames, r.operations = 100*left.Seconds()/(10*all), 1000*left.Seconds()/(10*all)
			}
			c.runs = append(c.runs, r)
		}
	}
	return c
}

// made is a request that was due, sent so much later and answered so long after it was due, all in seconds.
func made(due, late, latency float64) asked {
	d := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return asked{due: d(due), sent: d(due + late), ready: d(due) + d(latency)}
}

func TestColocation(t *testing.T) {
	c := colocation(map[string]float64{modeAlone: 10, modePlain: 20, modeUnsuppressed: 12, modeWaterline: 10.5})
	r := c.Result()
	cpus := float64(runtime.NumCPU())
	for key, want := range map[string]float64{
		"alone_60_p99_ms": 19.8, "alone_60_p99_min_ms": 9.9, "alone_60_p99_max_ms": 39.6, "alone_60_p50_ms": 10, "plain_60_p99_ratio": 2,
		"p99_ratio_plain": 2, "p99_ratio_unsuppressed": 1.2, "p99_ratio_waterline": 1.05, "cpu_total_percent": 100, "batch_share_of_free_cpu": 1,
		"alone_60_cpu_total_percent": 100 * 0.6 / cpus, "waterline_60_batch_cpus": cpus - 0.6, "waterline_60_batch_work_percent": 100 * (cpus - 0.6) / cpus,
		"waterline_60_online_cpus": 0.6, "waterline_60_cpu_ms_per_request": 60, "waterline_60_wait_ms_per_request": 10, "waterline_60_errors": 0,
		"waterline_60_late_p99_ms": 0.1, "generator_late_p99_ms": 0.1, "batch_alone_batch_cpus": cpus, "runs": 15, "runs_discarded": 0,
	} {
		if got, found := r.Metrics[key]; !found || math.Abs(got-want) > 0.06 {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	if got := r.Headline.String(); got != "p99 1.05 × alone, CPU 100 % used, batch 100 % of what was free (goal: p99 ≤ 1.10 × alone, CPU ≥ 90 % used, batch ≥ 80 % of what was free; met)" {
		t.Error(got)
	}
	if got := r.Series["plain_60_p99_ms"]; !slices.Equal(got, []float64{19.8, 79.2, 39.6}) {
		t.Errorf("p99 of each repeat: %v", got)
	}
	for figure, want := range map[string]float64{"ran_ms": 30, "waited_ms": 20} {
		if got := r.Series["plain_60_slowest_"+figure]; len(got) != 15 || got[0] != want || got[1] != 0 {
			t.Errorf("%s of the five slowest of each repeat: %v", figure, got)
		}
	}
	table := r.Table.String()
	if !strings.Contains(table, "60 %, waterline") || !strings.Contains(table, "10.39–41.58") || len(r.Table.Rows) != 5 {
		t.Error(table)
	}
	for _, cells := range r.Table.Rows {
		if len(cells) != len(r.Table.Head) {
			t.Errorf("%d cells under %d heads: %v", len(cells), len(r.Table.Head), cells)
		}
	}
	notes := strings.Join(r.Notes, "\n")
	const slowest = "The slowest request in mode plain at 60 % came at 00:16:44.980: 80.00 ms; sent 0.10 ms late with 7 requests before it, and until it was answered the server had a CPU for 30.00 ms and waited for one for 20.00 ms."
	if !strings.Contains(notes, slowest) || !strings.Contains(notes, "(SCHED_FIFO)") || strings.Contains(notes, "The rest of the machine") {
		t.Error(notes)
	}
	if svg := chart.Standalone(r.Chart); !strings.Contains(svg, "waterline") || !strings.Contains(svg, "alone 19.80 ms") {
		t.Error(svg)
	}
}

// None of what was not measured in time has a figure, and nothing is met.
func TestColocationLate(t *testing.T) {
	c := colocation(map[string]float64{modeAlone: 10, modePlain: 20, modeUnsuppressed: 12, modeWaterline: 10.5})
	c.discarded = c.of(modeWaterline, 0.6)
	c.runs = slices.DeleteFunc(c.runs, func(r colocated) bool { return r.mode == modeWaterline })
	r := c.Result()
	for _, key := range []string{"p99_ratio_waterline", "cpu_total_percent", "batch_share_of_free_cpu", "waterline_60_p99_ms"} {
		if value, found := r.Metrics[key]; found {
			t.Errorf("%s is %v", key, value)
		}
	}
	if r.Headline.Met || !strings.Contains(r.Headline.Value, "late too often") || r.Metrics["runs_discarded"] != 3 || r.Metrics["p99_ratio_plain"] != 2 {
		t.Errorf("%s, %v", r.Headline, r.Metrics)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "Nothing is known of mode waterline at 60 %") {
		t.Error(notes)
	}
}

// Figures of a machine that does something else too prove nothing.
func TestColocationBusy(t *testing.T) {
	for what, spoil := range map[string]func(*colocated){
		"others":  func(r *colocated) { r.window.used["ffmpeg"] -= 5 * time.Second },
		"nothing": func(*colocated) {},
		"idle":    func(r *colocated) { r.window.used["ffmpeg"], r.window.busy = 0, r.window.cpus()-r.window.of("ffmpeg") },
		"partly idle": func(r *colocated) {
			less := 0.12 * float64(runtime.NumCPU())
			r.window.used["ffmpeg"] -= time.Duration(less * float64(r.window.length))
			r.window.busy -= less
		},
		"slow": func(r *colocated) {
			for i := range r.latency {
				r.latency[i] *= 1.2
			}
		},
		"stolen": func(r *colocated) { // what others take of the machine is not used, nor is it free
			r.window.steal = 10
			r.window.used["ffmpeg"] -= time.Duration(0.1 * float64(runtime.NumCPU()) * float64(r.window.length))
		},
	} {
		c := colocation(map[string]float64{modeAlone: 10, modePlain: 20, modeUnsuppressed: 12, modeWaterline: 10.5})
		for i := range c.runs {
			if c.runs[i].mode == modeWaterline {
				spoil(&c.runs[i])
			}
		}
		r := c.Result()
		if want := what == "nothing" || what == "stolen"; r.Headline.Met != want {
			t.Errorf("%s: %s", what, r.Headline)
		}
		if got := strings.Contains(r.Headline.Value, "busy otherwise"); got != (what == "others") {
			t.Errorf("%s: %s", what, r.Headline)
		}
	}
}

// A run in which the generator was late is repeated, three times at most; one without a generator never is.
func TestColocateRepeat(t *testing.T) {
	cfg := ColocateConfig{Loads: []float64{0.3, 0.6}, Latest: time.Millisecond}
	modes, err := cfg.modes()
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]int{}
	c := &bench{found: measured{Repeats: 1, Latest: cfg.Latest}, measure: func(_ context.Context, cell cell) (colocated, error) {
		key := key(cell.load, cell.name)
		if cell.attempt != tried[key] {
			t.Errorf("%s: attempt %d after %d", key, cell.attempt, tried[key])
		}
		tried[key]++
		r := colocated{mode: cell.name, load: cell.load, repeat: cell.repeat, lateness: []float64{0.9}}
		if cell.load == 0.3 && (cell.name == modePlain || cell.name == modeWaterline && cell.attempt < 2) || !cell.online {
			r.lateness[0] = 1.1
		}
		return r, nil
	}}
	if err := c.all(t.Context(), cfg.cells(modes)); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"alone_30_": 1, "alone_60_": 1, "plain_30_": 3, "plain_60_": 1, "unsuppressed_30_": 1, "unsuppressed_60_": 1,
		"waterline_30_": 3, "waterline_60_": 1, "batch_alone_": 1,
	}
	if !maps.Equal(tried, want) || len(c.found.runs) != 8 || len(c.found.discarded) != 5 || len(c.found.of(modePlain, 0.3)) != 0 || len(c.found.of(modeWaterline, 0.3)) != 1 {
		t.Errorf("%v; %d runs, %d discarded", tried, len(c.found.runs), len(c.found.discarded))
	}
}

func TestColocatedCount(t *testing.T) {
	early, good, refused, lost := made(1, 0, 1), made(4, 0.002, 0.01), made(5, 0, 0.02), made(6, 0, 0)
	refused.refused, lost.ready = true, 0
	r := colocated{lead: settled}
	r.count([]asked{early, good, refused, lost})
	if fmt.Sprint(r.latency) != "[10 20 30000]" || r.errors != 2 || r.late(1) != 2 || len(r.asked) != 3 {
		t.Errorf("%v, %d errors, late %v", r.latency, r.errors, r.lateness)
	}
}

func TestCounter(t *testing.T) {
	f := counter{key: "frame="}
	for _, part := range []string{"frame=", "12\nfps=3\nfra", "me= 20 \nprogress=continue\nframe=x\nframe=3"} {
		if n, err := f.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if f.count() != 20 {
		t.Errorf("%v frames", f.count())
	}
}

func TestParseStress(t *testing.T) {
	got, err := parseStress("metrics:\n    - stressor: cpu\n      bogo-ops: 905\n      bogo-ops-per-second-usr-sys-time: 809.39\n      bogo-ops-per-second-real-time: 460.195259\n      user-time: 1.1\n")
	if err != nil || got != 460.195259 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "bogo-ops-per-second-real-time: x\n"} {
		if _, err := parseStress(bad); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}

func TestParseSchedstat(t *testing.T) {
	if got := parseSchedstat([]byte("123 4567 8\n")); got != (schedstat{123, 4567}) {
		t.Error(got)
	}
}

// The generator asks by many connections and takes errors for what they are. It does not wait for one answer before it sends
// the next request.
func TestAskMany(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(t.TempDir(), "server")
		}
		listener, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		const many, slow = 4, 50 * time.Millisecond
		go func() {
			for i := 0; ; i++ {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go answer(conn, i == 0, slow)
			}
		}()
		var out strings.Builder
		q := question{address: listener.Addr().String(), connections: many, cpu: -1, line: "EVALSHA x", rates: course{200}, length: 500 * time.Millisecond, seed: 1}
		if err := ask(q, &out); err != nil {
			t.Fatal(err)
		}
		_, all, err := parseAsked(out.String())
		if err != nil {
			t.Fatal(err)
		}
		refused, ahead := 0, 0
		for i, a := range all {
			if a.latency() < slow || a.sent-a.due < 0 {
				t.Errorf("%s: %+v", network, a)
			}
			if a.refused {
				refused++
			}
			ahead = max(ahead, a.ahead)
			if i%many == 0 != a.refused {
				t.Errorf("%s: request %d: refused is %v", network, i, a.refused)
			}
		}
		if refused == 0 || ahead < 3 {
			t.Errorf("%s: %d refused, %d before one at most", network, refused, ahead)
		}
	}
}

// answer answers every line after a time, without keeping the next one waiting.
func answer(conn net.Conn, refuse bool, after time.Duration) {
	defer conn.Close()
	text := ":-1\r\n"
	if refuse {
		text = "-ERR -no\r\n"
	}
	due := make(chan time.Time, 1000)
	go func() {
		for at := range due {
			time.Sleep(time.Until(at))
			for _, part := range []string{text[:3], text[3:]} { // as packets may come
				if _, err := conn.Write([]byte(part)); err != nil {
					return
				}
			}
		}
	}()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		due <- time.Now().Add(after)
	}
	close(due)
}

// The generator says how it really is scheduled.
func TestHurry(t *testing.T) {
	scheduled := make(chan string)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread goes with the goroutine
		how := hurry()
		attr, err := unix.SchedGetAttr(0, 0)
		switch {
		case err != nil:
			how = err.Error()
		case how == "SCHED_FIFO" && attr.Policy != unix.SCHED_FIFO || how == "nice -20" && attr.Nice != -20:
			how = fmt.Sprintf("%s: %+v", how, attr)
		}
		scheduled <- how
	}()
	if how := <-scheduled; !slices.Contains([]string{"SCHED_FIFO", "nice -20", "normal"}, how) {
		t.Error(how)
	}
}

// A generator whose server is away says so.
func TestAskNobody(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "server"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	q := question{address: listener.Addr().String(), connections: 1, cpu: -1, line: "x", rates: course{100}, length: time.Second, seed: 1}
	if err := ask(q, new(strings.Builder)); err == nil {
		t.Error("a server that hung up answered")
	}
	listener.Close()
	if err := ask(q, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), "connecting") {
		t.Error(err)
	}
}

// The agent must take the pods for what they are.
func TestBatchPods(t *testing.T) {
	for _, sold := range []bool{false, true} {
		encoder, burner := batchPods(sold, false)
		for _, p := range []*pod{encoder, burner, serverPod()} {
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
			if p.batchMilli != 0 {
				want = model.ClassBE
			}
			if !ok || got.QoS != p.qos || got.Class != want || got.Grant.RequestMilli != p.batchMilli || got.RequestMilli != p.requestMilli || len(got.Annotations.Notices) > 0 {
				t.Errorf("%+v from\n%s", got, text)
			}
		}
	}
}

func TestColocateModes(t *testing.T) {
	cfg := ColocateConfig{Policy: filepath.Join(t.TempDir(), "none.yaml")}
	if _, err := cfg.modes(); err == nil {
		t.Error("a policy that is not there was read")
	}
	modes, err := new(ColocateConfig).modes()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modes {
		if m.policy == "" {
			continue
		}
		p, err := kube.ParsePolicy([]byte(m.policy))
		if err != nil || p.Policy.Mode != model.ModeEnforce {
			t.Errorf("%s: %+v, %v", m.name, p, err)
		}
	}
}

func TestProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := program("redis-server"); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Error(err)
	}
}
