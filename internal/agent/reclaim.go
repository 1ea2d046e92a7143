package agent

import "github.com/waterline-io/waterline/internal/model"

// ask has a batch pod asked for memory. The plan says that only while nobody else is.
func (a *Agent) ask(what *model.Reclaim) {
	if what == nil || a.reclaimer == nil {
		return
	}
	a.asked = true
	a.reclaimer.Ask(*what)
}

// gives tells what came of it.
func (a *Agent) gives() <-chan model.Reclaimed {
	if a.reclaimer == nil {
		return nil
	}
	return a.reclaimer.Done()
}

// take lets the next round know, and the journal.
func (a *Agent) take(gave model.Reclaimed) {
	a.asked, a.gave, a.unsettled = false, &gave, true
	a.counts.reclaimAsked += uint64(gave.Requested)
	a.counts.reclaimFreed += uint64(gave.Freed)
}
