package kube

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// ParseAnnotations reads the annotations of a pod. An annotation that cannot be used has no effect but a notice, which
// says why.
func ParseAnnotations(annotations map[string]string) model.PodAnnotations {
	r := reader{from: annotations}
	parsed := model.PodAnnotations{
		Shares: r.shares(v1alpha1.AnnotationCPUShare, v1alpha1.AnnotationCPUShareAlias),
		Quota:  oneOf(&r, v1alpha1.AnnotationCPUQuota, "", model.QuotaKubelet, model.QuotaUnlimited),
		CPUs: oneOf(&r, v1alpha1.AnnotationCPUManager, v1alpha1.AnnotationCPUManagerAlias,
			model.CPUNone, model.CPUShare, model.CPUExclusive),
		Placement:   oneOf(&r, v1alpha1.AnnotationCPUPlacement, "", model.PlacePacked, model.PlaceSpread, model.PlaceCores),
		Hint:        r.cpus(v1alpha1.AnnotationCPUSetHint),
		LocalMemory: oneOf(&r, v1alpha1.AnnotationCPUMemory, "", localMemory) == localMemory,
		Evict:       oneOf(&r, v1alpha1.AnnotationEvict, "", model.EvictNever, model.EvictFirst),
	}
	parsed.Notices = r.notices
	if _, found := annotations[v1alpha1.AnnotationEvict]; found && parsed.Evict == "" {
		parsed.Evict = model.EvictNever // in doubt the pod stays
	}
	for _, n := range r.notices {
		if n.Code == model.BadAnnotation &&
			(n.Key == v1alpha1.AnnotationCPUManager || n.Key == v1alpha1.AnnotationCPUManagerAlias) {
			parsed.BadCPUs = n
		}
	}
	return parsed
}

// localMemory is the only value of [v1alpha1.AnnotationCPUMemory].
const localMemory = "local"

// reader reads the annotations, or the labels, of one pod and collects notices about those that cannot be used.
type reader struct {
	from    map[string]string
	notices []model.Reason
}

// find returns the value of a key or, where it is absent, of its alias, and which of the two it was. An empty alias is
// none.
func (r *reader) find(key, alias string) (at, value string, found bool) {
	other, aliased := "", false
	if alias != "" {
		other, aliased = r.from[alias]
	}
	value, found = r.from[key]
	switch {
	case found && aliased:
		r.notices = append(r.notices, model.Reason{
			Code: model.BothSpellings, Key: alias, Text: Excerpt(other),
			Fix: fmt.Sprintf("%s: %q is used; remove the other", key, Excerpt(value)),
		})
	case aliased:
		return alias, other, true
	}
	return key, value, found
}

// bad adds a notice about a value that cannot be used.
func (r *reader) bad(key, value, fix string) {
	r.notices = append(r.notices, model.Reason{Code: model.BadAnnotation, Key: key, Text: Excerpt(value), Fix: fix})
}

// shares reads a number of shares; 0 without a usable value.
func (r *reader) shares(key, alias string) int64 {
	key, value, found := r.find(key, alias)
	if !found {
		return 0
	}
	shares, err := strconv.ParseInt(value, 10, 64)
	if err != nil || shares < model.MinShares || shares > model.MaxShares {
		r.bad(key, value, fmt.Sprintf("write an integer from %d to %d, where %d is one CPU",
			model.MinShares, model.MaxShares, model.SharesPerCPU))
		return 0
	}
	return shares
}

// cpus reads a list of CPUs; the empty set without a usable value.
func (r *reader) cpus(key string) model.CPUSet {
	value, found := r.from[key]
	if !found {
		return model.CPUSet{}
	}
	set, err := model.ParseCPUs(value)
	if err != nil || set.Empty() {
		r.bad(key, value, fmt.Sprintf("write a list of CPUs from 0 to %d, such as 4-7,12, or remove it", model.MaxCPUs-1))
	}
	return set
}

// oneOf reads a value that must be one of some words; "" without a usable value.
func oneOf[T ~string](r *reader, key, alias string, words ...T) T {
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

// Shorten cuts a text to a length in bytes. A text that was cut ends with an ellipsis, and no character is cut in two.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:max(most-len("…"), 0)], "") + "…"
}

// Excerpt returns the beginning of a tenant's text, which fits into an event or a warning.
func Excerpt(text string) string { return Shorten(text, 64) }
