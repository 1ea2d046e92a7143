//go:build bench

package e2e_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// TestNodeMeasure compares the agent's figures of a real node with other readings, while its pods have a known load.
// The other readings are those of this test, from the cgroup files, and those of the kubelet, whose /metrics/resource
// is the source of kubectl top.
func TestNodeMeasure(t *testing.T) {
	oneNode(t, "level 3 compares each reading of cgroup v2 with the kernel's")
	// At most the whole machine: an emulated one needs more than half of it for its kubelet and its container runtime.
	n := install(t, "--set-json",
		`policy={"mode":"Enforce","priority":-1000,`+allowAll+`,"cpu":{"waterline":"100%","suppression":"None"}}`)
	n.loaded("online", "", "while :; do :; done", "limits: {cpu: 300m}")
	n.loaded("batch", "BE", "while :; do :; done", "limits: {cpu: 200m}")
	n.loaded("holder", "", "held=$(head -c 16777216 /dev/zero | tr '\\\\0' x); while :; do sleep 1000; done",
		"requests: {cpu: 10m}")
	eventually(t, "the holder has allocated its memory, which takes an emulated machine some time", func() (bool, string) {
		used := n.workingSet(t, n.dir("holder"))
		return used >= 15<<20, fmt.Sprint(used)
	})
	var online, batch, daemons []string
	for _, pod := range object[corev1.PodList](t, "pods", "-A", "--field-selector",
		"status.phase=Running,spec.nodeName="+n.name).Items {
		switch dir := n.dirOf(&pod); pod.Labels[v1alpha1.LabelQoS] {
		case "BE":
			batch = append(batch, dir)
		case "SYSTEM": // the agent
			daemons = append(daemons, dir)
		default:
			online = append(online, dir)
		}
	}
	if len(batch) != 1 || len(daemons) != 1 || len(online) < 2 {
		t.Fatalf("the node has the batch pods %v, the daemons %v and the online pods %v", batch, daemons, online)
	}
	reader := newReader(n.groups, append([]string{batch[0], n.dir("online"), n.layout.Root, daemons[0]}, online...))
	const queries = 3
	early := make(chan string, queries)
	for i := range queries {
		time.AfterFunc(time.Duration(20+5*i)*time.Second, func() { early <- n.queryKubelet() })
	}
	all := n.readMinute(reader)
	shown, end := all[len(all)-1].exposition, all[len(all)-1].at
	before, after := n.figures(<-early), n.figures(n.queryKubelet())
	for i := 1; i < queries && (before["batch"].at.Before(reader.at[0]) || before["online"].at.Before(reader.at[0])); i++ {
		before = n.figures(<-early) // by now the agent has measured since the reader began
	}

	// The tolerance is 3 mCPU besides a hundredth. In a minute these are 180 ms of CPU time, because the read times of the
	// agent and of this test are known only to within 200 ms, while the node's usage of its two CPUs varies.
	const floor = 0.003
	groups := make([]int, len(online))
	for i := range groups {
		groups[i] = 4 + i
	}
	// An agent that stood still for more than a second before the query shows a minute that ended then. So it is queried
	// several times. A wrong figure is wrong every time.
	check := func(class string, of func(from, to time.Time) float64) {
		t.Helper()
		wrong := repeat(t, len(all), func(try int) (values map[string]float64, wrong string) {
			s := all[try-1]
			got := s.of(t, v1alpha1.MetricCPUUsed, `class="`+class+`",window="1m"`)
			least, most := bounds(time.Minute, s.at, of)
			t.Logf("CPU of %-8s %.4f, read: %.4f to %.4f", class, got, least, most)
			if got < least*0.99-floor || got > most*1.01+floor {
				wrong = fmt.Sprintf("CPU of %s is %v, and the test measured %v to %v", class, got, least, most)
			}
			return map[string]float64{"published": got, "least": least, "most": most}, wrong
		})
		if wrong != "" {
			t.Error(wrong)
		}
	}
	minute := func(metric, class string) float64 {
		return shown.of(t, metric, `class="`+class+`",window="1m"`)
	}
	check("BE", reader.of(0))
	check("LS", reader.of(groups...))
	check("node", reader.node)
	check("system", func(from, to time.Time) float64 {
		return reader.system(from, to, 2) + reader.cores(from, to, 3)
	})
	if unknown := minute(v1alpha1.MetricCPUUsed, "unknown"); unknown > 0.01 {
		t.Errorf("%v CPUs are used by groups that belong to no pod", unknown)
	}
	for class, dirs := range map[string][]string{"BE": batch, "LS": online} {
		var want float64
		for _, dir := range dirs {
			want += n.workingSet(t, dir)
		}
		got := minute(v1alpha1.MetricMemoryUsed, class)
		t.Logf("memory of %s %.0f, read: %.0f", class, got, want)
		// The agent's own memory changes during the query, and v1 counts in batches of 32 pages for each CPU and group.
		if floor := float64(2 << 20); got < want*0.99-floor || got > want*1.01+floor {
			t.Errorf("memory of %s is %v, and the test measured %v", class, got, want)
		}
	}
	n.checkKubelet(reader, end, minute(v1alpha1.MetricCPUUsed, "BE"), before, after)
	kubectl(t, "delete", "pod", "online", "batch", "--grace-period=0", "--force")
	n.checkNewcomer()
}

// showing is an agent's metrics with their time.
type showing struct {
	exposition
	at time.Time
}

// readMinute reads the files on the machine itself for a minute and some seconds, every 200 ms, and in the last seconds
// the agent's metrics, three times. One command does all of this, by the machine's clock.
func (n *node) readMinute(r *reader) (shown []showing) {
	n.t.Helper()
	script := `ip=$0
exec 9<> <(:) # never has anything to read
SECONDS=0
for most in 63 66 69; do
	while ((SECONDS < most)); do
		echo "$EPOCHREALTIME"
		for file; do read -r line <"$file"; echo "$line"; done
		read -t 0.19 -u 9
	done
	echo metrics
	` + strings.Replace(getMetrics, "$0", "$ip", 1) + `
	echo "at $EPOCHREALTIME"
done
grep -c ^processor /proc/cpuinfo
`
	agent := n.agent()
	out, err := n.machine.run(append([]string{"bash", "-c", script, agent.Status.PodIP}, r.files...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	for range 3 {
		read, rest, _ := strings.Cut(out, "metrics\n")
		lines := strings.Split(strings.TrimSpace(read), "\n")
		for row := len(r.files) + 1; len(lines) >= row; lines = lines[row:] {
			if err := r.take(n.clock(lines[0]), lines[1:row]); err != nil {
				n.t.Fatal(err)
			}
		}
		body, last, found := strings.Cut(rest, "\nat ")
		at, next, ends := strings.Cut(last, "\n")
		if !found || !ends || len(r.at) < 100 {
			n.t.Fatalf("after %d readings, the output was %q", len(r.at), rest)
		}
		if out = next; exposition(body).whole() {
			shown = append(shown, showing{exposition(body), n.clock(at)})
		}
	}
	if len(shown) == 0 {
		n.t.Fatal("the agent publishes no metrics")
	}
	if r.cpus, err = strconv.ParseFloat(strings.TrimSpace(out), 64); err != nil {
		n.t.Fatal(err)
	}
	n.t.Logf("%d readings in %s", len(r.at), r.at[len(r.at)-1].Sub(r.at[0]))
	return shown
}

// clock returns the time in bash's EPOCHREALTIME on the machine.
func (n *node) clock(text string) time.Time {
	n.t.Helper()
	micros, err := strconv.ParseInt(strings.Replace(text, ".", "", 1), 10, 64)
	if err != nil {
		n.t.Fatal(err)
	}
	return time.UnixMicro(micros)
}

// kubeletFigures is the kubelet's figures of a pod.
type kubeletFigures struct {
	seconds float64 // of CPU time
	at      time.Time
	memory  float64
}

// queryKubelet returns the figures of pods in the node's kubelet.
func (n *node) queryKubelet() string {
	out, err := tryKubectl("get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/metrics/resource")
	if err != nil {
		return err.Error()
	}
	return out
}

// figures returns the figures by the pods' names.
func (n *node) figures(out string) map[string]kubeletFigures {
	n.t.Helper()
	pods := map[string]kubeletFigures{}
	figure := regexp.MustCompile(`(?m)^(pod_cpu_usage_seconds_total|pod_memory_working_set_bytes)` +
		`\{.*pod="([^"]+)".*\} (\S+) (\d+)$`)
	for _, m := range figure.FindAllStringSubmatch(out, -1) {
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			n.t.Fatal(err)
		}
		pod := pods[m[2]]
		if m[1] == "pod_memory_working_set_bytes" {
			pod.memory = value
		} else {
			milli, err := strconv.ParseInt(m[4], 10, 64)
			if err != nil {
				n.t.Fatal(err)
			}
			pod.seconds, pod.at = value, time.UnixMilli(milli)
		}
		pods[m[2]] = pod
	}
	return pods
}

// checkKubelet compares the figures with those of the kubelet, which measures every ten to fifteen seconds and gives
// the time. It reads the same counters a little earlier or later. On an emulated machine it waits for a CPU in between,
// for seconds.
func (n *node) checkKubelet(r *reader, end time.Time, batch float64, before, after map[string]kubeletFigures) {
	n.t.Helper()
	const floor = 0.003
	near := time.Second
	if *on == "vm" {
		near = 10 * time.Second
	}
	for i, name := range []string{"batch", "online"} {
		first, last := before[name], after[name]
		span := last.at.Sub(first.at)
		if first.at.Before(r.at[0]) || span < 20*time.Second {
			n.t.Errorf("the kubelet reported %s with %+v and then %+v, and the reader began at %s", name, first, last, r.at[0])
			continue
		}
		for _, saw := range []kubeletFigures{first, last} {
			least, most := r.count(i, saw.at.Add(-near)), r.count(i, saw.at.Add(near))
			if beyond := saw.at.Add(near).Sub(r.at[len(r.at)-1]); beyond > 0 {
				most += 0.3 * beyond.Seconds() // the maximum that its limit allows
			}
			n.t.Logf("%s: the kubelet read %.2f s at %s, the files %.2f, and %.2f to %.2f within %s", name, saw.seconds,
				saw.at.Format("05.000"), r.count(i, saw.at), least, most, near)
			if saw.seconds < least-0.02 || saw.seconds > most+0.02 {
				n.t.Errorf("by the kubelet, %s has used %v s; by the files, %v to %v", name, saw.seconds, least, most)
			}
		}
		if name != "batch" || *on == "vm" {
			continue
		}
		// The kubelet's minute is not quite the agent's. That does not matter if the load is the same in both. It is not
		// where other processes took the machine's CPUs.
		reported := (last.seconds-first.seconds)/span.Seconds() + r.cores(end.Add(-time.Minute), end, i) - r.cores(first.at,
			last.at, i)
		n.t.Logf("%s: %.4f by the kubelet over %s", name, reported, span)
		if batch < reported*0.99-floor || batch > reported*1.01+floor {
			n.t.Errorf("by the agent, batch uses %v CPUs; by the kubelet, %v", batch, reported)
		}
	}
	if read, reported := n.workingSet(n.t, n.dir("holder")), after["holder"].memory; reported < read*0.99-1<<20 ||
		reported > read*1.01+1<<20 {
		n.t.Errorf("by the kubelet, the holder has %v bytes; by the files, %v", reported, read)
	}
}

// checkNewcomer starts an online pod and checks that its request is subtracted from the allowance before the pod uses
// it: within two measurements after its cgroup appeared.
func (n *node) checkNewcomer() {
	n.t.Helper()
	agent := n.agent()
	of := object[corev1.Node](n.t, "node", n.name)
	reserved := float64(of.Status.Capacity.Cpu().MilliValue()-of.Status.Allocatable.Cpu().MilliValue()) / 1000
	// The part of the capacity that is neither used nor in the allowance, by figures of the same second.
	missing := func(m exposition) (gone, allowance float64) {
		used := func(class string) float64 { return m.of(n.t, v1alpha1.MetricCPUUsed, `class="`+class+`",window="1s"`) }
		allowance = m.of(n.t, v1alpha1.MetricBatchCPUAvailable, `window="1s"`)
		stolen := m.of(n.t, v1alpha1.MetricCPUStolen, `window="1s"`)
		gone = m.of(n.t, v1alpha1.MetricCPUCeiling, "") - max(used("system")+stolen, reserved) - allowance
		for _, class := range []string{"LSE", "LSR", "LS", "unknown"} {
			gone -= used(class)
		}
		return gone, allowance
	}
	const requested = 0.2
	eventually(n.t, "CPU that can be requested", func() (bool, string) {
		gone, allowance := missing(n.metrics(&agent))
		return allowance > 2*requested &&
			gone < requested/4, fmt.Sprintf("an allowance of %v, and %v missing", allowance, gone)
	})
	const script = `exec 9<> <(:)
for i in {1..30}; do
	pods=("$1"/*pod*)
	echo "at $EPOCHREALTIME ${#pods[@]}"
	(` + getMetrics + `) | grep '^waterline_.*cores'
	read -t 0.2 -u 9
done`
	seen := make(chan string, 1)
	go func() {
		out, err := n.machine.run("bash", "-c", script, agent.Status.PodIP, n.Path+"/"+n.layout.Class(model.Burstable))
		if err != nil {
			out = err.Error()
		}
		seen <- out
	}()
	time.Sleep(time.Second)
	apply(n.t, n.manifest("newcomer", "", fmt.Sprintf("requests: {cpu: %dm}", int(1000*requested)), false))
	out := <-seen
	type look struct {
		at              time.Time
		pods            string
		gone, allowance float64
	}
	var looks []look
	var slowest time.Duration
	var course strings.Builder
	appeared := -1 // the first read that finds the pod's cgroup
	for _, part := range strings.Split("\n"+out, "\nat ")[1:] {
		words := strings.Fields(part)
		l := look{at: n.clock(words[0]), pods: words[1]}
		l.gone, l.allowance = missing(exposition(part))
		fmt.Fprintf(&course, "%s: %s pods, an allowance of %.3f, %.3f missing\n", l.at.Format("05.000"), l.pods, l.allowance,
			l.gone)
		if i := len(looks); i > 0 {
			slowest = max(slowest, l.at.Sub(looks[i-1].at))
			if appeared < 0 && l.pods != looks[0].pods {
				appeared = i
			}
		}
		looks = append(looks, l)
	}
	if appeared < 0 {
		n.t.Fatalf("no new pod's cgroup appeared:\n%s", &course)
	}
	if before := looks[appeared-1].allowance; *on == "vm" && before < requested {
		n.t.Logf("nothing can be subtracted: starting the pod takes all of the emulated node's CPUs except %.3f", before)
		return
	}
	// The figures are read after the pods were counted, so those of the previous read may include the pod already. A later
	// difference proves nothing: the pod begins to use its reservation, much of it where starting a process is emulated.
	// If batch has no allowance, the pod's request is part of the deficit.
	taken := slices.IndexFunc(looks[appeared-1:], func(l look) bool {
		return l.gone > requested*0.75 || *on == "vm" && l.allowance == 0
	})
	if taken < 0 {
		n.t.Fatalf("a new pod's cgroup appeared at %s, and its request was not taken from the allowance:\n%s",
			looks[appeared].at.Format("05.000"), &course)
	}
	last, late := "when it appeared", time.Duration(0) // how long its request was still free after its cgroup appeared
	if taken > 0 {
		late = looks[appeared-1+taken-1].at.Sub(looks[appeared].at)
		last = late.String() + " after its cgroup appeared"
	}
	n.t.Logf("the request of a new online pod was free for the last time %s, by reads that took %s at most", last, slowest)
	if most := 2*time.Second + slowest; late > most {
		n.t.Errorf("that is more than %s:\n%s", most, &course)
	}
}
