// Package cache keeps what the manager needs of the objects of one kind, and knows whether that is up to date.
package cache

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/waterline-io/waterline/internal/observe/kube"
)

// Table keeps a plain value for each object of one kind: what the manager needs of it. The objects themselves are
// dropped on arrival. It is safe for concurrent use.
type Table[T any] struct {
	row func(obj any) T
	// Changed, if not nil, is called after each change, without the lock. Set it before the table is followed.
	Changed func()
	// Matters, if not nil, reports whether the change of a value is one to call Changed for. Values that come or go always
	// are. Set it before the table is followed.
	Matters func(before, after T) bool
	// Gone, if not nil, is called with the last value of an object that is gone, before that shows, without the lock. Set
	// it before the table is followed.
	Gone func(last T)

	mu      sync.Mutex
	rows    map[string]T // by name, or namespace/name
	listed  bool
	version uint64

	up atomic.Pointer[time.Time] // start of watching without an error; nil: it is not watched
}

var _ cache.ReflectorStore = (*Table[int])(nil)

// New returns an empty table. row returns what is kept of an object, which may be shared and must not be changed.
func New[T any](row func(obj any) T) *Table[T] {
	return &Table[T]{row: row, rows: map[string]T{}}
}

// Follow keeps the table up to date until the context ends. While the API server is away, the rows stay.
func (t *Table[T]) Follow(
	ctx context.Context, client rest.Interface, resource, namespace, labels string, example runtime.Object,
) {
	list := cache.NewFilteredListWatchFromClient(client, resource, namespace,
		func(o *metav1.ListOptions) { o.LabelSelector = labels })
	inner := list.WatchFuncWithContext
	list.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := inner(ctx, o)
		t.watched(err)
		return w, err
	}
	cache.NewReflectorWithOptions(list, example, t, cache.ReflectorOptions{
		Name: resource, Backoff: kube.Backoff(),
	}).RunWithContext(ctx)
}

// Poll keeps the table up to date by listing at intervals, until the context ends. It is for objects that change all
// the time: a watch of the Leases of 5,000 kubelets delivers 500 changes a second. The API server answers from memory,
// and one list costs as much as the changes of a second. While it is away, the rows stay.
func (t *Table[T]) Poll(
	ctx context.Context, client rest.Interface, resource, namespace string, every time.Duration, list runtime.Object,
) {
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, every)
		next := list.DeepCopyObject()
		err := client.Get().Namespace(namespace).Resource(resource).
			VersionedParams(&metav1.ListOptions{ResourceVersion: "0"}, metav1.ParameterCodec).Do(within).Into(next)
		cancel()
		rows := map[string]T{}
		if err == nil {
			err = meta.EachListItem(next, func(obj runtime.Object) error { rows[key(obj)] = t.row(obj); return nil })
		}
		if err == nil {
			t.change(func() { t.rows, t.listed = rows, true })
		}
		t.watched(err)
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

// watched records how an attempt to watch ended. A broken watch starts again at once, so this is when it shows that the
// API server is away.
func (t *Table[T]) watched(err error) {
	if err != nil {
		t.up.Store(nil)
	} else if t.up.Load() == nil {
		now := time.Now()
		t.up.Store(&now)
	}
}

// Fresh reports whether all objects have been listed, and watched for some time without an error.
func (t *Table[T]) Fresh(now time.Time, settled time.Duration) bool {
	up := t.up.Load()
	return t.Listed() && up != nil && now.Sub(*up) >= settled
}

// Listed reports whether all objects have been listed once.
func (t *Table[T]) Listed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.listed
}

// Get returns the value of a name.
func (t *Table[T]) Get(name string) (T, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	value, found := t.rows[name]
	return value, found
}

// All returns all values by name, and a version that differs after each change.
func (t *Table[T]) All() (map[string]T, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.rows), t.version
}

// Each calls f for all values, under the lock and in no order.
func (t *Table[T]) Each(f func(name string, value T)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, value := range t.rows {
		f(name, value)
	}
}

func (t *Table[T]) change(f func()) {
	t.mu.Lock()
	f()
	t.version++
	t.mu.Unlock()
	if t.Changed != nil {
		t.Changed()
	}
}

func key(obj any) string {
	o, err := meta.Accessor(obj)
	if err != nil {
		return "" // every object of the API has metadata
	}
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// Add implements [cache.ReflectorStore].
func (t *Table[T]) Add(obj any) error {
	name, value := key(obj), t.row(obj)
	t.mu.Lock()
	before, known := t.rows[name]
	t.rows[name] = value
	t.version++
	t.mu.Unlock()
	if t.Changed != nil && (!known || t.Matters == nil || t.Matters(before, value)) {
		t.Changed()
	}
	return nil
}

// Update implements [cache.ReflectorStore].
func (t *Table[T]) Update(obj any) error { return t.Add(obj) }

// Delete implements [cache.ReflectorStore].
func (t *Table[T]) Delete(obj any) error {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if t.Gone != nil {
		t.Gone(t.row(obj))
	}
	name := key(obj)
	t.change(func() { delete(t.rows, name) })
	return nil
}

// Replace implements [cache.ReflectorStore].
func (t *Table[T]) Replace(list []any, _ string) error {
	rows := make(map[string]T, len(list))
	for _, obj := range list {
		rows[key(obj)] = t.row(obj)
	}
	if t.Gone != nil {
		t.mu.Lock()
		before := t.rows // which only the caller of this changes
		t.mu.Unlock()
		for name, last := range before {
			if _, still := rows[name]; !still {
				t.Gone(last)
			}
		}
	}
	t.change(func() { t.rows, t.listed = rows, true })
	return nil
}

// Resync implements [cache.ReflectorStore].
func (t *Table[T]) Resync() error { return nil }
