//go:build bench

package web

import (
	"runtime"
	"testing"
	"time"
)

// TestCost checks what the dashboard costs the manager beside 5,000 nodes: memory, and the time of the answers that a
// page asks for, which are the first list of all nodes, and then each few seconds what has changed.
func TestCost(t *testing.T) {
	const nodes = 5000
	a := newAPI(t)
	a.populate(nodes, noon)
	heap := func() float64 {
		runtime.GC()
		runtime.GC() // what finalizers kept
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	before := heap()
	s := a.server((&clock{}).now)
	ask(s, adminToken, "/api/v1/nodes") // the first answer finds no buffers
	added := heap() - before
	took := func(path string) (fastest time.Duration, bytes int) {
		fastest = time.Hour
		for range 10 {
			began := time.Now()
			w := ask(s, adminToken, path, "Accept-Encoding", "gzip")
			fastest, bytes = min(fastest, time.Since(began)), w.Body.Len()
		}
		return fastest, bytes
	}
	type part struct{ Revision string }
	first := decode[part](t, ask(s, adminToken, "/api/v1/nodes"))
	all, size := took("/api/v1/nodes")
	news, _ := took("/api/v1/nodes?since=" + first.Revision)
	t.Logf("%d nodes: %.1f MiB; the list of all %v and %d KiB, of news %v", nodes, added, all, size>>10, news)
	if added > 20 || all > 500*time.Millisecond || news > 50*time.Millisecond {
		t.Error("that is too much even on a busy machine")
	}
	runtime.KeepAlive(a)
}
