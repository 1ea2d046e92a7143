package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// The load: processes that would use all of a CPU, in pods with a CFS quota, and one that only has memory.
const (
	onlineMilli = 300
	batchMilli  = 400
	burstMilli  = 200
	heldBytes   = 64 << 20
)

// TestAPIPrometheus compares what Prometheus is told with what the test reads of the same minutes itself, under a load that
// is known: as often as not on a machine that does other things too, so that only the load of the pods is constant.
func TestAPIPrometheus(t *testing.T) {
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
	}
	length, shown := 155*time.Second, []string{"1s", "1m", "5m"} // a window is shown once half of it was measured
	if soak {
		length, shown = 11*time.Minute, append(shown, "10m")
	}
	c := newCrowd(t)
	online, batch, holder, later := c.loaded("online", "", onlineMilli), c.loaded("batch", "BE", batchMilli), c.loaded("holder", "", 0), c.loaded("later", "BE", burstMilli)
	c.burn(online)
	c.burn(batch)
	c.exec(holder, "", "busybox", "sh", "-c", fmt.Sprintf(`held=$(head -c %d /dev/zero | tr '\0' x); while :; do sleep 1000; done`, heldBytes))
	reader := c.newReader([]string{online, batch, c.layout.Root, later})
	p := newPrometheus(t)
	c.start()
	began := time.Now()
	reader.read(length)

	capacity, ceiling := p.last(v1alpha1.MetricCPUCapacity).value, p.last(v1alpha1.MetricCPUCeiling).value
	if capacity != float64(runtime.NumCPU()) {
		t.Errorf("the node has %v CPUs, want %d", capacity, runtime.NumCPU())
	}
	for _, window := range windowsShown(p) {
		if !slices.Contains(shown, window) {
			t.Errorf("a window of %s is shown after %s", window, length)
		}
	}
	for _, window := range shown {
		span, err := time.ParseDuration(window)
		if err != nil {
			t.Fatal(err)
		}
		span = min(span, length-3*time.Second) // what was measured of it; the load is the same all the time
		// Besides a hundredth: 2 mCPU, which in a minute are 120 ms of CPU time, as both read at times that are not known better
		// than to 50 ms while the rest of the machine uses a CPU or two more or less, and /proc/stat counts in steps of 10 ms. In
		// a single second it is the quota of one CFS period more or less.
		floor := 0.002
		if span == time.Second {
			floor += 0.1 * batchMilli / 1000
		}
		check := func(metric, class string, of func(from, to time.Time) float64, floor float64) {
			t.Helper()
			selector := fmt.Sprintf(`%s{window=%q}`, metric, window)
			if class != "" {
				selector = fmt.Sprintf(`%s{class=%q,window=%q}`, metric, class, window)
			}
			got := p.last(selector)
			// The agent measured at some time in the second before it was scraped.
			var want []float64
			for phase := time.Duration(0); phase <= time.Second; phase += 50 * time.Millisecond {
				to := got.at.Add(-phase)
				want = append(want, of(to.Add(-span), to))
			}
			least, most := slices.Min(want), slices.Max(want)
			t.Logf("%-60s %12.4f, read: %.4f to %.4f", selector, got.value, least, most)
			if got.value < least*0.99-floor || got.value > most*1.01+floor {
				t.Errorf("%s is %v, and was read as %v to %v", selector, got.value, least, most)
			}
		}
		check(v1alpha1.MetricCPUUsed, "LS", reader.used(0), floor)
		check(v1alpha1.MetricCPUUsed, "BE", reader.used(1), floor)
		if span <= time.Minute {
			check(v1alpha1.MetricCPUUsed, "node", reader.nodeUsed, floor)
			check(v1alpha1.MetricCPUUsed, "system", func(from, to time.Time) float64 { return reader.nodeUsed(from, to) - reader.used(2)(from, to) }, floor)
			check(v1alpha1.MetricBatchCPUAvailable, "", func(from, to time.Time) float64 { return reader.available(ceiling, from, to) }, floor)
		}
		held := func(time.Time, time.Time) float64 { return c.workingSet(holder) + c.workingSet(online) }
		check(v1alpha1.MetricMemoryUsed, "LS", held, 1<<20)
	}
	if used := p.last(v1alpha1.MetricMemoryUsed + `{class="LS",window="1m"}`).value; used < heldBytes || used > 1.2*heldBytes {
		t.Errorf("the pods that hold %d bytes are shown with %v", heldBytes, used)
	}
	if ratio := p.last(v1alpha1.MetricThrottled + `{window="1m"}`).value; ratio < 0.9 {
		t.Errorf("a pod that was stopped in each period is shown as stopped in %v of them", ratio)
	}
	t.Logf("after %s the rules, the dashboard and the names are checked", time.Since(began).Round(time.Second))
	p.checkRules()
	p.checkDashboard()
	p.checkMetrics()
	c.checkBurst(p, later)
}

// windowsShown returns the windows for which there is a figure.
func windowsShown(p *prometheus) []string {
	p.t.Helper()
	series, err := p.ask("count by (window) ("+v1alpha1.MetricCPUUsed+")", time.Time{})
	if err != nil {
		p.t.Fatal(err)
	}
	var all []string
	for labels := range series {
		all = append(all, strings.TrimSuffix(strings.TrimPrefix(labels, "map[window:"), "]"))
	}
	return all
}

// checkBurst starts a load and ends it again, and checks that this is seen in time: the agent measures within a second and
// shows all of it within two, and Prometheus asks each second.
func (c *crowd) checkBurst(p *prometheus, dir string) {
	c.t.Helper()
	batch := v1alpha1.MetricCPUUsed + `{class="BE",window="1s"}`
	before := p.last(batch).value
	began := time.Now()
	burner := c.burn(dir)
	time.Sleep(5 * time.Second)
	ended := time.Now()
	if err := burner.Kill(); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	const more = float64(burstMilli) / 1000
	after := func(since time.Time, seen func(more float64) bool) time.Duration {
		points := p.points(batch+"[20s]", time.Time{})
		i := slices.IndexFunc(points, func(p point) bool { return p.at.After(since) && seen(p.value-before) })
		if i < 0 {
			c.t.Fatalf("a load of %v beside %v from %s to %s was never seen: %v", more, before, began, ended, points)
		}
		return points[i].at.Sub(since)
	}
	for what, took := range map[string][2]time.Duration{
		"begins to be seen": {after(began, func(v float64) bool { return v > more/10 }), 2 * time.Second},
		"is seen whole":     {after(began, func(v float64) bool { return v > more*0.75 }), 3 * time.Second},
		"is seen to end":    {after(ended, func(v float64) bool { return v < more*0.25 }), 3 * time.Second},
	} {
		c.t.Logf("a load %s after %s", what, took[0])
		if most := took[1] + 300*time.Millisecond; took[0] > most {
			c.t.Errorf("a load %s after %s, want %s at most", what, took[0], most)
		}
	}
}

// loaded makes a pod of a class, with a CFS quota if that is not 0, and one container.
func (c *crowd) loaded(name, class string, milli int64) (container string) {
	c.t.Helper()
	dir, _ := c.create(name, nil, request("1m"))
	if class != "" {
		kubectl(c.t, "label", "pod", name, v1alpha1.LabelQoS+"="+class)
	}
	if milli > 0 {
		c.set(c.t, dir, model.Quota, milli*100)
	}
	return c.container(dir)
}

// burn starts a process that uses all the CPU it can get.
func (c *crowd) burn(dir string) *os.Process {
	c.t.Helper()
	c.exec(dir, "", "busybox", "sh", "-c", "while :; do :; done")
	return c.procs[len(c.procs)-1]
}

// workingSet returns the memory of a group as the kubelet counts it.
func (c *crowd) workingSet(dir string) float64 {
	c.t.Helper()
	read := func(s cgroup.Stat) string {
		content, err := os.ReadFile(filepath.Join(c.OfStat(s), dir, cgroup.StatFile(c.Version, s)))
		if err != nil {
			c.t.Fatal(err)
		}
		return string(content)
	}
	used, err := strconv.ParseFloat(strings.TrimSpace(read(cgroup.MemoryUsage)), 64)
	if err != nil {
		c.t.Fatal(err)
	}
	_, inactive, _ := strings.Cut("\n"+read(cgroup.MemoryDetails), map[cgroup.Version]string{cgroup.V1: "\ntotal_inactive_file ", cgroup.V2: "\ninactive_file "}[c.Version])
	inactive, _, _ = strings.Cut(inactive, "\n")
	cold, err := strconv.ParseFloat(inactive, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return used - cold
}

// reader reads, ten times a second, how much CPU groups and the machine have used.
type reader struct {
	c     *crowd
	files []string // of the groups
	at    []time.Time
	cpu   [][]float64 // in seconds: of each group, and last the machine's idle time
}

func (c *crowd) newReader(groups []string) *reader {
	r := &reader{c: c}
	for _, dir := range groups {
		r.files = append(r.files, filepath.Join(c.OfStat(cgroup.CPUUsage), dir, cgroup.StatFile(c.Version, cgroup.CPUUsage)))
	}
	return r
}

// read reads for some time.
func (r *reader) read(length time.Duration) {
	r.c.t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		row := make([]float64, 0, len(r.files)+1)
		at := time.Now()
		for _, file := range append(slices.Clone(r.files), "/proc/stat") {
			content, err := os.ReadFile(file)
			if err != nil {
				r.c.t.Fatal(err)
			}
			row = append(row, r.seconds(file, strings.Fields(string(content))))
		}
		r.at, r.cpu = append(r.at, at), append(r.cpu, row)
	}
}

// seconds takes the time out of the words of a file.
func (r *reader) seconds(file string, words []string) float64 {
	r.c.t.Helper()
	var sum float64
	add := func(word string, unit float64) {
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			r.c.t.Fatalf("%s: %v", file, err)
		}
		sum += v * unit
	}
	switch {
	case file == "/proc/stat": // cpu user nice system idle iowait irq softirq steal
		for _, i := range []int{4, 5, 8} {
			add(words[i], 0.01)
		}
	case r.c.Version == cgroup.V1:
		add(words[0], 1e-9)
	default: // usage_usec N
		add(words[1], 1e-6)
	}
	return sum
}

// since returns how much a count grew between two times, reckoned evenly between two readings.
func (r *reader) since(count int, from, to time.Time) float64 {
	at := func(t time.Time) float64 {
		i := sort.Search(len(r.at), func(i int) bool { return r.at[i].After(t) })
		i = min(max(i, 1), len(r.at)-1)
		part := t.Sub(r.at[i-1]).Seconds() / r.at[i].Sub(r.at[i-1]).Seconds()
		return r.cpu[i-1][count] + min(max(part, 0), 1)*(r.cpu[i][count]-r.cpu[i-1][count])
	}
	return at(to) - at(from)
}

// used returns a function of how many CPUs a group used between two times.
func (r *reader) used(group int) func(from, to time.Time) float64 {
	return func(from, to time.Time) float64 { return r.since(group, from, to) / to.Sub(from).Seconds() }
}

// nodeUsed is likewise of the machine.
func (r *reader) nodeUsed(from, to time.Time) float64 {
	return float64(runtime.NumCPU()) - r.since(len(r.files), from, to)/to.Sub(from).Seconds()
}

// available is what the batch pods could have used: in each second what is below the ceiling and not used by anybody else.
func (r *reader) available(ceiling float64, from, to time.Time) float64 {
	var sum float64
	n := 0
	for ; !from.Add(time.Second).After(to); from = from.Add(time.Second) {
		end := from.Add(time.Second)
		sum += max(ceiling-r.nodeUsed(from, end)+r.used(1)(from, end)+r.used(3)(from, end), 0)
		n++
	}
	return sum / float64(n)
}
