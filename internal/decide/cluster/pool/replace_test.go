package pool

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEditedSize edits the sizes of a pool while a worker runs. What the ResourceManager is told stays within what the
// worker's pod requests, and what its limits leave.
func TestEditedSize(t *testing.T) {
	for _, c := range []struct {
		about        string
		own          Size // what the pod was made with
		most         Size // what its limits leave
		set, ceiling Size // of the spec now
		rest         Size // of the node
		used         Size
		want         Size
	}{
		{"nothing changed", Size{2048, 2}, Size{16384, 8}, Size{2048, 2}, Size{16384, 8}, Size{4096, 4}, Size{},
			Size{4096, 6}},
		{"the floor is raised", Size{2048, 2}, Size{16384, 8}, Size{8192, 8}, Size{16384, 8}, Size{}, Size{}, Size{2048, 2}},
		{"the ceiling is raised", Size{2048, 2}, Size{4096, 4}, Size{2048, 2}, Size{65536, 32}, Size{60000, 30}, Size{},
			Size{4096, 4}},
		{"the floor is lowered", Size{4096, 4}, Size{16384, 8}, Size{1024, 1}, Size{16384, 8}, Size{}, Size{}, Size{4096, 4}},
		{"the ceiling is lowered", Size{2048, 2}, Size{16384, 8}, Size{2048, 2}, Size{4096, 4}, Size{12000, 6}, Size{},
			Size{4096, 4}},
		{"the ceiling is lowered below what runs", Size{2048, 2}, Size{16384, 8}, Size{2048, 2}, Size{4096, 4},
			Size{12000, 6}, Size{6144, 3}, Size{6144, 4}},
	} {
		t.Run(c.about, func(t *testing.T) {
			now := time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC)
			has := Allowance(c.own, c.rest, 1)
			in := Input{
				Now: now, RM: RM{Known: true, Labels: true},
				Settings: Settings{
					Label: "elastic", Floor: c.set, Ceiling: c.ceiling, Step: Size{2048, 2}, Core: 1, Grace: time.Minute,
					Drain: time.Hour,
				},
				Workers: []Worker{{
					Name: "w0", Wanted: true, Room: true, Allowance: has,
					Figures: Figures{Now: has, Tenth: has, Half: has, Whole: has, Lowest: has, Spare: has, Watched: true},
					Pod: &Pod{
						Started: now.Add(-time.Hour), Marks: Marks{Registered: true}, Floor: c.own, Ceiling: c.most,
					},
					Managers: []Manager{{State: running, Label: "elastic", Total: c.own.Or(c.used), Used: c.used}},
				}},
			}
			m := &in.Workers[0].Managers[0]
			for range 30 { // until nothing changes
				s := Next(&in)[0]
				if s.Marks.Until.After(now) {
					t.Fatalf("containers are to end: %+v", s)
				}
				if in.Workers[0].Pod.Marks = s.Marks; s.Verb == Resize {
					m.Total = s.Size
				}
			}
			if m.Total != c.want {
				t.Errorf("the ResourceManager is told %s, want %s", m.Total, c.want)
			}
		})
	}
}

// outdated returns workers of a pool whose pods were made from an earlier spec.
func outdated(w *world, n int) {
	for i := range n {
		w.workers = append(w.workers, &place{
			Worker: Worker{Name: string(rune('a' + i)), Wanted: true, Room: true, Allowance: Size{20000, 9}}, read: true,
			more: 1, each: Size{1024, 1}, demand: 4, takes: 200 * time.Second,
		})
	}
	w.run(150)
	for _, p := range w.workers {
		p.Pod.Outdated = true
	}
}

// away counts workers that take no containers.
func (w *world) away() (n int) {
	for _, p := range w.workers {
		if m := p.manager(); p.Pod == nil || m == nil || m.State != running || !p.Pod.Marks.Leaving.IsZero() {
			n++
		}
	}
	return n
}

// TestReplaces has a pool whose spec changed. Every pod is replaced, each after its containers have ended, and at most
// a tenth of the workers is away at a time.
func TestReplaces(t *testing.T) {
	w := newWorld(t)
	outdated(w, 20)
	most := 0
	for range 6000 {
		w.run(1)
		most = max(most, w.away())
	}
	for _, p := range w.workers {
		if p.Pod == nil || p.Pod.Outdated {
			t.Errorf("%s was not replaced: %+v", p.Name, p.Pod)
		}
	}
	if most != 2 || w.kills+w.early > 0 {
		t.Errorf("%d of 20 workers were away at a time; %d containers were killed at their time, %d before", most, w.kills,
			w.early)
	}
}

// TestReplacesNoMore has a pool whose new spec starts no NodeManager: the other workers stay as they are. When it is
// corrected, pods that never worked are replaced at once.
func TestReplacesNoMore(t *testing.T) {
	w := newWorld(t)
	outdated(w, 20)
	for _, p := range w.workers {
		p.never = true // the next one
		p.up = true
	}
	for range 3000 {
		w.run(1)
	}
	if n := w.away(); n != 2 {
		t.Errorf("%d of 20 workers are away", n)
	}
	in := Input{Workers: []Worker{{Wanted: true, Pod: &Pod{Outdated: true}}, {Wanted: true, Pod: &Pod{Outdated: true}}}}
	if all := replace(&in); !all[0] || !all[1] {
		t.Errorf("pods that never worked: %v", all)
	}
}

// TestBarredIsNotReplaced checks that no pod is replaced that none would follow.
func TestBarredIsNotReplaced(t *testing.T) {
	outdated := &Pod{Outdated: true, Marks: Marks{Registered: true}}
	in := Input{RM: RM{Known: true}, Workers: []Worker{
		{Wanted: true, Room: true, Barred: true, Pod: outdated},
		{Wanted: true, Room: true, Barred: true, Pod: &Pod{Outdated: true}},
	}}
	if all := replace(&in); slices.Contains(all, true) {
		t.Errorf("replaced: %v", all)
	}
	in.Workers[0].Barred = false
	if all := replace(&in); !slices.Equal(all, []bool{true, false}) {
		t.Errorf("one is not barred any more; replaced: %v", all)
	}
}

// TestBadWorkerStopsNoReplacement has a pool of ten whose spec changes, and a worker whose NodeManager never registers:
// it was given up before, or begins to fail when another worker runs with the new spec. The others are replaced, and
// those that wait say so.
func TestBadWorkerStopsNoReplacement(t *testing.T) {
	for _, before := range []bool{true, false} {
		w := newWorld(t)
		outdated(w, 10)
		bad := w.workers[9]
		if !before {
			w.run(600)
		}
		bad.never, bad.GivenUp = true, before
		w.gone(bad)
		w.run(10)
		if n := strings.Count(w.out.String(), " Active: Wait, PodOutdated"); n < 8 {
			t.Errorf("%d workers said that they wait for another pod", n)
		}
		w.run(8000)
		if bad.Attempts < w.set.Attempts {
			t.Errorf("the bad worker failed %d times", bad.Attempts)
		}
		for _, p := range w.workers {
			if p != bad && (p.Pod == nil || p.Pod.Outdated) {
				t.Errorf("given up before: %v: %s was not replaced", before, p.Name)
			}
		}
		if w.kills+w.early > 0 {
			t.Errorf("%d containers were killed at their time, %d before", w.kills, w.early)
		}
	}
}

// TestReplacesBeside checks how many workers in quarantine stop a pool of 20 from replacing pods.
func TestReplacesBeside(t *testing.T) {
	for _, c := range []struct {
		about         string
		given, before int // workers that are given up: with this spec, and before
		works         bool
		sick          bool // the one that works
		want          int  // pods that are replaced now
	}{
		{about: "all are well", want: 2},
		{about: "one is given up, and none runs with the new spec", given: 1, want: 1},
		{about: "two are given up, and none runs with the new spec", given: 2, want: 0},
		{about: "two are given up, and one works", given: 2, works: true, want: 2},
		{about: "two are given up, and one is not well", given: 2, works: true, sick: true, want: 0},
		{about: "three are given up, and one works", given: 3, works: true, want: 1},
		{about: "half is given up, and one works", given: 10, works: true, want: 0},
		{about: "half was given up before", before: 10, want: 2},
	} {
		in := Input{RM: RM{Known: true}, Settings: Settings{Attempts: 2}, Now: time.Now()}
		for i := range 20 {
			worker := Worker{Wanted: true, Room: true, Pod: &Pod{Outdated: true, Marks: Marks{Registered: true}}}
			switch {
			case i < c.given:
				worker.Pod, worker.Attempts, worker.Ended = nil, 2, in.Now
			case i < c.given+c.before:
				worker.Pod, worker.GivenUp = nil, true
			case i == 19 && c.works:
				if worker.Pod.Outdated = false; c.sick {
					worker.Pod.Marks.Unhealthy = in.Now
				}
			}
			in.Workers = append(in.Workers, worker)
		}
		n := 0
		for _, replaced := range replace(&in) {
			if replaced {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%s: %d are replaced, want %d", c.about, n, c.want)
		}
	}
}
