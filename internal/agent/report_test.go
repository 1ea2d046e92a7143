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

// TestReporter checks what is worth a report: what somebody acts on, amounts not too often, and all of it again where the
// report is gone.
func TestReporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written []model.Report
		var fail error
		r := newReporter(func(_ context.Context, _ string, report model.Report) error {
			if fail == nil {
				written = append(written, report)
			}
			return fail
		}, newTroubles(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(t.Context())
		go r.run(ctx)
		exists := true
		var unsupported []model.Code
		post := func(mode model.Mode, offer, online int64) int {
			written = nil
			slack := &model.Slack{}
			slack.CPU.Offer.Batch, slack.CPU.Use.Online = offer, online
			r.post("uid", model.Report{Mode: mode, Slack: slack, Unsupported: unsupported}, exists)
			synctest.Wait()
			return len(written)
		}
		if post(model.ModeEnforce, 100, 1) != 1 {
			t.Error("the first report was not written")
		}
		if post(model.ModeEnforce, 100, 2) != 0 {
			t.Error("a report was written though nothing changed that anybody acts on")
		}
		if post(model.ModeEnforce, 200, 2) != 0 {
			t.Error("amounts were reported at once")
		}
		if post(model.ModeDisabled, 200, 2) != 1 {
			t.Error("another mode was not reported at once")
		}
		time.Sleep(reportPause)
		if post(model.ModeDisabled, 300, 2) != 1 || written[0].Slack.CPU.Offer.Batch != 300 {
			t.Error("amounts were never reported")
		}
		unsupported = []model.Code{model.NoPressure}
		if post(model.ModeDisabled, 300, 2) != 1 || post(model.ModeDisabled, 300, 2) != 0 {
			t.Error("what the kernel unsupported was not reported once")
		}
		exists = false
		time.Sleep(reportPause)
		if post(model.ModeDisabled, 300, 2) != 1 {
			t.Error("a report that was deleted was not written again")
		}
		exists, fail = true, errors.New("away")
		time.Sleep(reportPause)
		post(model.ModeEnforce, 300, 2)
		fail = nil
		time.Sleep(time.Minute)
		if post(model.ModeEnforce, 300, 2) != 1 {
			t.Error("what could not be written was not tried again")
		}
		cancel()
	})
}

// TestOffReportsNothing: once a node is switched off, its report shows no offer and no account, at once and not when amounts
// are due the next time (G11-4; A2.2-2: what is switched off kept its last amounts in an object beside the node).
func TestOffReportsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last model.Report
		r := newReporter(func(_ context.Context, _ string, report model.Report) error { last = report; return nil }, newTroubles(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(t.Context())
		go r.run(ctx)
		slack := &model.Slack{}
		slack.CPU.Offer.Batch = 100
		r.post("uid", model.Report{Mode: model.ModeEnforce, Slack: slack}, true)
		synctest.Wait()
		if last.Slack == nil {
			t.Fatal("nothing was reported")
		}
		a := ruled(nightly("a", 1))
		a.pods.Labels = map[string]string{"waterline.io/opt-out": "true"}
		a.loadPolicy(midnight)
		a.load = &model.Load{}
		if a.look(midnight) || a.load != nil {
			t.Error("a node that is off is measured")
		}
		r.post("uid", a.report(), true)
		synctest.Wait()
		if last.Slack != nil || last.Mode != model.ModeDisabled || last.Policy != "" {
			t.Errorf("reported is %+v", last)
		}
		cancel()
	})
}
