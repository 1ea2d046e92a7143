package kube

import (
	"cmp"
	"fmt"
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

// classify sets the class of a pod, its tier, and the CPUs that the class implies.
func classify(pod *model.Pod, priority *int32) {
	var notices []model.Reason
	pod.Class, _, notices = Class(pod.Labels)
	pod.Annotations.Notices = append(pod.Annotations.Notices, notices...)
	if pod.Annotations.CPUs == "" && pod.Annotations.BadCPUs.Code == "" {
		switch pod.Class {
		case model.ClassLSE:
			pod.Annotations.CPUs = model.CPUExclusive
		case model.ClassLSR:
			pod.Annotations.CPUs = model.CPUShare
		}
	}
	if pod.Class != model.ClassBE {
		return
	}
	pod.Tier = model.TierBatch
	if p := priority; p != nil && *p >= v1alpha1.PriorityMid && *p < v1alpha1.PriorityMid+v1alpha1.PriorityBand {
		pod.Tier = model.TierMid
	}
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
