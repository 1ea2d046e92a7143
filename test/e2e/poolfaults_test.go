package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// poolFault is something wrong with a pool or its ResourceManager, and how the pool shows it.
type poolFault struct {
	name   string
	spec   string // more of spec.yarn
	faults fakerm.Faults
	// prepare changes the pool before it is made.
	prepare           func(p *yarnPool)
	condition, reason string
	words             []string // of its message: the cause and the fix
	workers           bool     // it has workers meanwhile
}

// complains waits until a pool has a condition with these words.
func (y *yard) complains(t testing.TB, name, condition, reason string, words ...string) {
	t.Helper()
	y.becomes(t, name, condition+" "+reason, func(p *v1alpha1.WorkerPool) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, condition)
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Reason == reason && ready.Status == "False" && (ready.Reason == condition || c == ready) &&
			!slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(c.Message, w) })
	})
}

// testFaults makes a pool for each thing that can be wrong from the start.
func (y *yard) testFaults(t *testing.T, excludes string) {
	if err := os.Mkdir(filepath.Join(excludes, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	rm, label := v1alpha1.ConditionRMUnreachable, v1alpha1.ConditionLabelRefused
	exclude := func(name string) string { return `excludeFile: ` + name + `, admins: ["127.0.0.1:9"], ` }
	tests := map[string]func(t *testing.T){}
	for _, f := range []poolFault{
		{name: "address", condition: rm, reason: "NoAnswer", words: []string{"127.0.0.1:9", "spec.yarn.resourceManagers"},
			prepare: func(p *yarnPool) { p.address = "http://127.0.0.1:9" }},
		{name: "silent", faults: fakerm.Faults{Silent: true}, condition: rm, reason: "NoAnswer",
			words: []string{"deadline exceeded", "spec.yarn.resourceManagers"}},
		{name: "unknown", faults: fakerm.Faults{Status: http.StatusUnauthorized}, condition: rm, reason: "Refused",
			words: []string{"status 401", "yarn.admin.acl"}},
		{name: "forbidden", faults: fakerm.Faults{Status: http.StatusForbidden}, condition: rm, reason: "Refused",
			words: []string{"status 403", "yarn.admin.acl"}},
		{name: "standby", faults: fakerm.Faults{Standby: true}, condition: rm, reason: "Standby",
			words: []string{`"STANDBY"`, "spec.yarn.resourceManagers"}},
		{name: "nolabels", faults: fakerm.Faults{NoLabels: true}, condition: label, reason: "LabelRefused",
			words: []string{"yarn.node-labels.enabled", `"yarn"`}},
		{name: "unreadable", spec: exclude("directory"), condition: v1alpha1.ConditionExcludeFailed, reason: "Unreadable",
			words: []string{"directory"}, workers: true},
		{name: "unread", spec: exclude("good.xml"), condition: v1alpha1.ConditionExcludeFailed, reason: "NotRead",
			words: []string{"127.0.0.1:9"}, workers: true},
		{name: "stray", condition: v1alpha1.ConditionQuarantined, reason: "GivenUp", workers: true,
			words:   []string{"registered as elsewhere.example", "resolves to its address and back"},
			prepare: func(p *yarnPool) { p.boot, p.as = time.Minute, func(string) string { return "elsewhere.example" } }},
		{name: "never", condition: v1alpha1.ConditionQuarantined, reason: "GivenUp", workers: true,
			words:   []string{"TooManyAttempts", "read the logs"},
			prepare: func(p *yarnPool) { p.boot, p.as = 3*time.Minute, func(string) string { return "" } }},
	} {
		if soak || f.name != "never" { // it takes six minutes
			tests[f.name] = func(t *testing.T) { y.testFault(t, f) }
		}
	}
	beside(t, tests)
}

func (y *yard) testFault(t *testing.T, f poolFault) {
	name := "f-" + f.name
	p := y.rm(t, name, "elastic", quick, 10*time.Second, 10*time.Second)
	p.Break(f.faults)
	if f.prepare != nil {
		f.prepare(p)
	}
	y.offer(t, name+"-0", name, cpuMemory(8, 16))
	manifest := specOf(name, p.address, `, identity: {coolDown: 1s}, drain: {grace: 10s, timeout: 10s}`)
	y.create(t, strings.Replace(manifest, "label:", f.spec+"label:", 1))
	if f.name == "never" {
		time.Sleep(6 * time.Minute)
	}
	y.complains(t, name, f.condition, f.reason, f.words...)
	c := p.Counted()
	made := y.podsOf(name)
	if !f.workers && (made > 0 || c.Resizes > 0 || len(p.Hosts()) > 0) {
		t.Errorf("%d pods, %d resizes, hosts with labels: %v", made, c.Resizes, p.Hosts())
	}
	if f.workers && f.condition == v1alpha1.ConditionExcludeFailed {
		y.becomes(t, name, "its worker is active nevertheless", func(p *v1alpha1.WorkerPool) bool {
			return p.Status.Active == 1
		})
	}
	if f.prepare != nil {
		return
	}
	p.Break(fakerm.Faults{})
	if f.condition != v1alpha1.ConditionExcludeFailed {
		y.active(t, name, 1) // the condition goes with its cause
	}
	y.check(t, p)
}

// podsOf returns how many pods a pool has.
func (y *yard) podsOf(name string) (n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, k := range y.pods {
		if k.pool == y.pools[name] && k.pool != nil && !k.gone {
			n++
		}
	}
	return n
}

// testLoss loses the store of labels of a running pool, and lets resizes have no effect.
func (y *yard) testLoss(t *testing.T) {
	p := y.rm(t, "loss", "elastic", quick, 5*time.Second, 10*time.Second)
	y.offer(t, "loss-0", "loss", cpuMemory(9, 17))
	y.create(t, specOf("loss", p.address,
		`, size: {ceiling: {cpu: 4, memory: 8Gi}, step: {cpu: 4, memory: 8Gi}, pause: 1s, `+
			`follow: {window: 0s}}, drain: {grace: 5s, timeout: 10s}`))
	host, full := poolHost("loss", "loss-0"), fakerm.Size{MemoryMiB: 10240, VCores: 5}
	y.active(t, "loss", 1)
	t.Log("the ResourceManager accepts resizes, and does nothing")
	p.Break(fakerm.Faults{NoEffect: true})
	y.request(http.MethodPatch, poolPath+"loss", `{"spec":{"size":{"ceiling":{"cpu":"5","memory":"10Gi"},`+
		`"step":{"cpu":"1","memory":"2Gi"}}}}`)
	y.complains(t, "loss", v1alpha1.ConditionStepsFailed, "StepFailed", "accepted a change", "log")
	p.Break(fakerm.Faults{})
	p.offers(t, host, full)
	y.active(t, "loss", 1)

	t.Log("the store of labels is lost, and takes none")
	size := fakerm.Size{MemoryMiB: 2048, VCores: 1}
	p.Ask("jobs", fakerm.Demand{Label: "elastic", Size: size, For: time.Hour, PerNode: 3})
	p.Ask("others", fakerm.Demand{Size: size, For: time.Hour, PerNode: 3})
	p.Break(fakerm.Faults{NoLabels: true})
	p.LoseLabels()
	p.offers(t, host, size)
	y.complains(t, "loss", v1alpha1.ConditionLabelRefused, "LabelRefused", "yarn.node-labels.enabled")
	p.Break(fakerm.Faults{})
	p.offers(t, host, full)
	y.active(t, "loss", 1)
	y.check(t, p)
}

// testDrain drains a node and deletes a pod while containers run: both wait for them. So does a worker when its node is
// paused, or the policy of its node, and when that policy is disabled.
func (y *yard) testDrain(t *testing.T) {
	p := y.rm(t, "drain", "elastic", quick, 10*time.Second, 60*time.Second)
	for i := range 2 {
		y.offer(t, fmt.Sprintf("drain-%d", i), "drain", cpuMemory(9, 17))
	}
	y.create(t, specOf("drain", p.address, `, drain: {grace: 10s, timeout: 60s}, identity: {coolDown: 1s}`))
	y.active(t, "drain", 2)
	busy := func(node string) int { return p.Node(poolHost("drain", node)).Containers }
	work := func() {
		t.Helper()
		p.Ask("jobs", fakerm.Demand{Label: "elastic", Size: fakerm.Size{MemoryMiB: 1024, VCores: 1}, For: 8 * time.Second,
			PerNode: 1})
		eventually(t, "both are busy", func() (bool, string) {
			return busy("drain-0") == 1 && busy("drain-1") == 1, fmt.Sprint(busy("drain-0"), busy("drain-1"))
		})
		p.Ask("jobs", fakerm.Demand{}) // containers land on the floor of a worker that drains without an exclude file
	}
	one := func(gone int) {
		t.Helper()
		y.becomes(t, "drain", "one worker on the other node", func(p *v1alpha1.WorkerPool) bool {
			return p.Status.Active == 1 && p.Status.Wanted == 1 && len(p.Status.Workers) == 2 &&
				pool.Phase(p.Status.Workers[gone].Phase) == pool.Terminated
		})
		y.mu.Lock()
		defer y.mu.Unlock()
		if p.ended > 0 {
			t.Errorf("%d containers ended with their pods", p.ended)
		}
	}
	work()
	began := time.Now()
	drained := make(chan error, 1)
	go func() {
		out, err := tryKubectl("drain", "drain-0", "--pod-selector=waterline.io/pool", "--delete-emptydir-data", "--force",
			"--timeout=2m")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		drained <- err
	}()
	if out, err := tryKubectl("delete", "pod", "drain-drain-1", "-n", poolNamespace, "--timeout=2m"); err != nil {
		t.Errorf("deleting the pod: %v: %s", err, out)
	}
	t.Logf("the deleted pod ended after %s", time.Since(began).Round(time.Second))
	if err := <-drained; err != nil {
		t.Errorf("draining the node: %v", err)
	}
	t.Logf("the node was drained after %s", time.Since(began).Round(time.Second))
	one(0)
	kubectl(t, "uncordon", "drain-0")
	y.active(t, "drain", 2)

	apply(t, `
apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: drain}
spec: {mode: Enforce, priority: 10, nodeSelector: {matchLabels: {drain: here}}, cpu: {}, memory: {}}
`)
	kubectl(t, "label", "node", "drain-1", "drain=here")
	pause := []string{"annotate", "node", "drain-1", v1alpha1.AnnotationPause}
	pausePolicy := []string{"annotate", "colocationpolicy", "drain", v1alpha1.AnnotationPause}
	mode := []string{"patch", "colocationpolicy", "drain", "--type=merge", "--patch="}
	for _, stop := range []struct {
		what    string
		args    []string
		on, off string // appended to the last argument
	}{
		{"the node is paused", pause, "=true", "-"},
		{"the policy of the node is paused", pausePolicy, "=true", "-"},
		{"the policy of the node is disabled", mode, `{"spec": {"mode": "Disabled"}}`, `{"spec": {"mode": "Enforce"}}`},
	} {
		t.Log(stop.what)
		with := func(end string) {
			t.Helper()
			args := slices.Clone(stop.args)
			args[len(args)-1] += end
			kubectl(t, args...)
		}
		work()
		with(stop.on)
		one(1)
		with(stop.off)
		y.active(t, "drain", 2)
	}
	y.check(t, p)
}

// testWindow lets a window end while containers run that never end by themselves. They end with their pods, and no pod
// stops before the end of the window.
func (y *yard) testWindow(t *testing.T) {
	p := y.rm(t, "window", "elastic", quick, 10*time.Second, 30*time.Minute)
	for i := range 4 {
		y.offer(t, fmt.Sprintf("window-%d", i), "window", cpuMemory(9, 17))
	}
	window := func(now, end time.Time) string {
		return fmt.Sprintf(`[{"name": "w", "start": %q, "end": %q, "timeZone": "UTC", "drainBefore": "40s"}]`,
			now.Add(-10*time.Minute).Format("15:04"), end.Format("15:04"))
	}
	now := time.Now().UTC()
	y.create(t, specOf("window", p.address, `, size: {ceiling: {cpu: 5, memory: 10Gi}, pause: 1s, follow: {window: 0s}}, `+
		`windows: `+window(now, now.Add(20*time.Minute))+`, ramp: {waves: 2, interval: 2s}, drain: {grace: 10s}`))
	size := fakerm.Size{MemoryMiB: 1024, VCores: 1}
	p.Ask("long", fakerm.Demand{Label: "elastic", Size: size, For: time.Hour, PerNode: 2})
	p.Ask("short", fakerm.Demand{Label: "elastic", Size: size, For: 4 * time.Second, PerNode: 2})
	y.becomes(t, "window", "four active workers", func(p *v1alpha1.WorkerPool) bool { return p.Status.Active == 4 })
	for i := range 4 {
		eventually(t, "each has a container that does not end", func() (bool, string) {
			n := p.Node(poolHost("window", fmt.Sprintf("window-%d", i)))
			return n.Containers >= 2, fmt.Sprintf("%+v", n)
		})
	}
	now = time.Now().UTC()
	end := now.Add(time.Minute).Truncate(time.Minute).Add(time.Minute)
	if status := y.request(http.MethodPatch, poolPath+"window", `{"spec":{"windows":`+window(now, end)+`}}`); status !=
		http.StatusOK {
		t.Fatalf("setting the end of the window: status %d", status)
	}
	y.becomes(t, "window", "the first wave drains", func(p *v1alpha1.WorkerPool) bool { return p.Status.Leaving >= 2 })
	eventually(t, "all workers have stopped", func() (bool, string) {
		n := y.podsOf("window")
		return n == 0, fmt.Sprint(n)
	})
	y.becomes(t, "window", "the window is closed", func(p *v1alpha1.WorkerPool) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		return c.Reason == "WindowClosed" && c.Status == "True" && p.Status.Next != nil
	})
	y.mu.Lock()
	if p.ended == 0 {
		t.Error("no container ended with its pod, so nothing was shown")
	}
	for _, e := range p.ends { // y.check below checks that no container ended before
		if e.by.Before(end) {
			t.Errorf("the marks of a worker let its containers end at %s, and the window ends at %s", e.by, end)
		}
	}
	y.mu.Unlock()
	y.check(t, p)
}
