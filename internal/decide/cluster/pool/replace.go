package pool

// share is the part of a pool whose pods may be replaced at a time: a tenth, and at least one.
const share = 10

// replace returns which workers are to stop now because their pods were made from an earlier spec. They drain, a few at
// a time: a worker without a NodeManager that has registered counts too, so that a spec with which none starts stops
// the others from being replaced. A pod whose NodeManager never registered has nothing to lose.
//
// Workers that are given up are an exception, or one bad disk would stop every roll-out: those that were given up with
// the spec before, and once a NodeManager of the present spec is well, as many others as may be replaced at a time.
func replace(in *Input) []bool {
	all := make([]bool, len(in.Workers))
	if in.Settings.Invalid {
		return all
	}
	most := max(len(in.Workers)/share, 1)
	away, given, proven := 0, 0, false
	for i := range in.Workers {
		w := &in.Workers[i]
		switch {
		case w.Barred: // no pod would follow
		case w.Pod == nil:
			switch {
			case !w.Wanted || !w.Room || w.Cordoned || w.Unsold || w.GivenUp:
			case w.quarantined(in):
				given++
			default:
				away++
			}
		case w.Pod.Outdated && !w.Pod.Marks.Registered:
			all[i] = true
		case w.Pod.Outdated && !w.Pod.Marks.Leaving.IsZero():
			all[i] = true
			away++
		case w.Leaves(), !w.Pod.Marks.Registered && !w.GivenUp:
			away++
		case !w.Pod.Outdated && w.Pod.Marks.Registered && w.Pod.Marks.Unhealthy.IsZero():
			proven = true
		}
	}
	if proven {
		given = max(given-most, 0)
	}
	away += given
	for i := range in.Workers {
		w := &in.Workers[i]
		if in.RM.Known && away < most && w.Pod != nil && w.Pod.Outdated && !all[i] && !w.Barred && !w.Leaves() {
			all[i] = true
			away++
		}
	}
	return all
}
