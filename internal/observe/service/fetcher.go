// Package service fetches the figures of services, such as the 99th percentile of the time that a request takes: from
// the pods themselves, or from a Prometheus server.
//
// Pods are not trusted. Whatever they answer costs at most [timeout] and [maxAnswerBytes] bytes of reading a second,
// and a few kilobytes of memory. Nothing that they answer makes the agent connect to another address.
package service

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

const (
	timeout        = 800 * time.Millisecond // of a whole fetch
	maxAnswerBytes = 4 << 20                // bytes that are read of an answer
	maxTargets     = 16                     // targets at once; more are not fetched
	everyPort      = time.Second
	everyQuery     = 5 * time.Second
	maxErrorBytes  = 240 // bytes of an error

	// Older samples of Prometheus are not asked for: rule contention takes them for unknown.
	maxSampleAge = 20 * time.Second
)

// Fetcher fetches figures beside the agent's loop. It is safe for concurrent use.
type Fetcher struct {
	node   string // name
	client *http.Client
	clock  func() time.Duration // since boot
	limit  time.Duration        // of a whole fetch
	begin  chan struct{}

	mu      sync.Mutex
	entries []*entry // ordered by UID
	left    []*entry // not wanted any more, in the order in which they left; at most maxTargets
}

// entry is one target and what is known of it.
type entry struct {
	target  model.ServiceTarget
	figure  model.ServiceFigure
	next    time.Duration // when it is fetched next
	busy    bool
	left    time.Duration // when it was no longer wanted
	history history       // of a histogram; it belongs to the fetch that is under way
}

// New returns a fetcher of the node with this name. It fetches nothing before [Fetcher.Need].
func New(node string) *Fetcher {
	return &Fetcher{
		node: node, clock: host.SinceBoot, limit: timeout, begin: make(chan struct{}, 1),
		client: &http.Client{
			Transport: &http.Transport{
				// Without a proxy, and without decompression: a few bytes could become gigabytes.
				DisableCompression:     true,
				MaxResponseHeaderBytes: 64 << 10,
				MaxIdleConnsPerHost:    4, // several pods may have one server
				MaxConnsPerHost:        4,
				IdleConnTimeout:        3 * everyQuery,
				ReadBufferSize:         4 << 10,
				WriteBufferSize:        4 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Need sets what is fetched from now on, ordered by UID. What was fetched for a target is kept while it stays, and
// while it is not wanted for less than a quantile looks back: batch may run every other second, and a histogram that
// was read only once has no figure.
func (f *Fetcher) Need(wanted []model.ServiceTarget) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(wanted) == 0 && len(f.entries) == 0 && len(f.left) == 0 {
		return
	}
	now := f.clock()
	f.left = slices.DeleteFunc(f.left, func(e *entry) bool { return now-e.left >= window })
	wanted = wanted[:min(len(wanted), maxTargets)]
	entries, changed := make([]*entry, 0, len(wanted)), false
	for i := range wanted {
		t := &wanted[i]
		e := model.FindByUID(f.entries, t.UID, func(e **entry) string { return (*e).target.UID })
		if e != nil && (*e).target.Equal(t) {
			entries = append(entries, *e)
			continue
		}
		changed = true
		entries = append(entries, f.again(t))
	}
	for _, e := range f.entries {
		if !slices.Contains(entries, e) {
			e.left = now
			f.left = append(f.left, e)
		}
	}
	f.left = slices.Delete(f.left, 0, max(len(f.left)-maxTargets, 0))
	f.entries = entries
	if changed {
		select {
		case f.begin <- struct{}{}:
		default:
		}
	}
}

// again returns the entry of a target that is wanted again, or a new one.
func (f *Fetcher) again(t *model.ServiceTarget) *entry {
	i := slices.IndexFunc(f.left, func(e *entry) bool { return e.target.Equal(t) })
	if i < 0 {
		return &entry{target: *t, figure: model.ServiceFigure{UID: t.UID, Max: t.Max}}
	}
	e := f.left[i]
	f.left = slices.Delete(f.left, i, i+1)
	return e
}

// Append appends the figures of all targets, ordered by UID.
func (f *Fetcher) Append(to []model.ServiceFigure) []model.ServiceFigure {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries {
		to = append(to, e.figure)
	}
	return to
}

// Run fetches until the context ends.
func (f *Fetcher) Run(ctx context.Context) {
	var fetches sync.WaitGroup
	defer f.client.CloseIdleConnections()
	defer fetches.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.begin:
		case <-timer.C:
		}
		if wait := f.start(ctx, &fetches); wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// start starts the fetches that are due, and returns the time until the next; 0: there is nothing to fetch.
func (f *Fetcher) start(ctx context.Context, fetches *sync.WaitGroup) time.Duration {
	const shortest = 50 * time.Millisecond // until a fetch that is late is looked for again
	f.mu.Lock()
	defer f.mu.Unlock()
	now, wait := f.clock(), time.Duration(0)
	for _, e := range f.entries {
		if now >= e.next && !e.busy {
			e.busy, e.next = true, now+every(&e.target)
			fetches.Go(func() { f.fetch(ctx, e) })
		}
		if left := max(e.next-now, shortest); wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

// every returns the time between two fetches of a target.
func every(t *model.ServiceTarget) time.Duration {
	if t.Source.Port == 0 {
		return everyQuery
	}
	return everyPort
}

// fetch fetches the figure of one entry.
func (f *Fetcher) fetch(ctx context.Context, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, f.limit)
	defer cancel()
	at := f.clock()
	value, age, err := f.value(ctx, e, at)
	f.mu.Lock()
	defer f.mu.Unlock()
	e.busy = false
	if errors.Is(err, errFirst) {
		e.figure.Failed = ""
		return
	}
	if err != nil {
		text := strings.ToValidUTF8(err.Error(), "")
		e.figure.Failed = strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")
		return
	}
	e.figure.Failed = ""
	e.figure.At, e.figure.Value = max(at-age, 0), value
}

// errFirst means that a histogram was read only once, so that it has nothing to be compared with.
var errFirst = errors.New("the histogram was read only once")

// value returns the figure of an entry in millionths, and its age when it was asked for.
func (f *Fetcher) value(ctx context.Context, e *entry, at time.Duration) (value int64, age time.Duration, err error) {
	s := &e.target.Source
	var v float64
	switch {
	case s.Port == 0:
		v, age, err = f.query(ctx, &e.target)
	case s.Quantile == 0:
		v, err = f.metric(ctx, &e.target)
	default:
		var b []bucket
		if b, err = f.buckets(ctx, &e.target); err != nil {
			return 0, 0, err
		}
		if !e.history.add(at, b) {
			return 0, 0, errFirst
		}
		v, err = e.history.quantile(float64(s.Quantile) / 1e6)
	}
	if err != nil {
		return 0, 0, err
	}
	value, err = millionths(v)
	return value, age, err
}
