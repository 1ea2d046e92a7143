package pools

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// TestAllowance checks what the guard of a worker is told with each step.
func TestAllowance(t *testing.T) {
	until := time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)
	running := []pool.Manager{{State: "RUNNING", Total: pool.Size{MemoryMiB: 8192, VCores: 8}}}
	const before = `{"memoryMiB":1,"vcores":1}`
	for _, c := range []struct {
		about    string
		managers []pool.Manager
		silent   bool // the ResourceManager
		without  bool // the pod has no guard
		step     pool.Step
		want     string
	}{
		{"it stays", running, false, false, pool.Step{Verb: pool.Wait}, `{"memoryMiB":8192,"vcores":8}`},
		{"it grows", running, false, false, pool.Step{Verb: pool.Resize, Size: pool.Size{MemoryMiB: 9216, VCores: 9}},
			`{"memoryMiB":9216,"vcores":9}`},
		{"it shrinks, and everything fits", running, false, false,
			pool.Step{Verb: pool.Resize, Size: pool.Size{MemoryMiB: 4096, VCores: 4}}, `{"memoryMiB":4096,"vcores":4}`},
		{"it shrinks, and not everything fits", running, false, false, pool.Step{
			Verb: pool.Resize, Size: pool.Size{MemoryMiB: 4096, VCores: 4},
			Marks: pool.Marks{Until: until, Into: pool.Size{MemoryMiB: 4096, VCores: 4}},
		}, `{"memoryMiB":4096,"vcores":4,"until":"2026-11-25T09:00:00Z"}`},
		// One MiB more is what the ResourceManager is told to take a deadline again. The guard is not.
		{"another ResourceManager is told the deadline", running, false, false, pool.Step{
			Verb: pool.Resize, Size: pool.Size{MemoryMiB: 4097, VCores: 4},
			Marks: pool.Marks{Until: until, Into: pool.Size{MemoryMiB: 4096, VCores: 4}},
		}, `{"memoryMiB":4096,"vcores":4,"until":"2026-11-25T09:00:00Z"}`},
		{"the ResourceManager is silent", running, true, false, pool.Step{Verb: pool.Wait}, before},
		{"it is silent while a deadline runs", running, true, false, pool.Step{
			Verb: pool.Wait, Marks: pool.Marks{Until: until, Into: pool.Size{MemoryMiB: 4096, VCores: 4}},
		}, `{"memoryMiB":4096,"vcores":4,"until":"2026-11-25T09:00:00Z"}`},
		{"it drains, and gets nothing new", running, false, false, pool.Step{Verb: pool.Resize}, before},
		{"it drains", []pool.Manager{{State: "RUNNING", Containers: 1}}, false, false, pool.Step{Verb: pool.Wait}, before},
		{"it has not registered", nil, false, false, pool.Step{Verb: pool.Wait}, before},
		{"it has no guard", running, false, true, pool.Step{Verb: pool.Wait}, before},
		{"it must have stopped in a minute", running, false, false, pool.Step{By: until}, `{"memoryMiB":0,"vcores":0,` +
			`"until":"2026-11-25T09:00:00Z"}`},
		{"it must have stopped in an hour", running, false, false, pool.Step{By: until.Add(time.Hour)},
			`{"memoryMiB":8192,"vcores":8}`},
	} {
		r := &round{in: pool.Input{
			Now: until.Add(-time.Minute), Settings: pool.Settings{Grace: time.Minute}, RM: pool.RM{Known: !c.silent},
		}}
		pl := &place{
			worker: &pool.Worker{Managers: c.managers}, pod: &podRow{guarded: !c.without, allowance: before},
			step: c.step,
		}
		if got := r.allowance(pl); got != c.want {
			t.Errorf("%s: %s, want %s", c.about, got, c.want)
		}
	}
	r := &round{in: pool.Input{
		Now: until, Settings: pool.Settings{Grace: time.Minute, Graceful: true}, RM: pool.RM{Known: true},
	}}
	pl := &place{worker: &pool.Worker{Managers: running}, pod: &podRow{guarded: true}, step: pool.Step{By: until}}
	if r.allowance(pl) != `{"memoryMiB":8192,"vcores":8}` {
		t.Errorf("the ResourceManager decommissions it: %s", r.allowance(pl))
	}
}
