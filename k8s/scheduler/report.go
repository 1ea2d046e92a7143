package scheduler

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// report is what counts of a NodeReport.
type report struct {
	content    place.Report
	unreadable bool
	policy     string
	room       *model.CPURoom // nil: it has none
	changed    time.Time      // as the agent wrote it
	at         time.Duration  // when it changed, on the view's clock
}

// ancient is the age of a report that does not say when it changed. More could overflow.
const ancient = 365 * 24 * time.Hour

// seeReport takes in a report that is new or changed. A report that cannot be read replaces one that could.
func (v *view) seeReport(u *unstructured.Unstructured) {
	if u == nil {
		return
	}
	r := readReport(u)
	now := v.now()
	name := u.GetName()
	v.mu.Lock()
	old := v.reports[name]
	switch {
	case old != nil && old.changed.Equal(r.changed):
		r.at = old.at
	case old != nil:
		r.at = now // the agent's clock does not matter
	default:
		r.at = now - min(max(time.Since(r.changed), 0), ancient)
	}
	v.reports[name] = r
	v.touch(name)
	if old == nil || old.policy != r.policy {
		v.version.Add(1)
	}
	helps := v.helped(name, old, r)
	v.mu.Unlock()
	v.wake(helps)
}

// loseReport forgets a report. Without it, its node may take what was refused there.
func (v *view) loseReport(name string) {
	v.mu.Lock()
	old := v.reports[name]
	delete(v.reports, name)
	v.version.Add(1)
	v.touch(name)
	helps := v.helped(name, old, nil)
	v.mu.Unlock()
	v.wake(helps)
}

func readReport(u *unstructured.Unstructured) *report {
	var o v1alpha1.NodeReport
	if u.GetAPIVersion() != v1alpha1.GroupVersion ||
		runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o) != nil {
		return &report{unreadable: true}
	}
	s := &o.Status
	r := &report{policy: s.Policy, content: place.Report{
		CPU: account(s.CPU, false), Memory: account(s.Memory, true), Hot: s.Hot, Selling: model.SellState(s.Selling),
		Withdrawn: meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionWithdrawn),
	}}
	if s.Mode == v1alpha1.ModeDisabled {
		r.policy = "" // the node may be paused, whatever its policy says
	}
	if s.Changed != nil {
		r.changed = s.Changed.Time
	}
	room, err := kube.CPURoom(s.CPUSets)
	if err != nil {
		r.unreadable = true
	}
	if room != nil {
		r.room, r.content.Zones = room, place.ZonesOf(room.Topology, room.Free)
	}
	return r
}

// account reads the account of a resource: CPU in milli-cores, or memory in bytes.
func account(r *v1alpha1.ResourceReport, memory bool) place.Account {
	if r == nil {
		return place.Account{}
	}
	of := (*resource.Quantity).MilliValue
	if memory {
		of = (*resource.Quantity).Value
	}
	a := place.Account{
		Capacity: of(&r.Capacity), Ceiling: of(&r.Ceiling), System: of(&r.System), Online: of(&r.Online),
		PeakHour: of(&r.Peaks.Hour), PeakDay: of(&r.Peaks.Day),
	}
	if u := r.OtherDays; u != nil {
		a.OtherFour, a.OtherEight = of(&u.FourHours), of(&u.EightHours)
	}
	return a
}

// seePolicy takes in a policy. One that cannot be used counts as the default, as for the agents.
func (v *view) seePolicy(u *unstructured.Unstructured) {
	if u == nil {
		return
	}
	var o v1alpha1.ColocationPolicy
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o) == nil {
		if p, err := kube.Policy(&o); err == nil {
			v.setPolicy(p.Name, &p.Policy)
			return
		}
	}
	v.losePolicy(u.GetName())
}

func (v *view) losePolicy(name string) {
	v.setPolicy(name, nil)
}

// setPolicy sets a policy, or deletes it, and wakes the pods that this helps.
func (v *view) setPolicy(name string, p *model.Policy) {
	v.mu.Lock()
	before := v.policyNamed(name)
	if p == nil {
		delete(v.policies, name)
	} else {
		v.policies[name] = p
	}
	v.version.Add(1)
	helps := v.helpedByPolicy(before, v.policyNamed(name))
	v.mu.Unlock()
	v.wake(helps)
}

// policyNamed returns a policy, or that of nodes without one. The lock is held.
func (v *view) policyNamed(name string) *model.Policy {
	if p := v.policies[name]; p != nil {
		return p
	}
	return v.policy
}

// policyFor returns the policy of a node with this report. The lock is held.
func (v *view) policyFor(r *report) *model.Policy {
	if r == nil {
		return v.policy
	}
	return v.policyNamed(r.policy)
}

// policyOf returns the policy of a node, and a version that differs after each change of a policy.
func (v *view) policyOf(node string) (*model.Policy, int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.policyFor(v.reports[node]), v.version.Load()
}
