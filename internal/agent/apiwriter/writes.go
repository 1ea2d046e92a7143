package apiwriter

import (
	"context"
	"sync"

	"github.com/waterline-io/waterline/internal/model"
)

// writer carries out one kind of write. A nil writer writes nothing.
type writer[T any] struct {
	write func(ctx context.Context, job T) error
	jobs  chan T
	ended chan<- struct{}

	mu   sync.Mutex
	last model.APIWrite
}

func newWriter[T any](ended chan<- struct{}, write func(context.Context, T) error) *writer[T] {
	return &writer[T]{write: write, jobs: make(chan T, 1), ended: ended}
}

// start begins a write, unless one is under way.
func (w *writer[T]) start(job T) {
	if w == nil || w.state().Busy {
		return
	}
	w.set(model.APIWrite{Busy: true})
	w.jobs <- job
}

func (w *writer[T]) state() model.APIWrite {
	if w == nil {
		return model.APIWrite{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *writer[T]) set(state model.APIWrite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = state
}

func (w *writer[T]) run(ctx context.Context) {
	if w == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-w.jobs:
			w.set(model.APIWrite{Failed: w.write(ctx, job) != nil})
		}
		wake(w.ended)
	}
}
