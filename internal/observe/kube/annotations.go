package kube

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// ParseAnnotations reads what a pod's annotations ask for. What cannot be used asks for nothing and says why.
func ParseAnnotations(annotations map[string]string) model.PodAnnotations {
	r := asksReader{annotations: annotations}
	asks := model.PodAnnotations{
		Shares: r.shares(v1alpha1.AnnotationCPUShare, v1alpha1.AnnotationCPUShareAlias),
		Quota:  oneOf(&r, v1alpha1.AnnotationCPUQuota, "", model.QuotaKubelet, model.QuotaUnlimited),
		CPUs: oneOf(&r, v1alpha1.AnnotationCPUManager, v1alpha1.AnnotationCPUManagerAlias, model.CPUNone,
			model.CPUShare, model.CPUExclusive),
		Placement:   oneOf(&r, v1alpha1.AnnotationCPUPlacement, "", model.PlacePacked, model.PlaceSpread, model.PlaceCores),
		LocalMemory: oneOf(&r, v1alpha1.AnnotationCPUMemory, "", localMemory) == localMemory,
		Evict:       oneOf(&r, v1alpha1.AnnotationEvict, "", model.EvictNever, model.EvictFirst),
	}
	asks.Notices = r.notices
	if _, said := annotations[v1alpha1.AnnotationEvict]; said && asks.Evict == "" {
		asks.Evict = model.EvictNever // whatever was meant, somebody cares
	}
	for _, n := range r.notices {
		if n.Code == model.BadAnnotation &&
			(n.Key == v1alpha1.AnnotationCPUManager || n.Key == v1alpha1.AnnotationCPUManagerAlias) {
			asks.BadCPUs = n
		}
	}
	return asks
}

// localMemory is the one value of [v1alpha1.AnnotationCPUMemory].
const localMemory = "local"

// asksReader reads the annotations of one pod and gathers what is wrong with them.
type asksReader struct {
	annotations map[string]string
	notices     []model.Reason
}

// find returns what stands under an annotation or, where it is absent, under its alias, and which of them it was. There
// may be no alias.
func (r *asksReader) find(key, alias string) (at, value string, found bool) {
	other, aliased := "", false
	if alias != "" {
		other, aliased = r.annotations[alias]
	}
	value, found = r.annotations[key]
	switch {
	case found && aliased:
		r.notices = append(r.notices, model.Reason{
			Code: model.BothSpellings, Key: alias, Text: shorten(other),
			Fix: fmt.Sprintf("%s: %q is used; remove the other", key, shorten(value)),
		})
	case aliased:
		return alias, other, true
	}
	return key, value, found
}

// bad notes a value that cannot be used.
func (r *asksReader) bad(key, value, fix string) {
	r.notices = append(r.notices, model.Reason{Code: model.BadAnnotation, Key: key, Text: shorten(value), Fix: fix})
}

// shares reads a number of shares; 0: nothing that can be used.
func (r *asksReader) shares(key, alias string) int64 {
	key, value, found := r.find(key, alias)
	if !found {
		return 0
	}
	shares, err := strconv.ParseInt(value, 10, 64)
	if err != nil || shares < model.MinShares || shares > model.MaxShares {
		r.bad(key, value, fmt.Sprintf("write an integer from %d to %d, where %d is one CPU", model.MinShares, model.MaxShares,
			model.SharesPerCPU))
		return 0
	}
	return shares
}

// oneOf reads one of a few words; "": nothing that can be used.
func oneOf[T ~string](r *asksReader, key, alias string, words ...T) T {
	key, value, found := r.find(key, alias)
	if !found {
		return ""
	}
	quoted := make([]string, 0, len(words))
	for _, word := range words {
		if T(value) == word {
			return word
		}
		quoted = append(quoted, strconv.Quote(string(word)))
	}
	r.bad(key, value, "write "+strings.Join(quoted, " or "))
	return ""
}

// shorten cuts what a tenant wrote to a length that fits into an event.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
