package jobs

import (
	"math"
	"testing"
	"time"
)

// TestRate checks that the work that arrives needs as many cores as the settings say, and is the same for a seed.
func TestRate(t *testing.T) {
	s := Settings{Cores: 200, Containers: 10, Container: 2, Median: 5 * time.Minute, Spread: 1}
	begin := time.Unix(0, 0)
	all := func(seed uint64) (work float64, n int) {
		q := New(s, seed, begin)
		q.Arrive(begin.Add(100 * time.Hour))
		for n = range q.Waiting() {
			task, ok := q.Take()
			if !ok || task.Done != 0 || task.Work <= 0 {
				t.Fatalf("task %d: %+v, %v", n, task, ok)
			}
			work += task.Work
		}
		if _, more := q.Take(); more || q.Waiting() != 0 {
			t.Error("an empty queue has a task")
		}
		return work, n
	}
	work, n := all(1)
	if cores := work / (100 * 3600); math.Abs(cores-s.Cores) > 0.1*s.Cores {
		t.Errorf("the jobs need %.0f cores, not %.0f", cores, s.Cores)
	}
	if w, m := all(1); w != work || m != n {
		t.Errorf("the same seed makes %d tasks of %g, then %d of %g", n, work, m, w)
	}
	if w, _ := all(2); w == work {
		t.Error("another seed makes the same tasks")
	}
}

// TestAgain checks that a task that was killed comes first, from the beginning.
func TestAgain(t *testing.T) {
	q := New(Settings{Cores: 1, Containers: 1, Container: 1, Median: time.Minute}, 1, time.Unix(0, 0))
	q.Arrive(time.Unix(3600, 0))
	first, _ := q.Take()
	first.Done = first.Work / 2
	q.Again(first)
	if again, ok := q.Take(); !ok || again.Work != first.Work || again.Done != 0 {
		t.Errorf("%+v comes after %+v was killed", again, first)
	}
}
