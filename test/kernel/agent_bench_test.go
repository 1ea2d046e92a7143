//go:build bench

package kernel_test

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestNoHotLoopRate checks how often an agent that finds no pods looks for them: about once a second.
func TestNoHotLoopRate(t *testing.T) {
	began := time.Now()
	looks := noPods(t)
	if took := time.Since(began); float64(looks) > 4+took.Seconds() {
		t.Errorf("the agent read its groups %d times within %s", looks, took)
	}
}

// TestRepairOfNewGroup measures how fast the agent finds a cgroup that is made again under the same name.
func TestRepairOfNewGroup(t *testing.T) {
	n := newNode(t)
	source := newPods()
	source.set(burstable("a", 500, 4096))
	n.start(source, nil)
	a := n.pod(model.Burstable, "a", 500)
	n.expect(a, model.Shares, 4096)
	n.remove(a)
	a = n.pod(model.Burstable, "a", 500)
	began := time.Now()
	n.expect(a, model.Shares, 4096)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("this took %s", took)
	}
}
