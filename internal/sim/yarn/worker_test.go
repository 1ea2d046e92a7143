package yarn

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/sim/jobs"
)

// TestResizeKillsTheNewest checks the model of the ResourceManager: nothing is killed before the deadline, then the
// newest, and a resize to the same total is ignored.
func TestResizeKillsTheNewest(t *testing.T) {
	each := pool.Size{MemoryMiB: 1024, VCores: 1}
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	w := Worker{up: true, total: pool.Size{MemoryMiB: 4096, VCores: 4}}
	for i := range 4 {
		w.tasks = append(w.tasks, jobs.Task{Work: float64(i)})
	}
	if w.free(each) {
		t.Error("a fifth container fits")
	}
	less := pool.Size{MemoryMiB: 8192, VCores: 2}
	p := Pool{Workers: []*Worker{&w}, Counts: true}
	p.Resize(0, less, now.Add(time.Minute))
	p.Resize(0, less, now)
	if p.Count.Resizes != 1 {
		t.Error("a resize to the same total is not ignored")
	}
	if killed := w.overdue(now.Add(59*time.Second), each); killed != nil {
		t.Errorf("%d containers were killed early", len(killed))
	}
	killed := w.overdue(now.Add(time.Minute), each)
	if len(killed) != 2 || killed[0].Work != 3 || killed[1].Work != 2 || len(w.tasks) != 2 {
		t.Errorf("%+v were killed, and %+v are left", killed, w.tasks)
	}
}

// TestSharesCPU checks that containers get what is left, and that work is done in that time.
func TestSharesCPU(t *testing.T) {
	each := pool.Size{MemoryMiB: 1024, VCores: 1}
	w := Worker{tasks: []jobs.Task{{Work: 10}, {Work: 30}}}
	if ended := w.run(1, 20, each); ended != 10 || len(w.tasks) != 1 || w.tasks[0].Done != 10 {
		t.Errorf("half a core each for 20 s: %g ended, %+v is left", ended, w.tasks)
	}
	if w.run(8, 10, each); w.tasks[0].Done != 20 {
		t.Errorf("a container of a vcore used more than a core: %+v", w.tasks)
	}
}

// TestPushbacks checks what counts as a pushback, and which ones ended with a killed container.
func TestPushbacks(t *testing.T) {
	each := pool.Size{MemoryMiB: 1024, VCores: 1}
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	p := New(Settings{Container: each}, 1, jobs.New(jobs.Settings{Containers: 1}, 1, now), now)
	p.Counts = true
	w := p.Workers[0]
	large, small := pool.Size{MemoryMiB: 4096, VCores: 4}, pool.Size{MemoryMiB: 2048, VCores: 2}
	with := func(tasks int) {
		w.Pod, w.up, w.total, w.deadline, w.tasks = &pool.Pod{Started: now}, true, large, time.Time{}, nil
		for range tasks {
			w.tasks = append(w.tasks, jobs.Task{Work: 1e9})
		}
	}
	late := now.Add(2 * time.Minute)
	for _, c := range []struct {
		about             string
		does              func()
		pushbacks, forced int
	}{
		{"containers fit", func() {
			with(2)
			p.Resize(0, small, now.Add(time.Minute))
			p.Live(0, late)
		}, 0, 0},
		{"they are killed, after two resizes", func() {
			with(4)
			p.Resize(0, pool.Size{MemoryMiB: 3072, VCores: 3}, now.Add(time.Minute))
			p.Live(0, now)
			p.Resize(0, small, now.Add(time.Minute))
			p.Live(0, late)
			p.Live(0, late)
		}, 1, 1},
		{"they end", func() {
			with(4)
			p.Resize(0, small, now.Add(time.Minute))
			w.tasks = w.tasks[:2]
			p.Live(0, now)
		}, 1, 0},
		{"the node has room again", func() {
			with(4)
			p.Resize(0, small, now.Add(time.Minute))
			p.Resize(0, large, now.Add(time.Minute))
			p.Live(0, late)
		}, 1, 0},
		{"the deadline runs", func() {
			with(4)
			p.Resize(0, small, now.Add(time.Minute))
			p.Live(0, now)
		}, 0, 0},
		{"its pod is deleted", func() {
			with(4)
			p.Stop(0, now)
		}, 1, 1},
	} {
		p.Count, w.push = Count{}, fits
		if c.does(); p.Count.Pushbacks != c.pushbacks || p.Count.Forced != c.forced {
			t.Errorf("%s: %+v", c.about, p.Count)
		}
	}
	if share := (&Count{Pushbacks: 8, Forced: 2}).ForcedShare(); share != 0.25 {
		t.Errorf("2 of 8: %g", share)
	}
}
