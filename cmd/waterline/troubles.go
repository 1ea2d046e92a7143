package main

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// silent reports whether the agent of a node has not renewed its report in time. With mode Disabled it never does.
func silent(r *v1alpha1.NodeReport, now time.Time) bool {
	return r != nil && r.Status.Mode != v1alpha1.ModeDisabled && r.Status.Changed != nil &&
		now.Sub(r.Status.Changed.Time) > model.ReportMaxAge
}

// troubles finds what is not as it should be, the whole cluster's first.
func (r *inventory) troubles(each []nodeStatus, now time.Time) []trouble {
	var all []trouble
	add := func(fix, format string, args ...any) {
		all = append(all, trouble{fmt.Sprintf(format, args...), fix})
	}
	r.ownPods(add)
	for _, p := range r.policies {
		if _, err := kube.Policy(&p); err != nil {
			add("correct it; until then agents keep its last valid version", "%v", err)
		}
		if n := p.Status.SlippedPods; n > 0 {
			add("delete them, so that their owners create them again", "policy %s: %s batch and admitted without batch "+
				"requests, so the scheduler counts them as online", p.Name, count(int(n), "pod"))
		}
	}
	r.nodeTroubles(each, now, add)
	for _, p := range r.pools {
		for _, c := range p.Status.Conditions {
			wrong := c.Status == metav1.ConditionTrue
			if c.Type == v1alpha1.ConditionReady {
				wrong = c.Status == metav1.ConditionFalse
			}
			if !wrong {
				continue
			}
			fix := fmt.Sprintf("waterline explain pool %s -n %s", p.Name, p.Namespace)
			if known := poolMeanings(&p)[c.Type]; known.Text != "" {
				fix = known.Text + "; " + fix
			}
			add(fix, "pool %s/%s: %s %s", p.Namespace, p.Name, c.Type, c.Message)
		}
	}
	return all
}

func (r *inventory) ownPods(add func(fix, format string, args ...any)) {
	waiting := map[string][]string{}
	managers := 0
	for _, p := range r.pods {
		name := p.Labels[appLabel]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if name == managerName {
			managers++
		}
		if !kube.Ready(&p) {
			waiting[name] = append(waiting[name], p.Name)
		}
	}
	if managers == 0 {
		add("look at the Deployment waterline-manager in namespace "+r.home,
			"no manager runs: no pod becomes batch, nobody withdraws offers or evicts")
	}
	inOrder(waiting, func(name string, pods []string) {
		add("kubectl logs -n "+r.home+" "+pods[0], "%s of %s not ready: %s", count(len(pods), "pod"), name,
			some(pods))
	})
}

// fixes say what to do about nodes in a state.
var fixes = map[string]string{
	"no NodeReport": "see whether the DaemonSet waterline-agent has a pod there, and its log",
	"behind":        "wait a minute; if it lasts, see the agent's log there",
	"withdrawn":     "see the agent's pod and the kubelet there; the offer returns by itself",
	"hot":           "waterline explain node NAME names the pod that should leave",
}

// nodeTroubles finds what is wrong on nodes, of all nodes alike together.
func (r *inventory) nodeTroubles(each []nodeStatus, now time.Time, add func(fix, format string, args ...any)) {
	states, lacking := map[string][]string{}, map[string][]string{}
	var late, unrestored []string
	for _, n := range each {
		if fixes[n.State] != "" {
			states[n.State] = append(states[n.State], n.Name)
		}
		report := r.reports[n.Name]
		if report == nil {
			continue
		}
		if silent(report, now) && n.State != "withdrawn" {
			late = append(late, n.Name)
		}
		if report.Status.Unrestored > 0 {
			unrestored = append(unrestored, n.Name)
		}
		for _, code := range report.Status.Unsupported {
			lacking[code] = append(lacking[code], n.Name)
		}
	}
	inOrder(states, func(state string, nodes []string) {
		add(fixes[state], "%s: %s (%s)", state, count(len(nodes), "node"), some(nodes))
	})
	if len(late) > 0 {
		add("see the agent's log there", "silent for more than %s: %s (%s)", model.ReportMaxAge, count(len(late), "node"),
			some(late))
	}
	if len(unrestored) > 0 {
		add("wait until the agent there has restored them; if it lasts, see its log",
			"cgroup files still to restore: %s (%s)", count(len(unrestored), "node"), some(unrestored))
	}
	words := reasons()
	inOrder(lacking, func(code string, nodes []string) {
		add(cmp.Or(words[code].Fix, words[code].Text), "%s: %s (%s)", code, count(len(nodes), "node"), some(nodes))
	})
}
