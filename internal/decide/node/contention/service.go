package contention

import (
	"fmt"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	mostServices = 16               // pods of a node whose figures are fetched
	freshPort    = 5 * time.Second  // older figures of a port say nothing
	freshQuery   = 20 * time.Second // older figures of Prometheus say nothing
	below        = 10               // a figure is good again at a part of one in so many below its maximum
	nearly       = 30 * time.Second // or when it was not above its maximum for so long
	again        = 2 * time.Second  // between two figures of a pod for which batch is pushed back
	ownPort      = 10 * time.Second // above the maximum for so long without batch, a figure is the service's own fault
	ownQuery     = time.Minute      // the same for Prometheus, which shows what it scraped a while ago
	doubted      = time.Minute      // for which a report says that a figure was not known

	leastKept, mostKept = 500, 950 // of what batch uses, in thousandths, for one value of a figure
)

// Service is what is known of the figure of one online pod.
type Service struct {
	UID     string
	Since   time.Duration // of the last figure; before it, when the first one was wanted
	Over    bool          `json:",omitempty"` // the figure is too high: above its maximum, and not good since
	Above   time.Duration `json:",omitempty"` // of the last figure above the maximum
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

// targets returns the figures of services that are fetched until the next round: none while batch is quiet, except
// where batch is quiet because it was pushed back for a figure.
func (r *round) targets() []model.ServiceTarget {
	var targets []model.ServiceTarget
	for i := range r.state.Services {
		s := &r.state.Services[i]
		if r.batch.Quiet && !s.Over {
			continue
		}
		pod := model.FindPod(r.n.Pods, s.UID)
		if pod == nil {
			continue
		}
		if rule := ruleOf(r.p, pod); rule != nil {
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
func (r *round) services(last []Service) {
	for _, pod := range r.n.Pods {
		rule := ruleOf(r.p, pod)
		if rule == nil || !r.online(pod) {
			continue
		}
		if len(r.state.Services) == mostServices {
			r.unknown(pod, fmt.Sprintf("only the figures of %d pods of a node are fetched", mostServices))
			return
		}
		s := Service{UID: pod.UID, Since: r.now}
		if i := slices.IndexFunc(last, func(s Service) bool { return s.UID == pod.UID }); i >= 0 {
			s = last[i]
		}
		s = r.service(pod, rule, s)
		r.harm.Doubted = r.harm.Doubted || s.Unknown != 0 && r.now-s.Unknown < doubted
		r.state.Services = append(r.state.Services, s)
	}
}

// service judges the figure of one pod.
func (r *round) service(pod *model.Pod, rule *model.ServiceRule, s Service) Service {
	now, fresh, own := r.now, freshPort, ownPort
	if rule.Source.Port == 0 {
		fresh, own = freshQuery, ownQuery
	}
	if s.Own != 0 && now-s.Own >= ownFor {
		s.Own = 0
	}
	f := model.FindFigure(r.n.Figures, pod.UID)
	if f == nil || f.At <= 0 || f.At > now || now-f.At > fresh || f.Max <= 0 {
		if r.batch.Quiet {
			s.Since = now // it is not wanted
		}
		s.Over, s.Counted, s.Useless = false, 0, 0
		if now-s.Since > fresh {
			s.Unknown = now
			r.unknown(pod, whyUnknown(f))
		}
		return s
	}
	s.Since = f.At
	r.figured = append(r.figured, pod.UID)
	switch {
	case f.Value > f.Max:
		s.Over, s.Above = true, now
	case f.Value < f.Max-f.Max/below || s.Own != 0 || now-s.Above >= nearly:
		s.Over, s.Own = false, 0 // if it is nearly too high for long, batch tries whether more is borne
	}
	switch {
	case !s.Over || s.Own != 0:
		s.Counted, s.Useless = 0, 0
		return s
	case !r.batch.AtFloor:
		s.Useless = 0
	case s.Useless == 0:
		s.Useless = now
	case now-s.Useless >= own:
		s.Own, s.Counted, s.Useless = now, 0, 0
		return s
	}
	uses := int64(0)
	if u := r.n.Load.Pod(pod.UID); u != nil {
		uses = u.CPU.Milli
	}
	h := serviceHarm{PodHarm: model.PodHarm{
		UID: pod.UID, Milli: f.Lacks(uses, r.n.Load.CPUMilli), By: model.HarmByService, Value: f.Value, Max: f.Max,
	}}
	if h.held = f.Value <= f.Max || s.Counted != 0 && f.At-s.Counted < again; !h.held {
		s.Counted = f.At
	}
	r.figures = append(r.figures, h)
	return s
}

// whyUnknown returns why the figure of a pod is not known.
func whyUnknown(f *model.ServiceFigure) string {
	if f != nil && f.Failed != "" {
		return f.Failed
	}
	return "nothing was fetched"
}

// keeps returns the part of what batch uses, in thousandths, that it keeps at most: a third less of it while a figure
// is half too high. What the pod lacks says too little where batch takes memory bandwidth or caches, which needs little
// CPU: by that alone, stress-ng's stream still used 0.8 of 2 CPUs from the tenth second on, and the 99th percentile was
// three times that without batch.
func keeps(value, limit int64) int64 {
	return min(max(int64(1000*float64(limit)/float64(max(value, 1))), leastKept), mostKept)
}

// addFigures adds the harm that figures show to the harm of waiting, of which each pod's greater counts.
func (r *round) addFigures() {
	for _, h := range r.figures {
		waits := int64(0)
		if i, found := findPod(r.state.Pods, h.UID); found {
			waits = r.state.Pods[i].Harm.Milli
		}
		more := max(h.Milli-waits, 0)
		r.harm.Deep = true
		r.harm.Milli += more
		if h.held {
			r.harm.Held += more
		} else if keeps := keeps(h.Value, h.Max); r.harm.Keeps == 0 || keeps < r.harm.Keeps {
			r.harm.Keeps = keeps
		}
		r.harmed = append(r.harmed, h.UID)
		if h.Milli > r.harm.Worst.Milli {
			r.harm.Worst = h.PodHarm
		}
	}
}

// unknown records that a figure is not known.
func (r *round) unknown(pod *model.Pod, why string) {
	r.harm.Doubted = true
	r.harm.Unknown = append(r.harm.Unknown, model.Reason{
		Code: model.ServiceUnknown, Key: "pod", Text: pod.Namespace + "/" + pod.Name, Fix: why,
	})
}
