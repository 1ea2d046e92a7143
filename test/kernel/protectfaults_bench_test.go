//go:build bench

package kernel_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// use measures the CPU usage of the online pod and of batch for a while, in milli-cores.
func (n *protectNode) use(length time.Duration) (web, job float64) {
	n.t.Helper()
	var nanos [2][2]uint64
	var at [2][2]time.Time
	for i := range 2 {
		if i > 0 {
			time.Sleep(length)
		}
		for j, dir := range []string{n.web, n.job} {
			nanos[i][j], at[i][j] = n.used(dir)
		}
	}
	milli := func(j int) float64 { return float64(nanos[1][j]-nanos[0][j]) / float64(at[1][j].Sub(at[0][j])) * 1000 }
	return milli(0), milli(1)
}

// shielded measures the usage of the online pod for a while, in milli-cores. It is wrong if the pod has much less than
// it wants while batch has some. CPU that neither has was taken by other processes and is not judged.
func (n *protectNode) shielded(when string, wants float64, length time.Duration) (web, job float64, why string) {
	n.t.Helper()
	web, job = n.use(length)
	n.t.Logf("%s: online uses %.0f mCPU of %.0f, batch %.0f", when, web, wants, job)
	enough := 0.8
	if emulated() {
		enough = 0.5 // measurements mean little there
	}
	if web < enough*wants && job > 0.2*web {
		why = fmt.Sprintf("%s: online uses %.0f mCPU of %.0f, and batch %.0f", when, web, wants, job)
	}
	return web, job, why
}

// reacts judges the times that it took until batch had less.
func (n *protectNode) reacts(took ...time.Duration) (why string) {
	n.t.Helper()
	slices.Sort(took)
	n.t.Logf("online rises -> batch has less: %s", took)
	most := 10 * time.Second // a process may stand still for seconds; waiting for the API server would take longer
	if len(took) >= 10 && !emulated() {
		most = 800 * time.Millisecond // the measurements of each second would be as fast
	}
	if middle := took[len(took)/2]; middle > most {
		return fmt.Sprintf("in the median batch has less after %s, want at most %s", middle, most)
	}
	return ""
}

// TestProtectFaultsFigures measures what the online pod has during each fault, how fast batch makes room, and batch's
// allowance while another agent takes over. If the machine stands still for a second, batch seems to have an allowance
// that does not exist.
func TestProtectFaultsFigures(t *testing.T) {
	retry(t, 3, func() (values map[string]float64, why string) {
		if !t.Run("attempt", func(t *testing.T) { values, why = protectFigures(t) }) && why == "" {
			why = "a check of the program failed"
		}
		return values, why
	})
}

func protectFigures(t *testing.T) (values map[string]float64, why string) {
	t.Helper()
	n := newProtectNode(t)
	alive, quota, cpu, began := 0.0, int64(0), time.Duration(0), time.Now()
	var holding string
	var wrong []string
	judge := func(why string) {
		if why != "" {
			wrong = append(wrong, why)
		}
	}
	values = map[string]float64{}
	shielded := func(what string, wants float64, length time.Duration) (web, job float64) {
		web, job, why := n.shielded(what, wants, length)
		values[what+", online_milli"], values[what+", batch_milli"] = web, job
		judge(why)
		return web, job
	}
	n.moment = func(what string) {
		switch what {
		case withoutAPI:
			alive, _ = shielded(what, 1000, 1500*time.Millisecond)
			judge(n.reacts(n.steps...))
			n.steps = nil
		case withoutAgent:
			quota, holding = n.cores(), n.holding()
			if _, batch := shielded(what, alive, 1500*time.Millisecond); batch > 1.2*float64(quota)+50 {
				judge(fmt.Sprintf("without an agent batch uses %.0f mCPU of %d", batch, quota))
			}
		case allOnline:
			shielded(what, float64(n.milli), time.Second)
		case podsUnknown:
			// On emulated CPUs it takes longer than a second until the new agent queries the API server. Then it has measured,
			// and decides about the pods that the former agent knew.
			if now := n.holding(); now != holding && !emulated() {
				judge("the kernel has " + now + ", was " + holding + ", before the new agent knows the pods")
			}
		case bombStarted:
			cpu, began = n.d.cpu(), time.Now()
		case besideTheBomb:
			judge(n.reacts(n.steps...))
			shielded(what, alive, 1500*time.Millisecond)
			used := (n.d.cpu() - cpu).Seconds() / time.Since(began).Seconds()
			values["agent_cpus"] = used
			if most := 0.3; used > most && !emulated() {
				judge(fmt.Sprintf("beside the fork bomb the agent uses %.2f CPUs, want at most %.2f", used, most))
			}
		}
	}
	protectFaults(n)
	values["quota_milli"], values["least_milli"], values["most_milli"] = float64(quota), float64(n.least), float64(n.most)
	if (n.most > n.milli*85/100 || n.least < quota/3) && !emulated() {
		judge("batch's allowance during the takeover by another agent")
	}
	return values, strings.Join(wrong, "; ")
}

// TestSuppressUnwatchedDelay measures how fast an agent without watches suppresses batch.
func TestSuppressUnwatchedDelay(t *testing.T) {
	n := newProtectNode(t)
	took := unwatched(n)
	if why := n.reacts(n.steps...); why != "" {
		t.Error(why)
	}
	t.Logf("a new batch pod has its weight and quota after %s", took)
	if took > 10*time.Second && !emulated() {
		t.Errorf("a new batch pod has its quota after %s", took)
	}
}

// TestSuppressFrozenDelay checks that batch keeps its allowance for as long as measurements are as good as new.
func TestSuppressFrozenDelay(t *testing.T) {
	if took := frozenStat(newProtectNode(t)); took < 5*time.Second {
		t.Errorf("batch has less after %s, though measurements are as good as new for 5 s", took)
	}
}
