package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Class reads the class of a pod from its labels. A label that cannot be used makes no pod batch. Without a label the
// class is LS, and said is false. The notices report labels that cannot be used.
func Class(labels map[string]string) (class model.Class, said bool, notices []model.Reason) {
	r := reader{from: labels}
	class = oneOf(&r, v1alpha1.LabelQoS, v1alpha1.LabelQoSAlias,
		model.ClassLSE, model.ClassLSR, model.ClassLS, model.ClassBE, model.ClassSystem)
	for i := range r.notices {
		if r.notices[i].Code == model.BadAnnotation {
			r.notices[i].Code = model.BadLabel
		}
	}
	said = class != "" || len(r.notices) > 0
	if class == "" {
		class = model.ClassLS
	}
	return class, said, r.notices
}

// classify sets the class of a pod, its tier, and the CPUs that the class implies. A pod that requests batch or mid
// resources is batch whatever its labels say: what it runs on is what online pods leave.
func classify(pod *model.Pod, priority *int32) {
	class, said, notices := Class(pod.Labels)
	pod.Annotations.Notices = append(pod.Annotations.Notices, notices...)
	requests := pod.Mid != model.Amount{} || pod.Batch != model.Amount{}
	if requests && class != model.ClassBE {
		if said && !slices.ContainsFunc(notices, func(n model.Reason) bool { return n.Code == model.BadLabel }) {
			pod.Annotations.Notices = append(pod.Annotations.Notices, model.Reason{
				Code: model.BadLabel, Key: v1alpha1.LabelQoS, Text: string(class),
				Fix: "label it BE: a pod that requests batch or mid resources is batch",
			})
		}
		class = model.ClassBE
	}
	pod.Class = class
	if a := &pod.Annotations; a.CPUs == "" && a.BadCPUs.Code == "" {
		switch class {
		case model.ClassLSE:
			a.CPUs, a.CPUsOfClass = model.CPUExclusive, true
		case model.ClassLSR:
			a.CPUs, a.CPUsOfClass = model.CPUShare, true
		}
	}
	if class != model.ClassBE {
		return
	}
	pod.Tier = model.TierBatch
	if pod.Mid != (model.Amount{}) && pod.Batch == (model.Amount{}) || !requests && TierOf(priority) == model.TierMid {
		pod.Tier = model.TierMid
	}
}

// TierOf returns the tier of batch pods of a priority, by Waterline's values or by Koordinator's; "" if the priority
// implies none.
func TierOf(priority *int32) model.Tier {
	within := func(from int32, n int32) bool { return *priority >= from && *priority < from+n }
	const mid, koordinator = v1alpha1.PriorityMidBand, v1alpha1.PriorityKoordinatorBand
	switch {
	case priority == nil:
		return ""
	case within(v1alpha1.PriorityMid-mid+1, mid), within(v1alpha1.PriorityKoordinatorMid, koordinator):
		return model.TierMid
	case *priority <= v1alpha1.PriorityBatch, within(v1alpha1.PriorityKoordinatorBatch, koordinator):
		return model.TierBatch
	}
	return ""
}

// Owner returns the name of the workload that a pod belongs to: the same name for all of its pods and revisions. For a
// pod that has no name yet, the prefix of its name counts.
func Owner(p *corev1.Pod) string {
	by := metav1.GetControllerOfNoCopy(p)
	if by == nil {
		return fmt.Sprintf("Pod/%s/%s", p.Namespace, cmp.Or(p.Name, p.GenerateName))
	}
	kind, name := by.Kind, by.Name
	switch hash := p.Labels["pod-template-hash"]; {
	case kind == "ReplicaSet" && hash != "" && strings.HasSuffix(name, "-"+hash):
		kind, name = "Deployment", strings.TrimSuffix(name, "-"+hash)
	case kind == "Job":
		if i := strings.LastIndexByte(name, '-'); i > 0 && digits(name[i+1:]) { // of a CronJob, which adds the minute
			kind, name = "CronJob", name[:i]
		}
	}
	return fmt.Sprintf("%s/%s/%s", kind, p.Namespace, name)
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
