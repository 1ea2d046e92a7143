package admit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// operation is one step of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"` // add, which also replaces, or remove
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patch returns a JSON patch from one version of a pod to another. It names only the fields that [Rules.Mutate] and
// [Keep] change. A library that compares whole documents would also remove the fields of newer versions of Kubernetes,
// which this code does not know.
func patch(before, after *corev1.Pod) ([]byte, error) {
	var p patcher
	p.diffMap("/metadata/labels", before.Labels, after.Labels)
	p.diffMap("/metadata/annotations", before.Annotations, after.Annotations)
	if before.Spec.PriorityClassName != after.Spec.PriorityClassName {
		p.add("/spec/priorityClassName", after.Spec.PriorityClassName)
	}
	if before.Spec.Priority != nil && after.Spec.Priority == nil {
		p.remove("/spec/priority")
	}
	if before.Spec.PreemptionPolicy != nil && after.Spec.PreemptionPolicy == nil {
		p.remove("/spec/preemptionPolicy")
	}
	switch was, is := before.Spec.Resources, after.Spec.Resources; {
	case was != nil && is == nil:
		p.remove("/spec/resources")
	case was != nil:
		p.diffResources("/spec/resources", *was, *is)
	}
	p.diffContainers("/spec/initContainers", before.Spec.InitContainers, after.Spec.InitContainers)
	p.diffContainers("/spec/containers", before.Spec.Containers, after.Spec.Containers)
	is := downwardSources(after)
	for i, was := range downwardSources(before) {
		p.diffItems(was, is[i])
	}
	encoded, err := json.Marshal(p.steps)
	if err != nil {
		return nil, fmt.Errorf("writing the patch: %w", err)
	}
	return encoded, nil
}

type patcher struct{ steps []operation }

func (p *patcher) add(path string, value any) {
	p.steps = append(p.steps, operation{Op: "add", Path: path, Value: value})
}

func (p *patcher) remove(path string) {
	p.steps = append(p.steps, operation{Op: "remove", Path: path})
}

// diffMap changes labels or annotations key by key, because other webhooks may change other keys.
func (p *patcher) diffMap(path string, before, after map[string]string) {
	if before == nil && len(after) > 0 {
		p.add(path, after)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if old, found := before[key]; !found || old != after[key] {
			p.add(path+"/"+escape(key), after[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[key]; !stays {
			p.remove(path + "/" + escape(key))
		}
	}
}

// escape writes a key as a part of a JSON pointer (RFC 6901).
func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

func (p *patcher) diffContainers(path string, before, after []corev1.Container) {
	for i := range min(len(before), len(after)) {
		at := path + "/" + strconv.Itoa(i)
		p.diffResources(at+"/resources", before[i].Resources, after[i].Resources)
		for j, is := range after[i].Env {
			if before[i].Env[j].ValueFrom != nil && is.ValueFrom == nil {
				p.remove(at + "/env/" + strconv.Itoa(j) + "/valueFrom")
				p.add(at+"/env/"+strconv.Itoa(j)+"/value", is.Value)
			}
		}
	}
}

// diffItems replaces what items of a volume refer to.
func (p *patcher) diffItems(before, after downwardSource) {
	for i, is := range after.items {
		if before.items[i].ResourceFieldRef != nil && is.ResourceFieldRef == nil {
			at := before.path + "/" + strconv.Itoa(i)
			p.remove(at + "/resourceFieldRef")
			p.add(at+"/fieldRef", is.FieldRef)
		}
	}
}

func (p *patcher) diffResources(path string, before, after corev1.ResourceRequirements) {
	if before.Requests == nil && before.Limits == nil && before.Claims == nil && after.Requests != nil {
		p.add(path, after) // there may be no object to add to
		return
	}
	for _, list := range []struct {
		name          string
		before, after corev1.ResourceList
	}{{"requests", before.Requests, after.Requests}, {"limits", before.Limits, after.Limits}} {
		same := maps.EqualFunc(list.before, list.after, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
		switch {
		case same:
		case len(list.after) == 0:
			p.remove(path + "/" + list.name)
		default:
			p.add(path+"/"+list.name, list.after)
		}
	}
}
