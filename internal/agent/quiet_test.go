package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/internal/model"
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
			time.Sleep(scrapeWaits - time.Second)
			select {
			case f := <-a.requests:
				f()
			case <-time.After(2 * scrapeWaits):
			}
		})
		if families, err := registry.Gather(); err != nil || len(families) == 0 {
			t.Errorf("a loop that is late: %d metrics, %v", len(families), err)
		}
		began := time.Now()
		if _, err := registry.Gather(); err == nil || time.Since(began) != scrapeWaits {
			t.Errorf("a loop that is stuck: %v after %s", err, time.Since(began))
		}
	})
}

// TestTroubles checks how often the same trouble is told.
func TestTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := newTroubles(slog.New(slog.NewTextHandler(&out, nil)))
		told := func() int { n := bytes.Count(out.Bytes(), []byte("\n")); out.Reset(); return n }
		full, busy := errors.New("disk full"), errors.New("disk busy")

		for range 1000 {
			log.report("a", full)
		}
		if n := told(); n != 1 {
			t.Errorf("a trouble that stays was told %d times, want once", n)
		}
		for range 1000 {
			log.report("a", nil)
			log.report("a", full)
		}
		if n := told(); n != 1 {
			t.Errorf("one that comes and goes was told %d times within a minute, want once: that it was over", n)
		}
		time.Sleep(time.Minute)
		log.report("a", full)
		if n := told(); n != 1 {
			t.Errorf("it stayed, and after a minute it was told %d times, want once", n)
		}
		for range 60 * 10 {
			time.Sleep(100 * time.Millisecond)
			log.report("a", busy)
			log.report("a", full)
		}
		if n := told(); n > 2 {
			t.Errorf("one that changes its words was told %d times within a minute", n)
		}
		log.report("a", nil)
		log.report("a", nil)
		if n := told(); n != 1 {
			t.Errorf("its end was told %d times, want once", n)
		}
		log.each(func(_ string, count uint64) {
			if count != 1000+1000+1+1200 {
				t.Errorf("%d failures were counted", count)
			}
		})
	})
}

// TestNotices checks that a notice which comes and goes is passed on once a minute, and each other one once.
func TestNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := map[string]int{}
		n := newNotices(func(_ context.Context, notice model.Notice) error { sent[notice.UID]++; return nil }, newTroubles(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.run(ctx); close(done) }()
		stays := model.Notice{UID: "stays", Reason: model.Reason{Code: model.BadAnnotation}}
		flaps := model.Notice{UID: "flaps", Reason: model.Reason{Code: model.RejectedByKernel, Text: "EINVAL"}}
		for range 3 * 60 * 10 {
			n.post([]model.Notice{stays, flaps, flaps})
			n.post([]model.Notice{stays})
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		<-done
		if sent["stays"] != 1 || sent["flaps"] != 3 {
			t.Errorf("within three minutes were sent %v, want one of the notice that stays and three of the one that flaps", sent)
		}
		time.Sleep(time.Hour)
		n.post(nil)
		if len(n.standing) != 0 {
			t.Errorf("an hour later it still remembers %v", n.standing)
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
