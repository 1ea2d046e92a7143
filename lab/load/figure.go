package load

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// FigureMetric is the metric that a generator serves at its address, under /metrics: what [Figure] says of the answers
// within [FigureWindow], in seconds.
const (
	FigureMetric = "request_seconds"
	FigureWindow = 2 * time.Second
)

// Figure returns the latency that 99 of 100 requests did not exceed; 0 without any.
func Figure(requests []Request) time.Duration {
	if len(requests) == 0 {
		return 0
	}
	all := make([]time.Duration, 0, len(requests))
	for i := range requests {
		all = append(all, requests[i].Latency())
	}
	slices.Sort(all)
	return all[(len(all)-1)*99/100]
}

// figure serves the latency of requests. The generator never waits for those who read it: they are threads like any
// other, which batch keeps from running, and it would be late.
type figure struct {
	server   http.Server
	start    atomic.Pointer[time.Time] // since which the times of requests count; nil: it has not begun
	answered []Request                 // in the order of the answers, of which the first count are there
	count    atomic.Int64
}

// serveFigure serves a figure of so many requests at an address until it is closed.
func serveFigure(address string, requests int) (*figure, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving the latency of requests: %w", err)
	}
	f := &figure{answered: make([]Request, requests)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var latest []Request
		if start := f.start.Load(); start != nil {
			latest = f.latest(time.Since(*start))
		}
		_, _ = fmt.Fprintf(w, "%s %g\n", FigureMetric, Figure(latest).Seconds())
	})
	f.server.Handler, f.server.ReadHeaderTimeout = mux, FigureWindow
	go func() { _ = f.server.Serve(listener) }() // until it is closed
	return f, nil
}

func (f *figure) close() { _ = f.server.Close() }

// add counts a request that has just been answered.
func (f *figure) add(r Request) {
	n := f.count.Load()
	f.answered[n] = r
	f.count.Store(n + 1)
}

// latest returns the requests that were answered within the window before a time.
func (f *figure) latest(now time.Duration) []Request {
	all := f.answered[:f.count.Load()]
	first := len(all)
	for first > 0 && now-all[first-1].Ready <= FigureWindow {
		first--
	}
	return all[first:]
}
