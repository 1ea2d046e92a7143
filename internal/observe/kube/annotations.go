package kube

import (
	"fmt"
	"strconv"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// parseAsks reads what a pod's annotations ask for. What cannot be used asks for nothing and says why.
func parseAsks(annotations map[string]string) model.Asks {
	var asks model.Asks
	key, value, found := v1alpha1.AnnotationCPUShare, "", false
	if value, found = annotations[key]; found {
		if other, both := annotations[v1alpha1.AnnotationCPUShareAlias]; both {
			asks.Notices = append(asks.Notices, model.Reason{
				Code: model.BothSpellings, Key: v1alpha1.AnnotationCPUShareAlias, Text: shorten(other),
				Fix: fmt.Sprintf("%s: %q is used; remove the other", key, shorten(value)),
			})
		}
	} else {
		key = v1alpha1.AnnotationCPUShareAlias
		value, found = annotations[key]
	}
	if found {
		shares, err := strconv.ParseInt(value, 10, 64)
		if err != nil || shares < model.MinShares || shares > model.MaxShares {
			asks.Notices = append(asks.Notices, model.Reason{
				Code: model.BadAnnotation, Key: key, Text: shorten(value),
				Fix: fmt.Sprintf("write an integer from %d to %d, where %d is one CPU", model.MinShares, model.MaxShares, model.SharesPerCPU),
			})
		} else {
			asks.Shares = shares
		}
	}
	if value, found := annotations[v1alpha1.AnnotationCPUQuota]; found {
		switch mode := model.QuotaMode(value); mode {
		case model.QuotaKubelet, model.QuotaUnlimited:
			asks.Quota = mode
		default:
			asks.Notices = append(asks.Notices, model.Reason{
				Code: model.BadAnnotation, Key: v1alpha1.AnnotationCPUQuota, Text: shorten(value),
				Fix: fmt.Sprintf("write %q or %q", model.QuotaKubelet, model.QuotaUnlimited),
			})
		}
	}
	return asks
}

// shorten cuts what a tenant wrote to a length that fits into an event.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
