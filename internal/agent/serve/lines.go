package serve

import (
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// waiting describes which pods make online pods wait, and the throttles, a line each. If uid is not "", only lines
// about that pod count.
func waiting(b *model.Interference, pods []*model.Pod, uid string) []string {
	if b.Empty() {
		return nil
	}
	var lines []string
	about := func(one, other string) bool { return uid == "" || uid == one || uid == other }
	if f := &b.Finding; f.Victim != "" && about(f.Victim, f.Suspect) {
		line := nameOf(pods, f.Victim) + " waits for CPUs"
		if f.Suspect != "" {
			line += ", likely for " + nameOf(pods, f.Suspect)
		}
		if b.Waits {
			line += ", which is not throttled now"
		}
		reason := f.Reason()
		lines = append(lines, line+": "+reason.String())
	}
	for i := range b.Throttles {
		if t := &b.Throttles[i]; about(t.UID, t.Victim) {
			lines = append(lines,
				fmt.Sprintf("%s may use %.2f CPU, for %s: %s", nameOf(pods, t.UID), float64(t.Milli)/1000, nameOf(pods, t.Victim),
					t.Reason()))
		}
	}
	return lines
}

// nameOf returns the name of a pod; its UID if the pod is unknown.
func nameOf(pods []*model.Pod, uid string) string {
	if p := model.FindPod(pods, uid); p != nil {
		return p.Namespace + "/" + p.Name
	}
	return uid
}

// leaves describes why a pod should leave.
func leaves(e *model.Eviction) string {
	line := fmt.Sprintf("%s/%s should leave the node: %s", e.Namespace, e.Name, e.Reason)
	if e.Withheld != nil {
		line += "; it is only said: " + e.Withheld.String()
	}
	return line
}

// leaving describes which pod should leave, why the node is hot, and the result of the last eviction, a line each.
func leaving(e *model.Evictions, pods []*model.Pod, clock time.Duration) []string {
	if e == nil {
		return nil
	}
	var lines []string
	if e.Hot.Code != "" {
		lines = append(lines, "the node is hot and sells nothing: "+e.Hot.String())
	}
	if e.Request != nil {
		lines = append(lines, leaves(e.Request))
	}
	if l := &e.Last; l.UID != "" {
		observed := "not known yet"
		if l.Seen {
			observed = fmt.Sprintf("%.2f GiB", float64(l.Observed)/(1<<30))
		}
		lines = append(lines,
			fmt.Sprintf("%s left %v ago; relief expected %.2f GiB, observed %s", nameOf(pods, l.UID),
				(clock-l.At).Round(time.Second), float64(l.Expected)/(1<<30), observed))
	}
	return lines
}
