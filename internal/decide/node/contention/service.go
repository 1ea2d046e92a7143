package contention

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	maxServices    = 16               // pods of a node whose figures are fetched
	maxPortAge     = 5 * time.Second  // older figures of a port say nothing
	maxQueryAge    = 20 * time.Second // older figures of Prometheus say nothing
	goodMargin     = 10               // a figure is good again at a part of one in so many below its maximum
	goodAfter      = 30 * time.Second // or when it was not above its maximum for so long
	figureInterval = 2 * time.Second  // between two figures of a pod for which batch is pushed back
	ownPort        = 10 * time.Second // above the maximum for twice as long at the floor, it is the service's own fault
	ownQuery       = time.Minute      // the same for Prometheus, which shows what it scraped a while ago
	testLength     = 90 * time.Second // more, in which figures that rise at the floor prove that: rarer ones cost little
	testInterval   = 5 * time.Minute  // between two such tests; it doubles each time that nothing is proven
	maxInterval    = time.Hour        // at most
	burstFactor    = 2                // a figure is longer too high than by its own fault if it is so many times as long
	peakMargin     = 2                // and higher than by that from a part of one in so many above its highest value then
	vainPush       = ownPort / 2      // by which a push that was in vain until its service left proves such a fault
	maxInherited   = 20 * time.Second // of the burst of another owner's service
	faultTTL       = 4 * ownTTL       // for which a fault counts
	silentHold     = time.Minute      // for which batch gets no more after the last figure, if that was too high
	unknownTTL     = time.Minute      // for which a report says that a figure was not known
)

// Service is what is known of the figure of one online pod.
type Service struct {
	UID     string
	Owner   string        // see [model.Pod.Owner]
	Space   string        `json:",omitempty"` // namespace
	Max     int64         `json:",omitempty"` // of the rule, for which all that follows holds
	Since   time.Duration // of the last figure; before it, when the first one was wanted
	Over    bool          `json:",omitempty"` // the figure is too high: above its maximum, and not good since
	Above   time.Duration `json:",omitempty"` // of the last figure above the maximum
	Rose    time.Duration `json:",omitempty"` // since when it has been above it, with short pauses, or since a fault was proven
	Beyond  bool          `json:",omitempty"` // it is Over, for longer than by its own fault, or far higher
	Counted time.Duration `json:",omitempty"` // of the figure that pushed batch back last; 0: none since Over
	Vain    time.Duration `json:",omitempty"` // for which it was above its maximum with batch at the floor
	Own     time.Duration `json:",omitempty"` // when it proved to be the service's own fault; 0: not lately
	Burst   time.Duration `json:",omitempty"` // longest time above it with batch at the floor; a further proof triples it
	Peak    int64         `json:",omitempty"` // highest value with batch at the floor, for some seconds
	Tall    time.Duration `json:",omitempty"` // for which it was far above Peak lately, or at the floor above it
	Heir    bool          `json:",omitempty"` // Own, Burst and Peak are of a service of another owner
	Test    time.Duration `json:",omitempty"` // when batch was last pushed to the floor to test whether it is so; 0: never
	Pause   time.Duration `json:",omitempty"` // between that test and the next
	Again   bool          `json:",omitempty"` // it was good since, and counts again, but not below arithmetic
	Pushes  bool          `json:",omitempty"` // it pushed batch below arithmetic, and batch has not got that back
	Better  bool          `json:",omitempty"` // it was good since it pushed batch back
	Unknown time.Duration `json:",omitempty"` // when it was not known last; 0: never
}

// figure is the harm that a figure shows.
type figure struct {
	model.PodHarm
	held    bool  // batch was pushed back for it already, and gets no more and no less
	keeps   int64 // see [model.ServiceFigure.Keeps]
	shallow bool  // it pushes batch to what arithmetic leaves at most
}

// services judges the figures of all pods that a rule selects, and asks for the next ones: for none while batch is
// quiet, except where batch is quiet because it was pushed back. What happens then shows a service's own fault.
func (r *round) services(last []Service) {
	pods := r.places(last)
	r.leave(last, pods)
	for _, pod := range pods {
		rule := r.p.ServiceRule(pod)
		s := knownService(last, pod.UID)
		if s == nil {
			s = r.begin(pod)
		}
		r.state.Services = append(r.state.Services, r.service(pod, rule, *s))
		s = &r.state.Services[len(r.state.Services)-1]
		r.Harm.Doubted = r.Harm.Doubted || s.Unknown != 0 && r.now-s.Unknown < unknownTTL
		if r.wanted(s) {
			r.Services = append(r.Services, model.ServiceTarget{
				UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, IP: pod.IP, Source: rule.Source, Max: rule.Max,
			})
		}
	}
}

// begin returns what is known of a service that begins, from those that are gone: of its owner, else of its namespace.
// A service that batch harms loses another owner's fault when its figure gets good because batch has less.
func (r *round) begin(pod *model.Pod) *Service {
	s := &Service{UID: pod.UID, Owner: pod.Owner, Space: pod.Namespace, Since: r.now}
	if gone := findOwner(r.state.Gone, pod.Owner); gone != nil {
		s.inherit(gone)
	} else if gone := find(r.state.Gone, func(s Service) bool { return s.Space == pod.Namespace }); gone != nil {
		s.inherit(gone)
		if s.Burst, s.Again, s.Heir = min(s.Burst, maxInherited), s.Own != 0, s.Own != 0; !s.Heir {
			s.Peak = 0
		}
	}
	s.Pushes = find(r.state.Gone, func(s Service) bool { return s.Space == pod.Namespace && s.stays(r.now) }) != nil
	return s
}

// inherit takes over what proved of another service, or nearly so.
func (s *Service) inherit(gone *Service) {
	s.Max, s.Vain, s.Own, s.Burst, s.Peak = gone.Max, gone.Vain, gone.Own, gone.Burst, gone.Peak
	s.Test, s.Pause = gone.Test, gone.Pause
}

// places returns the pods whose figures are judged, ordered by UID. Where too many have one, the places are shared
// among namespaces, and services that have one keep it: no tenant displaces the services of another.
func (r *round) places(last []Service) []*model.Pod {
	var known, others []*model.Pod
	for _, pod := range r.n.Pods {
		switch {
		case !r.online(pod) || r.p.ServiceRule(pod) == nil:
		case knownService(last, pod.UID) != nil:
			known = append(known, pod)
		default:
			others = append(others, pod)
		}
	}
	all := slices.Concat(known, others)
	if len(all) > maxServices {
		counts, ranks := map[string]int{}, map[string]int{}
		for _, pod := range all {
			ranks[pod.UID] = counts[pod.Namespace]
			counts[pod.Namespace]++
		}
		slices.SortStableFunc(all, func(a, b *model.Pod) int { return ranks[a.UID] - ranks[b.UID] })
		r.unknown(all[maxServices], fmt.Sprintf("only the figures of %d pods of a node are fetched", maxServices))
		all = all[:maxServices]
	}
	slices.SortFunc(all, func(a, b *model.Pod) int { return strings.Compare(a.UID, b.UID) })
	return all
}

// knownService returns what is known of the service of a pod; nil if it is none.
func knownService(all []Service, uid string) *Service {
	return model.FindByUID(all, uid, func(s *Service) string { return s.UID })
}

// leave keeps the services that are gone, or that no rule selects now, and that had a fault of their own, or part of
// its proof, for the next pods of their owners and namespaces. Pods that do not live until such a fault is proven, or
// that change a label before, would push batch back for ever.
func (r *round) leave(last []Service, pods []*model.Pod) {
	var all, gone []Service
	for _, s := range last {
		if slices.ContainsFunc(pods, func(pod *model.Pod) bool { return pod.UID == s.UID }) {
			continue
		}
		if s.Pushes && !s.Better && r.p.Mode == model.ModeEnforce {
			s.Vain += vainPush
		}
		all = append(all, s)
	}
	all = append(all, r.state.Gone...)
	slices.SortStableFunc(all, func(a, b Service) int { return cmp.Compare(b.Own, a.Own) }) // a fault first
	for _, s := range all {
		counts := s.Vain != 0 && r.now-s.Since < ownTTL || s.Own != 0 && r.now-s.Own < faultTTL || s.stays(r.now)
		if counts && len(gone) < maxServices && findOwner(gone, s.Owner) == nil {
			gone = append(gone, s)
		}
	}
	r.state.Gone = gone
}

// stays reports whether the push of a service that is gone stays for the next pods of its namespace, because it helped.
func (s *Service) stays(now time.Duration) bool {
	return s.Pushes && s.Better && now-s.Since < goodAfter
}

// pushes reports whether a service is left whose figure pushed batch below arithmetic.
func (r *round) pushes() bool {
	return slices.ContainsFunc(r.state.Services, func(s Service) bool { return s.Pushes }) ||
		slices.ContainsFunc(r.state.Gone, func(s Service) bool { return s.stays(r.now) })
}

// findOwner returns the first service of an owner; nil if there is none.
func findOwner(all []Service, owner string) *Service {
	return find(all, func(s Service) bool { return s.Owner == owner })
}

// find returns the first service of which something is true; nil if there is none.
func find(all []Service, of func(Service) bool) *Service {
	if i := slices.IndexFunc(all, of); i >= 0 {
		return &all[i]
	}
	return nil
}

// service judges the figure of one pod.
func (r *round) service(pod *model.Pod, rule *model.ServiceRule, s Service) Service {
	now, fresh, own := r.now, maxPortAge, ownPort
	if rule.Source.Port == 0 {
		fresh, own = maxQueryAge, ownQuery
	}
	s.Pushes = s.Pushes && r.state.Harm.Deep
	s.Space = pod.Namespace // a state of an older agent has none
	if s.Max != rule.Max || s.Own != 0 && now-s.Own >= faultTTL {
		s.Max, s.Own, s.Again, s.Vain, s.Test, s.Burst, s.Peak = rule.Max, 0, false, 0, 0, 0, 0
	}
	f := model.FindFigure(r.n.Figures, pod.UID)
	if f == nil || f.At <= 0 || f.At > now || now-f.At > fresh || f.Max <= 0 {
		r.silent(pod, f, &s, fresh)
		return s
	}
	s.Since = f.At
	r.figured = append(r.figured, pod.UID)
	if s.Better = s.Better || s.Pushes && f.Value <= f.Max; s.Better && s.Heir {
		s.Own, s.Burst, s.Peak, s.Again, s.Heir = 0, 0, 0, false, false // it answers to batch, and the other one did not
	}
	switch {
	case f.Value > f.Max:
		if now-s.Above > own/4 {
			s.Rose = now
		}
		s.Over, s.Above = true, now
	case f.Value < f.Max-f.Max/goodMargin || s.Own != 0 && !s.Again || now-s.Above >= goodAfter:
		s.Over, s.Again = false, s.Own != 0 // if it is nearly too high for long, batch tries whether more is borne
	}
	testing := r.fault(&s, own, f)
	if s.Own != 0 {
		burst := model.Operand{Name: "burst", Value: int64(s.Burst / time.Second), Unit: model.UnitSeconds}
		r.tell(model.ServiceAtFault, pod, "see whether the service keeps its max without batch", burst)
	}
	if !s.Over || s.Own != 0 && !s.Again && !s.Beyond {
		s.Counted = 0
		return s
	}
	h := figure{
		PodHarm: model.PodHarm{
			UID: pod.UID, By: model.HarmByService, Value: f.Value, Max: f.Max,
			Milli: f.Lacks(r.n.Load.Uses(pod.UID), r.n.Load.CPUMilli),
		},
		held: f.Value <= f.Max || s.Counted != 0 && f.At-s.Counted < figureInterval, keeps: f.Keeps(), shallow: !s.Beyond,
	}
	if testing {
		h.keeps = 1
	}
	if !h.shallow && !s.Pushes {
		s.Pushes, s.Better = true, false
	}
	if !h.held {
		s.Counted = f.At
	}
	r.figures = append(r.figures, h)
	return s
}

// wanted reports whether the next figure of a service is asked for.
func (r *round) wanted(s *Service) bool {
	return r.Batch.Running && (s.Over || !r.Batch.Quiet || r.below())
}

// silent judges a service whose figure is not known. Perhaps batch harms it too much to answer. If its figure was ever
// too high, batch gets what arithmetic leaves at most, and if the last one was, no more than it has for a while.
func (r *round) silent(pod *model.Pod, f *model.ServiceFigure, s *Service, fresh time.Duration) {
	if s.Counted = 0; r.away || !r.wanted(s) {
		s.Since, s.Tall = r.now, 0
	}
	r.holds = r.holds || s.Over && (s.Own == 0 || s.Beyond) && r.now-s.Since <= fresh+silentHold
	if r.now-s.Since <= fresh {
		return
	}
	if s.Above != 0 && (s.Own == 0 || s.Beyond) {
		r.blind(pod.UID)
	}
	s.Unknown = r.now
	why := "nothing was fetched"
	if f != nil && f.Failed != "" {
		why = f.Failed
	}
	r.unknown(pod, why)
}

// fault judges whether a figure is too high through the service's own fault: whether it is so while batch is at the
// floor, for so long in all. It reports whether batch is held there now to see that. Such a fault does not count for
// ever, nor for a figure that is too high for longer than by that fault, or far higher: perhaps batch harms the service
// too.
func (r *round) fault(s *Service, own time.Duration, f *model.ServiceFigure) (testing bool) {
	b, high := &r.state.Harm, f.Value > f.Max
	low := b.lowFor(r.now, own+provenAtFloor) // what a figure shows is of a time in which batch was at the floor
	atFloor := low && b.Deep
	s.judgeHeight(f, atFloor, r.since, own)
	was := s.Beyond
	s.Beyond = s.Over && (s.Own == 0 || s.Tall >= own/2 || s.Above-s.Rose > burstFactor*s.Burst)
	if s.Beyond && !was {
		s.Counted = 0 // what it pushed until now did not count below arithmetic
	}
	rises := s.Beyond && (!was || s.Rose == r.now)
	switch {
	case !high && b.Low == 0:
		if s.Vain = 0; s.Own == 0 {
			s.Peak = 0
		}
	case high && atFloor:
		s.Burst = max(s.Burst, r.now-max(s.Rose, b.Low+own+provenAtFloor))
		if s.Beyond {
			s.Vain += r.since
		}
		if rises {
			s.Vain += own * 3 / 4
		}
	}
	if s.Beyond && high && s.Vain > 2*own {
		s.prove(r.now, own, f.Value)
	}
	// Batch waits for what a burst turns out to be: in its first seconds, and once it is longer than any before. In
	// between batch grows, or a figure that is too high most of the time would hold it for ever.
	unsure := r.now-s.Rose <= own || s.Above-s.Rose > s.Burst
	r.holds = r.holds || s.Over && s.Again && !s.Beyond && r.now-s.Above <= own/2 && unsure
	return r.test(s, own+provenAtFloor+testLength, rises && s.Beyond, low)
}

// judgeHeight judges whether a figure is far higher than by the service's own fault. That fault is as high as the figure
// gets at the floor, except for single stalls.
func (s *Service) judgeHeight(f *model.ServiceFigure, atFloor bool, since, own time.Duration) {
	most := s.Peak
	if !atFloor {
		most += s.Peak / peakMargin
	}
	if f.Value > max(f.Max, most) {
		s.Tall = min(s.Tall+since, own*3/4)
	} else {
		s.Tall = max(s.Tall-since, 0)
	}
	if atFloor && s.Tall >= own/2 {
		s.Peak, s.Tall = max(s.Peak, f.Value), 0
	}
}

// prove records that a figure is too high whatever batch does, even if not all the time.
func (s *Service) prove(now, own time.Duration, value int64) {
	if s.Own != 0 {
		s.Burst *= 3 // so a figure that is always too high does not prove that again and again
	}
	if s.Peak == 0 || s.Tall >= own/2 { // the floor has not shown how high it gets
		s.Peak = max(s.Peak, value)
	}
	s.Own, s.Burst, s.Rose = now, max(s.Burst, own/2), now
	s.Vain, s.Test, s.Pause, s.Beyond, s.Again, s.Pushes, s.Heir = 0, 0, 0, false, false, false, false
}

// test reports whether batch is held at the floor now to see whether a figure answers to it. A test begins when the
// figure gets too high although batch has less than arithmetic leaves.
func (r *round) test(s *Service, length time.Duration, rises, low bool) bool {
	switch {
	case rises && r.below() && (low || s.Test == 0 || r.now-s.Test >= s.Pause):
		s.Test = r.now
	case low && r.state.Harm.Deep && r.now-s.Test >= length && r.before-s.Test < length: // it was good at the floor
		s.Pause = min(max(2*s.Pause, testInterval), maxInterval)
	}
	testing := s.Test != 0 && r.now-s.Test < length
	r.holds = r.holds || testing
	return testing
}

// unknown records that a figure is not known.
func (r *round) unknown(pod *model.Pod, why string) {
	r.Harm.Doubted = true
	r.tell(model.ServiceUnknown, pod, why)
}

// tell tells something of the figure of a pod.
func (r *round) tell(code model.Code, pod *model.Pod, fix string, operands ...model.Operand) {
	r.Harm.Services = append(r.Harm.Services, model.Reason{
		Code: code, Key: "pod", Text: pod.Namespace + "/" + pod.Name, Fix: fix, Operands: operands,
	})
}
