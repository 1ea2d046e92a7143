package interference

import (
	"math"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	minSamples    = 24  // samples before any suspect is found: two minutes
	minVictimWait = 100 // thousandths of the time that a pod must wait to be a victim
	minRise       = 50  // thousandths by which its waiting must have risen
	minExplained  = 400 // thousandths of the rise that the suspect's use must explain
	minScore      = 640 // least score of a suspect among four neighbours
	// is added to the threshold each time the number of neighbours grows by the factor e: one of many fits by chance
	scorePerNeighbours = 140
	maxMinScore        = 900 // the threshold never exceeds this
	fewNeighbours      = 4   // neighbours
	sameScore          = 30  // scores that differ by less count as equal
	confirmSpans       = 2   // spans in a row in which a suspect must be found
	minVariation       = 25  // milli-cores: a pod whose use varies by less is no suspect
	restSpans          = 2   // spans
	maxUsed            = model.MaxCPUs * 1000
)

// find searches the suspect of the online pod whose waiting rose most. It returns the suspect's slope too.
func (s *State) find(pods []Pod) (model.Finding, float64) {
	victim := s.victim(pods)
	if victim < 0 {
		return model.Finding{}, 0
	}
	t, row := &s.Tracks[victim], &s.Rows[victim]
	f := model.Finding{Victim: t.UID, Code: model.SuspectUnknown, Seconds: int64(t.Wait) * int64(spanLength.Seconds())}
	f.Wait = row.Wait.mean(s.Span, recentSpans)
	f.Rise = f.Wait - row.Wait.lowest(s.Span, int64(t.Wait))
	if f.Rise < minRise {
		return model.Finding{}, 0
	}
	var wait, own, use [maxSamples]float64
	scores := make([]score, len(s.Tracks))
	varied, best := 0, 0.0
	for i := range s.Tracks {
		n := min(t.Wait, t.Used, s.Tracks[i].Used)
		if i == victim || n < minSamples {
			continue
		}
		row.Wait.newest(s.Span, wait[:n])
		row.Used.newest(s.Span, own[:n])
		s.Rows[i].Used.newest(s.Span, use[:n])
		if score, varies := scoreOf(wait[:n], own[:n], use[:n]); varies {
			varied++
			scores[i] = score
			best = max(best, score.fit)
		}
	}
	f.Needed = needed(varied)
	f.Score = int64(best)
	if i := s.likeliest(pods, scores, &f, max(best-sameScore, float64(f.Needed))); i >= 0 {
		return f, scores[i].slope
	}
	t.Rest = restSpans
	return f, 0
}

// needed returns the least score of a suspect among so many neighbours.
func needed(neighbours int) int64 {
	return min(minScore+int64(scorePerNeighbours*math.Log(max(float64(neighbours)/fewNeighbours, 1))), maxMinScore)
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
		if !pods[i].Online || t.Wait < minSamples || t.Used < minSamples {
			continue
		}
		now := s.Rows[i].Wait.mean(s.Span, recentSpans)
		if now < minVictimWait {
			continue
		}
		rise := now - s.Rows[i].Wait.mean(s.Span, int64(t.Wait))
		if best < 0 || !rests && !fit || !rests == fit && rise > most {
			best, most, fit = i, rise, !rests
		}
	}
	return best
}

// likeliest puts the best suspect into the finding, and returns its place; -1: none fits. Of pods with about the same
// score a batch pod comes first, then the pod with the highest weight, which takes most from others.
func (s *State) likeliest(pods []Pod, scores []score, f *model.Finding, fit float64) int {
	best := -1
	for i := range s.Tracks {
		if scores[i].fit < fit || best >= 0 && !before(pods, scores, i, best) {
			continue
		}
		// How much of the victim's waiting comes from what the pod uses now beyond its lowest use.
		used := s.Rows[i].Used.mean(s.Span, recentSpans)
		explained := int64(scores[i].slope * float64(used-s.Rows[i].Used.lowest(s.Span, int64(s.Tracks[i].Used))))
		if explained*1000 < f.Rise*minExplained {
			continue
		}
		best = i
		f.Suspect, f.Score, f.Explain, f.Used = s.Tracks[i].UID, int64(scores[i].fit), explained, used
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
