package interference

import (
	"math"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	least     = 24  // samples before any suspect is found: two minutes
	pressed   = 100 // thousandths of the time that a pod must wait to be a victim
	rose      = 50  // thousandths by which its waiting must have risen
	share     = 400 // thousandths of the rise that the suspect's use must explain
	threshold = 640 // least score of a suspect among four neighbours
	// is added to the threshold each time the number of neighbours grows by the factor e: one of many fits by chance
	chance    = 140
	highest   = 900 // the threshold never exceeds this
	usual     = 4   // neighbours
	tied      = 30  // scores that differ by less count as equal
	own       = 600 // least score of the victim's own load
	confirmed = 2   // spans in a row in which a suspect must be found
	idle      = 25  // milli-cores: a pod whose use varies by less is no suspect
	rested    = 2   // spans
	width     = 4   // samples that an edge is computed from
)

// score is how well the use of a pod goes with the victim's waiting.
type score struct {
	fit   float32 // in thousandths
	slope float32 // thousandths of the victim's time a grain
}

// find searches the suspect of the online pod whose waiting rose most. It returns the suspect's slope too.
func (s *State) find(pods []Pod) (model.Finding, float32) {
	victim := s.victim(pods)
	if victim < 0 {
		return model.Finding{}, 0
	}
	t := &s.Tracks[victim]
	n := int(t.Wait.Full)
	f := model.Finding{Victim: t.UID, Code: model.SuspectUnknown, Seconds: int64(n) * int64(span.Seconds())}
	f.Wait = s.mean(t, wait, recent)
	f.Rise = f.Wait - s.lowest(t, wait, n)
	if f.Rise < rose {
		return model.Finding{}, 0
	}
	var r regress
	r.victim(s, t, min(n, int(t.Used.Full)))
	scores := make([]score, len(s.Tracks))
	varied, best := 0, float32(0)
	for i := range s.Tracks {
		if i == victim {
			continue
		}
		if fit, varies := r.neighbour(s, &s.Tracks[i]); varies {
			varied++
			scores[i] = fit
			best = max(best, fit.fit)
		}
	}
	f.Needed = needed(varied)
	f.Score = int64(best)
	if i := s.likeliest(pods, scores, &f, max(best-tied, float32(f.Needed))); i >= 0 {
		return f, scores[i].slope
	}
	if self := r.self(); self.fit >= own {
		if explained := s.explained(t, self.slope); explained*1000 >= f.Rise*share {
			f.Code, f.Score, f.Explain = model.VictimItself, int64(self.fit), explained
			f.Used = grain * s.mean(t, used, recent)
		}
	}
	t.Rest = rested
	return f, 0
}

// needed returns the least score of a suspect among so many neighbours.
func needed(neighbours int) int64 {
	return min(threshold+int64(chance*math.Log(max(float64(neighbours)/usual, 1))), highest)
}

// victim returns the online pod whose waiting rose most above its mean; -1: none waits. A pod for which no suspect was
// found a moment ago comes after the others.
func (s *State) victim(pods []Pod) int {
	best, most, fit := -1, int64(0), false
	for i := range pods {
		t := &s.Tracks[i]
		rests := t.Rest > 0
		if rests {
			t.Rest--
		}
		if !pods[i].Online || t.Wait.Full < least || t.Used.Full < least {
			continue
		}
		now := s.mean(t, wait, recent)
		if now < pressed {
			continue
		}
		rise := now - s.mean(t, wait, int(t.Wait.Full))
		if best < 0 || !rests && !fit || !rests == fit && rise > most {
			best, most, fit = i, rise, !rests
		}
	}
	return best
}

// likeliest puts the best suspect into the finding, and returns its place; -1: none fits. Of pods with about the same
// score a batch pod comes first, then the pod with the highest weight, which takes most from others.
func (s *State) likeliest(pods []Pod, scores []score, f *model.Finding, fit float32) int {
	best := -1
	for i := range s.Tracks {
		t := &s.Tracks[i]
		if scores[i].fit < fit || best >= 0 && !before(pods, scores, i, best) {
			continue
		}
		explained := s.explained(t, scores[i].slope)
		if explained*1000 < f.Rise*share {
			continue
		}
		best = i
		f.Suspect, f.Score, f.Explain = t.UID, int64(scores[i].fit), explained
		f.Used = grain * s.mean(t, used, recent)
		f.Code = model.SuspectOnline
		if pods[i].Batch {
			f.Code = model.SuspectNamed
		}
	}
	return best
}

// before reports whether of two pods that fit as well the first is suspected.
func before(pods []Pod, scores []score, i, j int) bool {
	p, q := &pods[i], &pods[j]
	if p.Batch != q.Batch {
		return p.Batch
	}
	if p.Shares != q.Shares {
		return p.Shares > q.Shares
	}
	return scores[i].fit > scores[j].fit
}

// explained returns how much of the victim's waiting comes from what a pod uses now beyond its lowest use, in
// thousandths of the time.
func (s *State) explained(t *Track, slope float32) int64 {
	n := int(t.Used.Full)
	if n < least {
		return 0
	}
	return int64(float64(slope) * float64(s.mean(t, used, recent)-s.lowest(t, used, n)))
}
