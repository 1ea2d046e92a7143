package pool

// share is the part of a pool whose pods may be replaced at a time: a tenth, and at least one.
const share = 10

// replace returns which workers are to stop now because their pods were made from an earlier spec. They drain, a few at
// a time: a worker without a NodeManager that has registered counts too, so that a spec with which none starts stops
// the others from being replaced. A pod whose NodeManager never registered has nothing to lose.
func replace(in *Input) []bool {
	all := make([]bool, len(in.Workers))
	if in.Settings.Invalid {
		return all
	}
	away := 0
	for i := range in.Workers {
		w := &in.Workers[i]
		switch {
		case w.Barred: // no pod would follow
		case w.Pod == nil:
			if w.Wanted && w.Room && !w.Cordoned && !w.Unsold {
				away++
			}
		case w.Pod.Outdated && !w.Pod.Marks.Registered:
			all[i] = true
		case w.Pod.Outdated && !w.Pod.Marks.Leaving.IsZero():
			all[i] = true
			away++
		case w.Leaves() || !w.Pod.Marks.Registered:
			away++
		}
	}
	for i := range in.Workers {
		w := &in.Workers[i]
		if in.RM.Known && away < max(len(in.Workers)/share, 1) && w.Pod != nil && w.Pod.Outdated && !all[i] &&
			!w.Barred && !w.Leaves() {
			all[i] = true
			away++
		}
	}
	return all
}
