package agent

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestScrapeWaits checks that a scrape waits for a loop that is kept waiting, and does not wait for ever.
func TestScrapeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Config{Log: slog.New(slog.DiscardHandler)})
		registry := prometheus.NewRegistry()
		registry.MustRegister(a.Collector())
		var loop sync.WaitGroup
		defer loop.Wait()
		loop.Go(func() {
			time.Sleep(scrapeTimeout - time.Second)
			select {
			case f := <-a.requests:
				f()
			case <-time.After(2 * scrapeTimeout):
			}
		})
		if families, err := registry.Gather(); err != nil || len(families) == 0 {
			t.Errorf("a loop that is late: %d metrics, %v", len(families), err)
		}
		began := time.Now()
		if _, err := registry.Gather(); err == nil || time.Since(began) != scrapeTimeout {
			t.Errorf("a loop that is stuck: %v after %s", err, time.Since(began))
		}
	})
}

// TestHealthy checks that the health of the loop has nothing to do with what the clock on the wall says.
func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Config{Log: slog.New(slog.DiscardHandler)})
		if err := a.Healthy(); err != nil {
			t.Errorf("at the start: %v", err)
		}
		time.Sleep(time.Minute)
		if a.Healthy() == nil {
			t.Error("a loop that stood still for a minute counts as healthy")
		}
		a.beat.Store(int64(time.Since(a.born)))
		if err := a.Healthy(); err != nil {
			t.Errorf("after a beat: %v", err)
		}
	})
}
