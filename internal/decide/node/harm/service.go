package harm

import (
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	mostServices = 16               // pods of a node whose figures are fetched
	freshPort    = 5 * time.Second  // older figures of a port say nothing
	freshQuery   = 20 * time.Second // older figures of Prometheus say nothing
	below        = 10               // a figure is good again at a part of one in so many below its maximum
	again        = 2 * time.Second  // between two figures of a pod for which batch is pushed back
	ownPort      = 10 * time.Second // above the maximum for so long without batch, a figure is the service's own fault
	ownQuery     = time.Minute      // the same for Prometheus, which shows what it scraped a while ago
	ownFor       = 10 * time.Minute // for which that holds
	doubted      = time.Minute      // for which a report says that a figure was not known

	leastKept, mostKept = 500, 950 // of what batch uses, in thousandths, for one value of a figure
)

// Service is what is known of the figure of one online pod.
type Service struct {
	UID     string
	Since   time.Duration // of the last figure; before it, when the first one was wanted
	Over    bool          `json:",omitempty"` // the figure is too high: above its maximum, and not well below it since
	Counted time.Duration `json:",omitempty"` // of the figure that pushed batch back last; 0: none since Over
	Useless time.Duration `json:",omitempty"` // since when pushing batch back further is impossible; 0: it is not
	Own     time.Duration `json:",omitempty"` // when it proved to be the service's own fault; 0: it counts
	Unknown time.Duration `json:",omitempty"` // when it was not known last; 0: never
}

// serviceHarm is the harm that a figure shows.
type serviceHarm struct {
	model.PodHarm
	held bool // batch was pushed back for it already, and gets no more and no less
}

// Targets returns the figures of services that are fetched until the next round: none while batch is quiet, except
// where batch is quiet because it was pushed back for a figure.
func Targets(n *model.Node, p *model.Policy, s *State, quiet bool) []model.ServiceTarget {
	var targets []model.ServiceTarget
	for i := range s.Services {
		if quiet && !s.Services[i].Over {
			continue
		}
		pod := model.FindPod(n.Pods, s.Services[i].UID)
		if pod == nil {
			continue
		}
		if rule := ruleOf(p, pod); rule != nil {
			targets = append(targets, model.ServiceTarget{
				UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, IP: pod.IP, Source: rule.Source, Max: rule.Max,
			})
		}
	}
	return targets
}

// ruleOf returns the first rule that selects a pod; nil if none does.
func ruleOf(p *model.Policy, pod *model.Pod) *model.ServiceRule {
	for i := range p.Services {
		if p.Services[i].Selects(pod) {
			return &p.Services[i]
		}
	}
	return nil
}

// services judges the figures of all pods that a rule selects.
func (j *judge) services(p *model.Policy, last []Service) {
	now, next := j.n.Load.Clock, 0
	for _, pod := range j.n.Pods {
		rule := ruleOf(p, pod)
		if rule == nil || !watched(j.n, pod) {
			continue
		}
		if len(j.state.Services) == mostServices {
			j.unknown(pod, fmt.Sprintf("only the figures of %d pods of a node are fetched", mostServices))
			return
		}
		for next < len(last) && last[next].UID < pod.UID {
			next++
		}
		s := Service{UID: pod.UID, Since: now}
		if next < len(last) && last[next].UID == pod.UID && !last[next].after(now) {
			s = last[next]
		}
		s = j.service(pod, rule, s)
		j.result.Doubted = j.result.Doubted || s.Unknown != 0 && now-s.Unknown < doubted
		j.state.Services = append(j.state.Services, s)
	}
}

// after reports whether the service has a time after now: it is from another boot.
func (s *Service) after(now time.Duration) bool {
	return max(s.Since, s.Counted, s.Useless, s.Own, s.Unknown) > now
}

// service judges the figure of one pod.
func (j *judge) service(pod *model.Pod, rule *model.ServiceRule, s Service) Service {
	now, fresh, own := j.n.Load.Clock, freshPort, ownPort
	if rule.Source.Port == 0 {
		fresh, own = freshQuery, ownQuery
	}
	if s.Own != 0 && now-s.Own >= ownFor {
		s.Own = 0
	}
	f := model.FindFigure(j.n.Figures, pod.UID)
	if f == nil || f.At <= 0 || f.At > now || now-f.At > fresh || f.Max <= 0 {
		if j.quiet {
			s.Since = now // it is not wanted
		}
		s.Over, s.Counted, s.Useless = false, 0, 0
		if now-s.Since > fresh {
			s.Unknown = now
			j.unknown(pod, whyUnknown(f))
		}
		return s
	}
	s.Since = f.At
	j.figured = append(j.figured, pod.UID)
	switch {
	case f.Value > f.Max:
		s.Over = true
	case f.Value < f.Max-f.Max/below || s.Own != 0:
		s.Over, s.Own = false, 0
	}
	switch {
	case !s.Over || s.Own != 0:
		s.Counted, s.Useless = 0, 0
		return s
	case !j.useless:
		s.Useless = 0
	case s.Useless == 0:
		s.Useless = now
	case now-s.Useless >= own:
		s.Own, s.Counted, s.Useless = now, 0, 0
		return s
	}
	h := serviceHarm{PodHarm: model.PodHarm{
		UID: pod.UID, Milli: j.lacks(pod.UID, f), By: model.HarmByService, Value: f.Value, Max: f.Max,
	}}
	if h.held = f.Value <= f.Max || s.Counted != 0 && f.At-s.Counted < again; !h.held {
		s.Counted = f.At
	}
	j.harms = append(j.harms, h)
	return s
}

// whyUnknown returns why the figure of a pod is not known.
func whyUnknown(f *model.ServiceFigure) string {
	if f != nil && f.Failed != "" {
		return f.Failed
	}
	return "nothing was fetched"
}

// lacks returns the CPU, in milli-cores, that a pod lacks by its figure: as much of what it uses as the figure is too
// high, at least a hundredth of the node and at most half of it. A figure need not follow CPU use in proportion;
// suppression goes on as long as the figure is too high.
func (j *judge) lacks(uid string, f *model.ServiceFigure) int64 {
	node := min(max(j.n.Load.CPUMilli, 0), model.MaxCPUs*1000)
	uses := int64(0)
	if u := j.n.Load.Pod(uid); u != nil {
		uses = min(max(u.CPU.Milli, 0), node)
	}
	const most = 1000 // times the maximum; beyond it any node is covered
	over := min(max(float64(f.Value)/float64(f.Max)-1, 0), most)
	return max(min(uses*int64(over*1000)/1000, node/2), node/100, 1)
}

// keeps returns the part of what batch uses, in thousandths, that it keeps at most: a third less of it while a figure
// is half too high. What the pod lacks says too little where batch takes memory bandwidth or caches, which needs little
// CPU: by that alone, stress-ng's stream still used 0.8 of 2 CPUs from the tenth second on, and the 99th percentile was
// three times that without batch.
func keeps(value, limit int64) int64 {
	return min(max(int64(1000*float64(limit)/float64(max(value, 1))), leastKept), mostKept)
}

// addServices adds the harm that figures show to the harm of waiting, of which each pod's greater counts.
func (j *judge) addServices() {
	next := 0
	for _, h := range j.harms {
		for next < len(j.state.Pods) && j.state.Pods[next].UID < h.UID {
			next++
		}
		waits := int64(0)
		if next < len(j.state.Pods) && j.state.Pods[next].UID == h.UID {
			waits = j.state.Pods[next].Harm.Milli
		}
		more := max(h.Milli-waits, 0)
		j.result.Deep = true
		j.result.Milli += more
		if h.held {
			j.result.Held += more
		} else if keeps := keeps(h.Value, h.Max); j.result.Keeps == 0 || keeps < j.result.Keeps {
			j.result.Keeps = keeps
		}
		if h.Milli > j.result.Worst.Milli {
			j.result.Worst = h.PodHarm
		}
	}
}

// unknown records that a figure is not known.
func (j *judge) unknown(pod *model.Pod, why string) {
	j.result.Doubted = true
	j.result.Unknown = append(j.result.Unknown, model.Reason{
		Code: model.ServiceUnknown, Key: "pod", Text: pod.Namespace + "/" + pod.Name, Fix: why,
	})
}
