package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// Options are what the user chooses.
type Options struct {
	// NodeLabel, KEY=VALUE, limits every policy to nodes with this label, for a canary. Empty: no limit.
	NodeLabel string
}

func (o Options) labelKey() string {
	key, _, _ := strings.Cut(o.NodeLabel, "=")
	return key
}

// Policy is a policy with notes about what it could not say.
type Policy struct {
	Name     string
	Priority int32
	Spec     v1alpha1.ColocationPolicySpec
	Notes    []Note
}

// Result is what a conversion found.
type Result struct {
	Policies []Policy
	Needs    []string // what else is needed, one paragraph each
	Notes    []Note   // about things that belong to no policy
}

// finish applies the options. It returns an error for options that cannot be used.
func (r *Result) finish(o Options) error {
	key, value, isPair := strings.Cut(o.NodeLabel, "=")
	if o.NodeLabel != "" && (!isPair || key == "") {
		return fmt.Errorf("node label %q: write KEY=VALUE, such as waterline.io/canary=true", o.NodeLabel)
	}
	for i := range r.Policies {
		s := &r.Policies[i].Spec
		if s.Mode == "" {
			s.Mode = v1alpha1.ModeObserve
		}
		if !isPair {
			continue
		}
		limited, possible := both(s.NodeSelector, &v1alpha1.LabelSelector{
			MatchLabels: map[string]v1alpha1.LabelValue{key: v1alpha1.LabelValue(value)},
		})
		if !possible {
			return fmt.Errorf("node label %q: policy %s selects nodes with another value; choose a label of its own",
				o.NodeLabel, r.Policies[i].Name)
		}
		s.NodeSelector = limited
	}
	return nil
}

// Documents returns each policy as a YAML document, without comments.
func (r *Result) Documents() ([]string, error) {
	var all []string
	for i := range r.Policies {
		document, err := r.Policies[i].document()
		if err != nil {
			return nil, err
		}
		all = append(all, document)
	}
	return all, nil
}

// YAML returns the policies with comments. Title is the first comment.
func (r *Result) YAML(title string) (string, error) {
	var b strings.Builder
	comment(&b, "# ", title)
	comment(&b, "# ", "In mode Observe, nothing is written to nodes. Read the NodeReports, then set mode: Enforce.")
	if len(r.Needs) > 0 {
		b.WriteString("#\n# What else is needed:\n")
		for _, need := range r.Needs {
			comment(&b, "#   * ", need)
		}
	}
	if len(r.Notes) > 0 {
		b.WriteString("#\n")
		writeNotes(&b, r.Notes)
	}
	documents, err := r.Documents()
	for i, document := range documents {
		b.WriteString("---\n")
		writeNotes(&b, r.Policies[i].Notes)
		b.WriteString(document)
	}
	return b.String(), err
}

// document writes the policy without what it leaves to defaults.
func (p *Policy) document() (string, error) {
	encoded, err := json.Marshal(p.Spec)
	var spec map[string]any
	if err == nil {
		err = json.Unmarshal(encoded, &spec)
	}
	for _, name := range []string{"protect", "weight"} { // these are written even if they say nothing
		if o, isObject := spec[name].(map[string]any); isObject && len(o) == 0 {
			delete(spec, name)
		}
	}
	if p.Priority != 0 {
		spec["priority"] = p.Priority
	}
	document, err2 := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion, "kind": "ColocationPolicy", "metadata": map[string]any{"name": p.Name},
		"spec": spec,
	})
	if err = errors.Join(err, err2); err != nil {
		return "", fmt.Errorf("writing policy %s: %w", p.Name, err)
	}
	return string(document), nil
}

// writeNotes writes notes as comments, those with a field that comes near first.
func writeNotes(b *strings.Builder, all []Note) {
	for _, cover := range []Cover{Nearest, None} {
		for _, n := range all {
			if n.Cover == cover {
				comment(b, fmt.Sprintf("# %-8s ", cover), n.String())
			}
		}
	}
}

// String returns the note as a text. Keys of the same document name it once.
func (n Note) String() string {
	var b strings.Builder
	before := ""
	for i, key := range n.Keys {
		where, name, _ := strings.Cut(key, " ")
		if i > 0 {
			b.WriteString(", ")
		}
		if where != before {
			name, before = key, where
		}
		b.WriteString(name)
	}
	return b.String() + ". " + strings.ReplaceAll(n.Text, "`", "")
}

// comment writes a text in lines of at most 100 columns. The first begins with a prefix, the others are indented.
func comment(b *strings.Builder, prefix, content string) {
	const most = 100
	line := prefix
	started := false
	for word := range strings.FieldsSeq(content) {
		if started && len(line)+1+len(word) > most {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, started = "#"+strings.Repeat(" ", len(prefix)-1), false
		}
		if started {
			line += " "
		}
		line, started = line+word, true
	}
	b.WriteString(line + "\n")
}

// labelSelector reads a selector of Kubernetes. Nil stays nil.
func labelSelector(value any) (*v1alpha1.LabelSelector, error) {
	if value == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("reading a selector: %w", err)
	}
	s := &v1alpha1.LabelSelector{}
	if err := yaml.UnmarshalStrict(encoded, s); err != nil {
		return nil, fmt.Errorf("reading a selector: %w", err)
	}
	for key, value := range s.MatchLabels {
		if err := label(key, value); err != nil {
			return nil, err
		}
	}
	for _, e := range s.MatchExpressions {
		needsValues := e.Operator == "In" || e.Operator == "NotIn"
		if !needsValues && e.Operator != "Exists" && e.Operator != "DoesNotExist" || needsValues != (len(e.Values) > 0) {
			return nil, fmt.Errorf("operator %q with %d values", e.Operator, len(e.Values))
		}
		if err := label(e.Key, e.Values...); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// label returns an error for a label that no object can have.
func label(key string, values ...v1alpha1.LabelValue) error {
	if problems := validation.IsQualifiedName(key); problems != nil {
		return fmt.Errorf("label %q: %s", key, problems[0])
	}
	for _, v := range values {
		if problems := validation.IsValidLabelValue(string(v)); problems != nil {
			return fmt.Errorf("value %q: %s", v, problems[0])
		}
	}
	return nil
}

// requirements returns the conditions of a selector as texts, which are the same for the same condition.
func requirements(s *v1alpha1.LabelSelector) sets.Set[string] {
	all := sets.New[string]()
	if s == nil {
		return all
	}
	for key, value := range s.MatchLabels {
		all.Insert(key + " In " + string(value))
	}
	for _, e := range s.MatchExpressions {
		all.Insert(requirement(e))
	}
	return all
}

func requirement(e v1alpha1.LabelRequirement) string {
	var values []string
	for _, v := range slices.Sorted(slices.Values(e.Values)) {
		values = append(values, string(v))
	}
	return e.Key + " " + e.Operator + " " + strings.Join(values, ",")
}

// allowed returns the values that a selector allows for each label that it limits to some.
func allowed(s *v1alpha1.LabelSelector) map[string][]v1alpha1.LabelValue {
	all := map[string][]v1alpha1.LabelValue{}
	for key, value := range s.MatchLabels {
		all[key] = []v1alpha1.LabelValue{value}
	}
	for _, e := range s.MatchExpressions {
		if e.Operator == "In" && all[e.Key] == nil {
			all[e.Key] = e.Values
		}
	}
	return all
}

// both returns a selector for what two selectors select. It is false if a label would need two values.
func both(a, b *v1alpha1.LabelSelector) (*v1alpha1.LabelSelector, bool) {
	switch {
	case a == nil:
		return b, true
	case b == nil:
		return a, true
	}
	others := allowed(b)
	for key, values := range allowed(a) {
		if others[key] != nil && !slices.ContainsFunc(values, func(v v1alpha1.LabelValue) bool {
			return slices.Contains(others[key], v)
		}) {
			return nil, false
		}
	}
	joined := &v1alpha1.LabelSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{}, MatchExpressions: slices.Clone(a.MatchExpressions),
	}
	maps.Copy(joined.MatchLabels, a.MatchLabels)
	maps.Copy(joined.MatchLabels, b.MatchLabels)
	known := requirements(a)
	for _, e := range b.MatchExpressions {
		if !known.Has(requirement(e)) {
			joined.MatchExpressions = append(joined.MatchExpressions, e)
		}
	}
	return joined, true
}

// appendNew appends a rule, unless the same rule is there already.
func appendNew[T any](all []T, one T) []T {
	if slices.ContainsFunc(all, func(other T) bool { return reflect.DeepEqual(other, one) }) {
		return all
	}
	return append(all, one)
}

// part writes a percentage as a policy does, within a range.
func part(n, low, high float64) string {
	return strconv.FormatFloat(min(max(n, low), high), 'f', -1, 64) + "%"
}

// policyName makes a name of an object from words.
func policyName(parts ...string) string {
	name := strings.Map(func(c rune) rune {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return '-'
		}
		return c
	}, strings.ToLower(strings.Join(parts, "-")))
	return strings.Trim(name[:min(len(name), 63)], "-")
}
