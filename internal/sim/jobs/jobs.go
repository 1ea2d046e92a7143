// Package jobs makes the batch work of a simulated cluster: jobs come at random times, and each has containers that run
// for different lengths of time.
package jobs

import (
	"math"
	"math/rand/v2"
	"time"
)

// Settings describe the jobs.
type Settings struct {
	Cores      float64 // that all jobs together need in the mean; 0: there are none
	Containers int     // of a job in the mean
	Container  float64 // cores that a container uses at most
	// Median is the median time that a container runs on free CPUs, and Spread the standard deviation of its logarithm.
	Median time.Duration
	Spread float64
}

// Task is the work of one container.
type Task struct {
	Work float64 // core-seconds in all
	Done float64 // in this attempt
}

// Queue makes jobs, and keeps their containers until they are taken.
type Queue struct {
	random *rand.Rand
	s      Settings
	next   time.Time
	rate   float64 // jobs a second
	queue  []Task  // the oldest first
	killed []Task  // to begin anew, before others
}

// New returns the jobs from a time on. The same seed makes the same jobs.
func New(s Settings, seed uint64, now time.Time) *Queue {
	mean := s.Median.Seconds() * math.Exp(s.Spread*s.Spread/2) * s.Container
	return &Queue{
		random: rand.New(rand.NewPCG(seed, 1<<32)), s: s, next: now, rate: s.Cores / mean / float64(s.Containers),
	}
}

// Arrive adds the jobs that come up to a time.
func (q *Queue) Arrive(now time.Time) {
	for q.rate > 0 && !q.next.After(now) {
		for range 1 + q.random.IntN(2*q.s.Containers-1) {
			seconds := q.s.Median.Seconds() * math.Exp(q.s.Spread*q.random.NormFloat64())
			q.queue = append(q.queue, Task{Work: max(seconds, 1) * q.s.Container})
		}
		q.next = q.next.Add(time.Duration(q.random.ExpFloat64() / q.rate * float64(time.Second)))
	}
}

// Take takes a task that was given back last, or the oldest one.
func (q *Queue) Take() (Task, bool) {
	if last := len(q.killed) - 1; last >= 0 {
		t := q.killed[last]
		q.killed = q.killed[:last]
		return t, true
	}
	if len(q.queue) == 0 {
		return Task{}, false
	}
	t := q.queue[0]
	q.queue = q.queue[1:]
	return t, true
}

// Again gives back a task that was killed, or not started. It begins anew, before others.
func (q *Queue) Again(t Task) {
	t.Done = 0
	q.killed = append(q.killed, t)
}

// Waiting returns the number of tasks that wait.
func (q *Queue) Waiting() int { return len(q.queue) + len(q.killed) }
