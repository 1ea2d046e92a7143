package program

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
)

// gate is a collector that waits.
type gate struct {
	in, most atomic.Int32
	leave    chan struct{}
}

func (g *gate) Describe(chan<- *prometheus.Desc) {}
func (g *gate) Collect(chan<- prometheus.Metric) {
	if n := g.in.Add(1); n > g.most.Load() {
		g.most.Store(n)
	}
	<-g.leave
	g.in.Add(-1)
}

// unread is a caller that does not read its answer.
type unread struct {
	*httptest.ResponseRecorder
	block chan struct{}
}

func (u unread) Write(b []byte) (int, error) { <-u.block; return len(b), nil }

// TestScrapes checks that two scrapes at once are computed, that others wait, and that callers that do not read keep
// nobody waiting.
func TestScrapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{leave: make(chan struct{})}
		fine := func() error { return nil }
		public, err := Public("v1", g, fine, fine)
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan int, 50)
		for range cap(answers) {
			go func() {
				to := httptest.NewRecorder()
				public.ServeHTTP(to, httptest.NewRequest("GET", "/metrics", nil))
				answers <- to.Code
			}()
		}
		synctest.Wait()
		if n := g.in.Load(); n != scrapesAtOnce {
			t.Errorf("%d scrapes are computed at once", n)
		}
		close(g.leave)
		for range cap(answers) {
			if code := <-answers; code != http.StatusOK {
				t.Errorf("a scrape that waited: %d", code)
			}
		}
		if n := g.most.Load(); n > scrapesAtOnce {
			t.Errorf("%d scrapes were computed at once", n)
		}
		slow := unread{httptest.NewRecorder(), make(chan struct{})}
		for range 2 * scrapesAtOnce {
			go func() { public.ServeHTTP(slow, httptest.NewRequest("GET", "/metrics", nil)) }()
		}
		synctest.Wait()
		to := httptest.NewRecorder()
		if public.ServeHTTP(to, httptest.NewRequest("GET", "/metrics", nil)); to.Code != http.StatusOK {
			t.Errorf("a scrape beside slow ones: %d", to.Code)
		}
		close(slow.block)
	})
}
