package kube

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	_ "time/tzdata" // 0.4 MB, for images without time zones and nodes with old ones: policies name zones

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// The grammars of values, as in the validation rules of the API.
var (
	percentage      = regexp.MustCompile(`^(0|[1-9][0-9]{0,3})(?:\.([0-9]))?%$`)
	wholePercentage = regexp.MustCompile(`^(100|[1-9]?[0-9])%$`)
	timeOfDay       = regexp.MustCompile(`^([01][0-9]|2[0-3]):([0-5][0-9])$`)
	zoneName        = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+/-]*$`)
	windowName      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
)

// checker collects the errors of a document.
type checker struct{ errs []error }

func (c *checker) bad(field string, value any, fix string) {
	c.errs = append(c.errs, fmt.Errorf("%s: %v cannot be used: %s", field, value, fix))
}

// chosen returns the value, or the first of those allowed if it is empty.
func chosen[T, S ~string](c *checker, field string, value S, allowed ...T) T {
	var names []spelling[T]
	for _, a := range allowed {
		names = append(names, spelling[T]{string(a), a})
	}
	return named(c, field, value, names...)
}

// named is [chosen] for values that annotations spell in lower case: the policy has a name of its own for each.
func named[T, S ~string](c *checker, field string, value S, names ...spelling[T]) T {
	if value == "" {
		return names[0].value
	}
	var known []string
	for _, n := range names {
		if n.name == string(value) {
			return n.value
		}
		known = append(known, n.name)
	}
	c.bad(field, fmt.Sprintf("%.64q", value), "write "+strings.Join(known, " or "))
	return names[0].value
}

// spelling is a value with its name in policies.
type spelling[T ~string] struct {
	name  string
	value T
}

// percent reads a part such as "65%" in thousandths, and returns otherwise for an empty text.
func (c *checker) percent(field, text string, otherwise, low, high int64) int64 {
	if text == "" {
		return otherwise
	}
	parts := percentage.FindStringSubmatch(text)
	part := int64(-1)
	if parts != nil { // at most five digits, so it is a number
		part, _ = strconv.ParseInt(parts[1]+(parts[2] + "0")[:1], 10, 64)
	}
	if part < low || part > high {
		c.bad(field, fmt.Sprintf("%.64q", text),
			fmt.Sprintf("write a percentage from %g%% to %g%%, with at most one decimal", float64(low)/10, float64(high)/10))
	}
	return part
}

// whole reads a percentage without decimals.
func (c *checker) whole(field, text string) int64 {
	parts := wholePercentage.FindStringSubmatch(text)
	if parts == nil {
		c.bad(field, fmt.Sprintf("%.64q", text), "write a whole percentage from 0% to 100%")
		return 0
	}
	n, _ := strconv.ParseInt(parts[1], 10, 64) // at most three digits, so it is a number
	return n
}

// within returns a number that must lie in a range. what names the number in errors.
func (c *checker) within(field string, value, low, high int64, what string) int64 {
	if value < low || value > high {
		c.bad(field, value, fmt.Sprintf("write %s from %d to %d", what, low, high))
	}
	return value
}

func (c *checker) shares(field string, value int64) int64 {
	return c.within(field, value, model.MinShares, model.MaxShares, "shares")
}

// required reads a selector that must be present, because an absent one would select everything.
func (c *checker) required(field string, s *v1alpha1.LabelSelector) model.Selector {
	if s == nil {
		c.bad(field, "no selector", "write one; {} selects everything")
	}
	return c.selector(field, s)
}

func (c *checker) selector(field string, s *v1alpha1.LabelSelector) model.Selector {
	if s == nil {
		return nil
	}
	var selector model.Selector
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		selector = append(selector, c.requirement(field+".matchLabels", key, model.In, s.MatchLabels[key]))
	}
	for i, e := range s.MatchExpressions {
		field, op := fmt.Sprintf("%s.matchExpressions[%d]", field, i), model.SelectorOp(e.Operator)
		needsValues := op == model.In || op == model.NotIn
		switch {
		case !needsValues && op != model.Exists && op != model.DoesNotExist:
			c.bad(field, fmt.Sprintf("operator %.64q", e.Operator), "write In, NotIn, Exists or DoesNotExist")
		case needsValues != (len(e.Values) > 0):
			c.bad(field, fmt.Sprintf("%s with %d values", e.Operator, len(e.Values)),
				"In and NotIn need values, the others take none")
		}
		selector = append(selector, c.requirement(field, e.Key, op, e.Values...))
	}
	return selector
}

// requirement refuses labels that no object can have, because they must be mistakes.
func (c *checker) requirement(field, key string, op model.SelectorOp, values ...v1alpha1.LabelValue) model.Requirement {
	r := model.Requirement{Key: key, Op: op}
	if validation.IsQualifiedName(key) != nil {
		c.bad(field, fmt.Sprintf("label %.64q", key), "write the name of a label, such as pool or example.com/pool")
	}
	for _, v := range values {
		if validation.IsValidLabelValue(string(v)) != nil {
			c.bad(field, fmt.Sprintf("value %.64q", v),
				"write the value of a label: at most 63 letters, digits, and - _ . between them")
		}
		r.Values = append(r.Values, string(v))
	}
	return r
}

func (c *checker) windows(field string, specs []v1alpha1.WindowSpec) []model.Window {
	var windows []model.Window
	for i, spec := range specs {
		w := c.window(fmt.Sprintf("%s[%d]", field, i), &spec)
		if slices.ContainsFunc(windows, func(other model.Window) bool { return other.Name == w.Name }) {
			c.bad(fmt.Sprintf("%s[%d].name", field, i), fmt.Sprintf("%.64q", w.Name),
				"write another name; an earlier window has this one")
		}
		windows = append(windows, w)
	}
	return windows
}

func (c *checker) window(field string, spec *v1alpha1.WindowSpec) model.Window {
	w := model.Window{
		Name: spec.Name, Start: c.minutes(field+".start", spec.Start), End: c.minutes(field+".end", spec.End),
	}
	if !windowName.MatchString(spec.Name) || len(spec.Name) > 63 {
		c.bad(field+".name", fmt.Sprintf("%.64q", spec.Name),
			"write a name of at most 63 lower-case letters, digits, and - between them")
	}
	zone, err := model.LoadTimeZone(spec.TimeZone)
	if err != nil || !zoneName.MatchString(spec.TimeZone) || len(spec.TimeZone) > 64 {
		c.bad(field+".timeZone", fmt.Sprintf("%.64q", spec.TimeZone), "write the name of a time zone, such as Asia/Shanghai")
	}
	w.Zone = zone
	switch d := spec.DrainBefore; {
	case d == nil:
	case d.Duration < 0:
		c.bad(field+".drainBefore", compact(d), "write hours, minutes and seconds, such as 15m or 1h30m")
	case d.Duration >= w.Length():
		c.bad(field+".drainBefore", compact(d), "write less than the length of the window, and none where it never ends")
	default:
		w.DrainBefore = d.Duration
	}
	return w
}

// minutes reads a time of day, in minutes after midnight.
func (c *checker) minutes(field, text string) int {
	parts := timeOfDay.FindStringSubmatch(text)
	if parts == nil {
		c.bad(field, fmt.Sprintf("%.64q", text), `write a time from "00:00" to "23:59"`)
		return 0
	}
	hours, _ := strconv.Atoi(parts[1]) // two digits each, by the grammar
	minutes, _ := strconv.Atoi(parts[2])
	return hours*60 + minutes
}
