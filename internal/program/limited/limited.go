// Package limited makes HTTP servers for callers that are not trusted.
package limited

import (
	"cmp"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// WriteTimeout is the time for a whole answer.
const WriteTimeout = time.Minute

// Limits of a server. Pods of any tenant may reach it.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 15 * time.Second // of a whole request
	idleTimeout    = 2 * time.Minute  // between two requests
	maxHeaderBytes = 64 << 10         // paths included
)

// Server returns a server that ends slow and idle connections, and has at most so many at once. One more takes the
// place of that which has been silent for the longest time, among those of the address that has most. So a caller that
// opens connections without end loses its own, and probes and scrapes by others are answered.
func Server(handler http.Handler, connections int) *http.Server {
	open := &limiter{most: connections, last: map[net.Conn]uint64{}}
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: WriteTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ConnState: open.note,
	}
}

// limiter limits the connections of a server.
type limiter struct {
	most int

	mu    sync.Mutex
	count uint64
	last  map[net.Conn]uint64 // number of the last change of each connection's state
}

// note records a change of a connection's state. If the connection is new and one too many, another one is closed.
func (l *limiter) note(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(l.last, conn)
		return
	}
	if _, known := l.last[conn]; !known && state != http.StateNew {
		return // it was closed here
	}
	l.count++
	l.last[conn] = l.count
	if len(l.last) <= l.most {
		return
	}
	closing := l.least()
	delete(l.last, closing)
	if secure, is := closing.(*tls.Conn); is {
		closing = secure.NetConn() // without a farewell, which might wait for the caller
	}
	_ = closing.Close()
}

// least returns the connection whose state is unchanged for the longest time, of the address that has most.
func (l *limiter) least() net.Conn {
	byAddress := map[string]int{}
	for conn := range l.last {
		byAddress[address(conn)]++
	}
	return slices.MaxFunc(slices.Collect(maps.Keys(l.last)), func(a, b net.Conn) int {
		return cmp.Or(cmp.Compare(byAddress[address(a)], byAddress[address(b)]), cmp.Compare(l.last[b], l.last[a]))
	})
}

// address returns the address of a caller without its port.
func address(conn net.Conn) string {
	all := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(all); err == nil {
		return host
	}
	return all
}
