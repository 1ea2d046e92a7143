// Package privilege decides which requests of pods count. Whoever may create or annotate a pod can write a request into
// its annotations and labels, and some requests take from other pods or from the node: a request beyond the pod's CPU
// limit, CPUs of its own, a class that is never suppressed. Such a request is a privilege, which the policy grants to
// namespaces.
//
// The other rules see each pod with only those requests that count. CPU weights are bounded by the rule weight, because
// a weight is a matter of degree.
package privilege

import (
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// systemNamespace is the namespace of the cluster's own pods. Its pods need no privilege: who may write there controls
// the cluster already.
const systemNamespace = "kube-system"

// Decide returns the pods with the requests that the policy allows them, ordered by UID, each UID once, and a notice
// for each request that it does not allow. Pods that request nothing else are the same values as before.
//
// A static pod in a namespace without the privilege is left out: its mirror in the API may be forged. Its cgroup then
// counts as one of an unknown pod. The same UID stands twice if a mirror pod names the UID of another pod. Then the pod
// to which the API server gave that UID counts, and of two mirror pods the first by namespace and name.
func Decide(pods []*model.Pod, p *model.Policy) ([]*model.Pod, []model.Notice) {
	var notices []model.Notice
	allowed, copied := pods, false
	for i, pod := range pods {
		granted, denied := grant(pod, p)
		twice := i > 0 && pods[i-1].UID == pod.UID
		if granted == pod && !twice && !copied {
			continue
		}
		if !copied {
			allowed, copied = slices.Clone(pods[:i]), true
		}
		for _, why := range denied {
			notices = append(notices, model.Notice{UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, Reason: why})
		}
		if granted == nil {
			continue
		}
		if n := len(allowed); n > 0 && allowed[n-1].UID == pod.UID {
			if precedes(granted, allowed[n-1]) {
				allowed[n-1] = granted
			}
			continue
		}
		allowed = append(allowed, granted)
	}
	return allowed, notices
}

// precedes reports whether, of two pods with one UID, a counts.
func precedes(a, b *model.Pod) bool {
	if a.Static() != b.Static() {
		return !a.Static()
	}
	return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) < 0
}

// Allows reports whether a policy grants a privilege to the pods of a namespace.
func Allows(p *model.Policy, namespace string, labels map[string]string, what model.Privilege) bool {
	return namespace == systemNamespace || slices.ContainsFunc(p.Privileges, func(rule model.PrivilegeRule) bool {
		return slices.Contains(rule.Allow, what) && rule.Namespaces.Matches(labels)
	})
}

// grant returns a pod with the requests that it is allowed, nil for a static pod that may be forged, and why the others
// do not count.
func grant(pod *model.Pod, p *model.Policy) (granted *model.Pod, denied []model.Reason) {
	if pod.Self {
		return pod, nil
	}
	r := request{pod: pod, granted: pod, policy: p}
	if pod.Static() && !r.allows(model.PrivilegeStaticPod) {
		return nil, nil // who forged it would get the event
	}
	a := &pod.Annotations
	if what := classes[pod.Class]; what != "" && r.denies("qos", string(pod.Class), what) {
		g := r.edit()
		if g.Class = model.ClassLS; a.CPUsOfClass {
			g.Annotations.CPUs, g.Annotations.CPUsOfClass = "", false
		}
	}
	if what := cpus[a.CPUs]; what != "" && !a.CPUsOfClass && r.denies("cpu-manager", string(a.CPUs), what) {
		g := r.edit()
		g.Annotations.CPUs, g.Annotations.BadCPUs = "", r.denied[len(r.denied)-1]
	}
	if a.Quota == model.QuotaUnlimited && r.denies("cpu-quota", string(a.Quota), model.PrivilegeUnlimitedQuota) {
		r.edit().Annotations.Quota = ""
	}
	if a.Evict == model.EvictNever && r.denies("evict", string(a.Evict), model.PrivilegeNeverEvict) {
		r.edit().Annotations.Evict = ""
	}
	return r.granted, r.denied
}

// The privileges that classes and CPUs of a pod's own need.
var (
	classes = map[model.Class]model.Privilege{
		model.ClassLSE: model.PrivilegeLSE, model.ClassLSR: model.PrivilegeLSR, model.ClassSystem: model.PrivilegeSystem,
	}
	cpus = map[model.CPUMode]model.Privilege{
		model.CPUShare: model.PrivilegeShareCPUs, model.CPUExclusive: model.PrivilegeExclusiveCPUs,
	}
)

// request is the work on one pod.
type request struct {
	pod     *model.Pod
	granted *model.Pod // a copy, once a request is not allowed
	policy  *model.Policy
	denied  []model.Reason
}

func (r *request) allows(what model.Privilege) bool {
	return Allows(r.policy, r.pod.Namespace, r.pod.NamespaceLabels, what)
}

// denies records that a request is not allowed, and reports whether that is so.
func (r *request) denies(key, value string, what model.Privilege) bool {
	if r.allows(what) {
		return false
	}
	r.denied = append(r.denied, model.Reason{
		Code: model.NotPrivileged, Key: key, Text: value,
		Fix: "allow " + string(what) + " to the namespace in the policy's privileges, or remove it",
	})
	return true
}

// edit returns the copy of the pod to change.
func (r *request) edit() *model.Pod {
	if r.granted == r.pod {
		granted := *r.pod
		r.granted = &granted
	}
	return r.granted
}
