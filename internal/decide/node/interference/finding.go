package interference

import (
	"math"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	least     = 24  // samples from which on anything is found: two minutes
	pressed   = 100 // thousandths of the time from which on a pod waits
	rose      = 50  // likewise, by which that must be more than it was
	share     = 400 // thousandths of the rise that the suspect's use must explain
	threshold = 640 // the least score of a suspect among four neighbours
	chance    = 140 // is added to that for each time e that there are more: the more there are, the likelier one fits by chance
	highest   = 900 // and no more than this
	usual     = 4
	tied      = 30  // scores that differ by less are the same
	own       = 600 // the least score of the victim's own load
	confirmed = 2   // times in a row that somebody is found until it is named
	idle      = 25  // milli-cores: whose use varies by less has no part in anything
	rested    = 2   // spans
	width     = 4   // samples that an edge is found from
)

// find looks for who the pod whose waiting rose most waits for.
func (s *State) find(pods []Pod) model.Finding {
	victim := s.victim(pods)
	if victim < 0 {
		return model.Finding{}
	}
	t := &s.tracks[victim]
	n := t.wait.full
	f := model.Finding{Victim: t.uid, Code: model.SuspectUnknown, Seconds: int64(n) * int64(span.Seconds())}
	f.Wait = t.wait.mean(s.slot, recent)
	f.Rise = f.Wait - t.wait.low(s.slot, n)
	if f.Rise < rose {
		return model.Finding{}
	}
	var r regress
	r.victim(t, s.slot, min(n, t.used.full))
	varied, best := 0, float32(0)
	for i := range s.tracks {
		c := &s.tracks[i]
		c.score = 0
		if i == victim || !r.neighbour(c, s.slot) {
			continue
		}
		varied++
		best = max(best, c.score)
	}
	f.Needed = needed(varied)
	f.Score = int64(best)
	if i := s.likeliest(pods, &f, max(best-tied, float32(f.Needed))); i >= 0 {
		return f
	}
	if score, slope := r.self(); score >= own {
		if explains := s.explains(t, slope); explains*1000 >= f.Rise*share {
			f.Code, f.Score, f.Explain, f.Used = model.VictimItself, int64(score), explains, grain*t.used.mean(s.slot, recent)
		}
	}
	t.rest = rested
	return f
}

// needed returns the score that a suspect must have among so many neighbours.
func needed(neighbours int) int64 {
	return min(threshold+int64(chance*math.Log(max(float64(neighbours)/usual, 1))), highest)
}

// victim returns which online pod waits, and for most longer than it did in the mean of the minutes before; below 0: none. One
// for which nobody was found a moment ago comes after the others.
func (s *State) victim(pods []Pod) int {
	best, most, fit := -1, int64(0), false
	for i := range pods {
		t := &s.tracks[i]
		first := t.rest == 0
		t.rest = max(t.rest-1, 0)
		if !pods[i].Online || t.wait.full < least || t.used.full < least {
			continue
		}
		now := t.wait.mean(s.slot, recent)
		if now < pressed {
			continue
		}
		rise := now - t.wait.mean(s.slot, t.wait.full)
		if best < 0 || first && !fit || first == fit && rise > most {
			best, most, fit = i, rise, first
		}
	}
	return best
}

// likeliest puts into the finding which of the pods with at least a score is named; below 0: none. Batch comes first, then what
// weighs most, which takes most from others.
func (s *State) likeliest(pods []Pod, f *model.Finding, score float32) int {
	best := -1
	for i := range s.tracks {
		c := &s.tracks[i]
		if c.score < score || best >= 0 && !s.before(pods, i, best) {
			continue
		}
		explains := s.explains(c, c.slope)
		if explains*1000 < f.Rise*share {
			continue
		}
		best = i
		f.Suspect, f.Score, f.Explain, f.Used = c.uid, int64(c.score), explains, grain*c.used.mean(s.slot, recent)
		f.Code = model.SuspectOnline
		if pods[i].Batch {
			f.Code = model.SuspectNamed
		}
	}
	return best
}

// before reports whether of two pods that fit as well the first is named.
func (s *State) before(pods []Pod, i, j int) bool {
	p, q := &pods[i], &pods[j]
	if p.Batch != q.Batch {
		return p.Batch
	}
	if p.Shares != q.Shares {
		return p.Shares > q.Shares
	}
	return s.tracks[i].score > s.tracks[j].score
}

// explains returns how much of the victim's waiting comes with what a pod uses now more than when it used least, in thousandths of
// the time.
func (s *State) explains(t *track, slope float32) int64 {
	n := t.used.full
	if n < least {
		return 0
	}
	return int64(float64(slope) * float64(t.used.mean(s.slot, recent)-t.used.low(s.slot, n)))
}
