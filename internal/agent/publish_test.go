package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestPublisher checks that what stands on the Node is put right at once, that an answer is waited for before the same is
// written again, and that what could not be written is tried until it can.
func TestPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		var last []model.Published
		var fail error
		p := newPublisher(func(_ context.Context, uid string, _, should []model.Published) error {
			writes++
			if fail == nil {
				last = should
			}
			return fail
		}, newTroubles(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(t.Context())
		go p.run(ctx)
		of := func(amount int64) []model.Published {
			return []model.Published{{NodeResource: model.NodeResource{Tier: model.TierBatch}, Amount: amount}}
		}
		post := func(should, stands []model.Published) int {
			writes = 0
			p.post(&model.Publication{Decided: true, Resources: should}, "uid", stands)
			synctest.Wait()
			return writes
		}
		if post(of(5), nil) != 1 || last[0].Amount != 5 {
			t.Error("what is sold was not published")
		}
		if post(of(5), nil) != 0 {
			t.Error("it was published again before the API could show it")
		}
		if post(of(5), of(5)) != 0 {
			t.Error("what stands there was published")
		}
		if post(of(5), of(model.Uneven)) != 1 || post(nil, of(5)) != 1 || len(last) != 0 {
			t.Error("what another writer changed was not put right, or what is withdrawn not removed")
		}
		if post(of(3), of(5)) != 1 {
			t.Error("another amount had to wait")
		}
		time.Sleep(unanswered)
		if post(of(3), of(5)) != 1 {
			t.Error("what never showed was not published again")
		}
		p.post(&model.Publication{}, "uid", of(9))
		p.post(&model.Publication{Decided: true}, "", of(9))
		synctest.Wait()
		if writes != 1 {
			t.Error("something was published that nobody decided, or of a Node that nobody knows")
		}
		fail = errors.New("away")
		for range 60 {
			time.Sleep(time.Second)
			post(of(2), of(5))
		}
		fail = nil
		time.Sleep(5 * time.Second)
		if post(of(2), of(5)); last[0].Amount != 2 {
			t.Error("five seconds after the API came back it was not tried again")
		}
		cancel()
	})
}
