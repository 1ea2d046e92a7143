package load

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
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

// figure serves the latency of requests.
type figure struct {
	server http.Server

	mu     sync.Mutex
	start  time.Time // since which the times of requests count
	recent []Request // answered within the window, oldest first
}

// serveFigure serves a figure at an address until it is closed.
func serveFigure(address string) (*figure, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving the latency of requests: %w", err)
	}
	f := &figure{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %g\n", FigureMetric, Figure(f.counted()).Seconds())
	})
	f.server.Handler, f.server.ReadHeaderTimeout = mux, FigureWindow
	go func() { _ = f.server.Serve(listener) }() // until it is closed
	return f, nil
}

func (f *figure) close() { _ = f.server.Close() }

// begin says since when the times of requests count.
func (f *figure) begin(start time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start = start
}

// counted returns the requests that count now. It copies them, because the generator must not wait until they are
// sorted and sent: it would be late.
func (f *figure) counted() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(time.Since(f.start))
	return slices.Clone(f.recent)
}

// add counts a request that has just been answered.
func (f *figure) add(r Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(r.Ready)
	f.recent = append(f.recent, r)
}

// forget drops the answers before the window.
func (f *figure) forget(now time.Duration) {
	keep := 0
	for keep < len(f.recent) && now-f.recent[keep].Ready > FigureWindow {
		keep++
	}
	f.recent = f.recent[keep:]
}
