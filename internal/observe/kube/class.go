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

// Class reads from a pod's labels what the pod is for. A label that cannot be used makes nobody batch. Where said is
// false the labels say nothing, and the class is LS. The notices say what is wrong with the labels.
func Class(labels map[string]string) (class model.Class, said bool, notices []model.Reason) {
	r := asksReader{annotations: labels}
	class = oneOf(&r, v1alpha1.LabelQoS, v1alpha1.LabelQoSAlias, model.ClassLSE, model.ClassLSR, model.ClassLS,
		model.ClassBE, model.ClassSystem)
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

// classify finds out what a pod is for.
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

// Owner names the workload that a pod belongs to, the same for all pods of it and for all of its revisions. A pod that
// is not named yet goes by what its name will begin with.
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
		if i := strings.LastIndexByte(name, '-'); i > 0 && digits(name[i+1:]) { // by a CronJob, which adds the minute
			kind, name = "CronJob", name[:i]
		}
	}
	return fmt.Sprintf("%s/%s/%s", kind, p.Namespace, name)
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
