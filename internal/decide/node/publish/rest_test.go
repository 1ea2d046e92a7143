package publish

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestReportOfRest checks when a report is written in which only amounts differ. On a node with a worker of a pool, one
// that leaves much less for workers is written after two seconds: the offer fell, or another batch pod was bound.
func TestReportOfRest(t *testing.T) {
	const second, soon = time.Second, cpusPause
	for about, c := range map[string]struct {
		pool         string
		offer, bound int64 // afterwards; before, they are 16000 and 2000 of 40000
		memory       int64 // offered afterwards; before, it is 64 GiB of 128
		within       time.Duration
	}{
		"the offer falls":            {"night", 14000, 2000, 64, soon},
		"a pod is bound":             {"night", 16000, 4000, 64, soon},
		"memory falls":               {"night", 16000, 2000, 57, soon},
		"it falls a little":          {"night", 14001, 2000, 64, reportPause},
		"it rises":                   {"night", 30000, 2000, 64, reportPause},
		"a pod leaves with an offer": {"night", 14000, 0, 64, reportPause},
		"no worker is there":         {"", 4000, 2000, 64, reportPause},
	} {
		report := func(offer, bound, memory int64) model.Report {
			r := model.Report{Mode: model.ModeEnforce, Slack: &model.Slack{}}
			r.Slack.CPU = model.Account{
				Capacity: 40000, Offer: model.TierAmounts{Batch: offer}, Bound: model.TierAmounts{Batch: bound},
			}
			r.Slack.Memory = model.Account{Capacity: 128 << 30, Offer: model.TierAmounts{Batch: memory << 30}}
			return r
		}
		w := newClocked()
		w.n.Pods = append(w.n.Pods, &model.Pod{Pool: c.pool})
		if !w.report(report(16000, 2000, 64)) {
			t.Fatalf("%s: the first report is not written", about)
		}
		waited := time.Duration(0)
		for ; !w.report(report(c.offer, c.bound, c.memory)) && waited < time.Minute; waited += second {
			w.n.Now = w.n.Now.Add(second)
		}
		if waited != c.within {
			t.Errorf("%s: written after %v, want %v", about, waited, c.within)
		}
	}
}
