package apiwriter

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/model"
)

// TestNotices checks that a notice which comes and goes is passed on once a minute, and each other one once.
func TestNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := map[string]int{}
		n := newNotices(func(_ context.Context, notice model.Notice) error { sent[notice.UID]++; return nil },
			faillog.New(slog.New(slog.DiscardHandler)))
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
			t.Errorf("within three minutes were sent %v, want one of the notice that stays and three of the one that flaps",
				sent)
		}
		time.Sleep(time.Hour)
		n.post(nil)
		if len(n.standing) != 0 {
			t.Errorf("an hour later it still remembers %v", n.standing)
		}
	})
}
