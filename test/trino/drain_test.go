package trino_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
	bed "github.com/waterline-io/waterline/test/bed/trino"
)

// TestStorm drains workers one after another and starts them again, while queries run. No query fails. The short form
// drains one.
func TestStorm(t *testing.T) {
	most := 1
	if os.Getenv("WATERLINE_SOAK") != "" {
		most = 40
	}
	raining, stop := context.WithCancel(t.Context())
	defer stop()
	var fallen bed.Storm
	done := make(chan struct{})
	go func() {
		defer close(done)
		fallen = bed.Rain(raining, 2*time.Second)
	}()
	for n := range most {
		i := 1 + n%2
		within, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		start := time.Now()
		if err := drainer.Drain(within, bed.Worker(i), time.Minute); err != nil {
			t.Fatal(err)
		}
		if s, err := drainer.Status(within, bed.Worker(i)); err != nil || s.State != drain.Draining {
			t.Errorf("after the drain began: %+v, %v", s, err)
		}
		select {
		case <-cluster.Server(i).Done():
		case <-within.Done():
			t.Fatalf("worker %d has not ended", i)
		}
		ended := time.Since(start)
		if err := startWorker(i); err != nil {
			t.Fatal(err)
		}
		if err := active(i); err != nil {
			t.Fatal(err)
		}
		cancel()
		t.Logf("worker %d ended %.1f s after the drain began, and was active again after %.1f s", i, ended.Seconds(),
			time.Since(start).Seconds())
	}
	stop()
	<-done
	t.Logf("through %d drains: %s", most, fallen)
	if fallen.Queries < 15*most {
		t.Errorf("only %d queries", fallen.Queries)
	}
	for _, err := range fallen.Failed {
		t.Error(err)
	}
}

// TestForbidden checks what a user gets whom the access control of a worker lets not shut it down, as Trino's default
// one does not.
func TestForbidden(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	if err := cluster.StartWorker(3, nil, nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Server(3).Kill(ctx); err != nil {
			t.Error(err)
		}
	}()
	if err := active(3); err != nil {
		t.Fatal(err)
	}
	err := drainer.Drain(ctx, bed.Worker(3), time.Minute)
	for _, word := range []string{"status 403", `user "waterline" may not`, "system_information", "127.2.0.3"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("the error lacks %q: %v", word, err)
		}
	}
	if s, err := drainer.Status(ctx, bed.Worker(3)); err != nil || s.State != drain.Active {
		t.Errorf("the worker that was not drained is %+v, %v", s, err)
	}
}
