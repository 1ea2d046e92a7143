package pool

import "time"

// strayAfter is when a NodeManager that did not register is asked for its name. Its web services are up by then.
const strayAfter = 20 * time.Second

// Question is a fact that a decision needs and only the NodeManager of the worker reports.
type Question int

// The questions.
const (
	Nothing Question = iota
	// ItsListed is how many of its containers run ([Manager.Listed]): it drains, and is not decommissioned yet.
	ItsListed
	// ItsOwn is what its containers use ([Worker.Own]): its deadline is over, and the ResourceManager is silent. One that
	// does not answer is taken as one whose containers do not fit.
	ItsOwn
	// ItsName is the host under which it registers ([Worker.Stray]): it has not registered.
	ItsName
)

// Asks returns what the NodeManager of a worker with a pod is asked before [Next] is called. The input lacks nothing
// but the answers.
func Asks(in *Input, w *Worker) Question {
	p := w.Pod
	if !in.RM.Known {
		if !p.Marks.Until.IsZero() && !in.Now.Before(p.Marks.Until) {
			return ItsOwn
		}
		return Nothing
	}
	leaves := w.Leaves() || !p.Marks.Leaving.IsZero()
	switch {
	case p.Started.IsZero():
	case len(w.Managers) == 1 && leaves && in.Settings.Graceful && w.Managers[0].Containers > 0 &&
		w.Managers[0].State != decommissioning:
		return ItsListed
	case len(w.Managers) == 0 && in.Now.Sub(p.Started) >= strayAfter:
		return ItsName
	}
	return Nothing
}

// ReadLabels reports whether the store of labels must be read for the next round, whatever it showed a moment ago: a
// label is missing or was changed, a NodeManager may register any moment, or a pod is to be made. The list of nodes,
// which is read in each round, shows the labels of other NodeManagers. steps are those of [Next] for the input.
func ReadLabels(in *Input, steps []Step) bool {
	if !in.RM.Known || !in.RM.Labels {
		return true
	}
	for i := range in.Workers {
		w := &in.Workers[i]
		switch m, _ := w.Manager(); {
		case m != nil && m.Label != in.Settings.Label, m == nil && w.Pod != nil,
			steps[i].Verb == LabelHost, steps[i].Why == PodMissing:
			return true
		}
	}
	return false
}
