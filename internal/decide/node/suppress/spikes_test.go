package suppress

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/model"
)

// steady returns a node with a constant online usage, whose batch uses the rest.
func steady(cpus int, online int64) *node {
	w := newNode(cpus)
	w.batch(int64(cpus) * 1000)
	w.online(online)
	return w
}

// online advances the node by one second with this online usage.
func (w *node) online(milli int64) {
	capacity := w.left.CPU.Capacity
	all, batch := &w.n.Load.Classes[model.Guaranteed].CPU, &w.n.Load.Classes[model.BestEffort].CPU
	all.Milli, batch.Milli = capacity, capacity-milli
	w.n.Load.Node.CPU = model.CPUUsage{At: w.n.Load.Clock + time.Second, Milli: capacity}
	w.tick(capacity - milli)
}

// glance takes a glance some time after the last measurement, and decides again if the glance requires it.
func (w *node) glance(after time.Duration, online int64) (acted bool) {
	was := w.n.Load.Clock
	defer func() { w.n.Load.Clock = was }()
	w.n.Load.Clock += after
	capacity := w.left.CPU.Capacity
	w.n.Glance = model.Glance{At: w.n.Load.Clock, Node: capacity, Pods: capacity, Batch: capacity - online}
	if acted = w.due(); acted {
		_, w.state = Decide(&w.n, &w.p, &w.left, w.harm, w.state)
	}
	return acted
}

// TestSpikes checks that a rise shorter than a second is acted on once, and that the limit recovers.
func TestSpikes(t *testing.T) {
	w := steady(10, 2000)
	acted := 0
	for range 120 {
		if w.glance(300*time.Millisecond, 5000) {
			acted++
			if w.state.Milli != 5000 {
				t.Fatalf("during a rise batch may use %d", w.state.Milli)
			}
		}
		w.online(2000)
	}
	if acted != 1 || w.state.Milli != 8000 {
		t.Errorf("%d of 120 equal spikes were acted on, and batch may use %d in the end", acted, w.state.Milli)
	}
	if !w.glance(300*time.Millisecond, 6000) || w.state.Milli != 4000 {
		t.Errorf("a higher rise was not acted on at once: batch may use %d", w.state.Milli)
	}
}

// TestStepsAreNoSpikes checks that a lasting rise is acted on at once each time.
func TestStepsAreNoSpikes(t *testing.T) {
	w := steady(10, 2000)
	for i := range 10 {
		for range 40 {
			w.online(2000)
		}
		if !w.glance(300*time.Millisecond, 6000) {
			t.Fatalf("step %d was not acted on: %+v", i, w.state.Spikes)
		}
		w.online(2000 + 4000*7/10) // it began within this second
		for range 6 {
			w.online(6000)
		}
	}
}

// TestASecondIsNoSpike checks that a rise that lasts a second is acted on at once each time, wherever in a measured
// second it begins.
func TestASecondIsNoSpike(t *testing.T) {
	for begin := int64(0); begin < 1000; begin += 100 {
		w := steady(10, 2000)
		for i := range 10 {
			for range 40 {
				w.online(2000)
			}
			at := time.Duration(begin)*time.Millisecond + 90*time.Millisecond
			if at < time.Second && !w.glance(at, 6000) {
				t.Fatalf("%d ms after a measurement, time %d: not acted on: %+v", begin, i, w.state.Spikes)
			}
			w.online(2000 + 4000*(1000-begin)/1000)
			w.online(2000 + 4000*begin/1000)
		}
	}
}

// TestSpikesAreForgotten checks that a spike counts as a rise again after an hour, and at once after a boot.
func TestSpikesAreForgotten(t *testing.T) {
	learned := func() *node {
		w := steady(10, 2000)
		w.glance(300*time.Millisecond, 5000)
		for range 40 {
			w.online(2000)
		}
		if w.state.Spikes.Height != 3750 || w.glance(300*time.Millisecond, 4900) {
			t.Fatalf("%+v", w.state.Spikes)
		}
		return w
	}
	w := learned()
	for range 3600 {
		w.online(2000)
	}
	if !w.glance(300*time.Millisecond, 3000) {
		t.Errorf("after an hour: %+v", w.state.Spikes)
	}
	w = learned()
	w.n.Load.Clock, w.n.Glance = time.Minute, model.Glance{}
	w.online(2000)
	if w.state.Spikes != (spikes{}) {
		t.Errorf("after a boot: %+v", w.state.Spikes)
	}
	w = learned()
	text, err := json.Marshal(w.state)
	var read State
	if err != nil || json.Unmarshal(text, &read) != nil {
		t.Fatalf("%s, %v", text, err)
	}
	if d := cmp.Diff(w.state, read); d != "" {
		t.Errorf("%s: decoded with differences (-want +got):\n%s", text, d)
	}
}

// TestSpikesCostLittle checks random load on a small node: batch keeps most of the CPU that is left, and reactions
// are rare.
func TestSpikesCostLittle(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 13))
		w := steady(2, 300)
		acted, sum, n := 0, int64(0), 0
		for second := range 600 {
			var all int64
			for i := range 10 {
				now := int64(200 + 20*r.ExpFloat64()*5) // on average 300, occasionally four times that
				if w.glance(time.Duration(i)*100*time.Millisecond, min(now, 2000)) {
					acted++
				}
				all += now
			}
			w.online(all / 10)
			if second >= 60 {
				sum, n = sum+w.state.Milli, n+1
			}
		}
		if mean := sum / int64(n); acted > 20 || mean < 1500 {
			t.Errorf("seed %d: acted %d times in ten minutes; batch may use %d of 1700 on average", seed, acted, mean)
		}
	}
}
