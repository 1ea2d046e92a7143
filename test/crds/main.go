// Command crds completes the custom resource definition of WorkerPool, which controller-gen made: it adds the rules of
// its pod template, and writes the defaults of the definition into a file, for documents that no API server has seen.
// Its arguments are the folder of the definitions and that file.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: crds DIR DEFAULTS")
		os.Exit(2)
	}
	path := filepath.Join(os.Args[1], "waterline.io_workerpools.yaml")
	var defaults []byte
	content, err := os.ReadFile(path)
	if err == nil {
		content, defaults, err = complete(content)
	}
	if err == nil {
		err = errors.Join(os.WriteFile(path, content, 0o644), os.WriteFile(os.Args[2], defaults, 0o644))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}

type schema = map[string]any

// complete returns the definition with the rules of the template, and without the descriptions of fields that
// Kubernetes explains: kubectl explain pod.spec has them, and they are three quarters of the template's schema. It also
// returns the defaults of the spec.
func complete(content []byte) (crds, defaults []byte, err error) {
	var crd schema
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return nil, nil, fmt.Errorf("reading the definition: %w", err)
	}
	spec, _ := crd["spec"].(schema)
	versions, _ := spec["versions"].([]any)
	if len(versions) != 1 {
		return nil, nil, fmt.Errorf("the definition has %d versions", len(versions))
	}
	version, _ := versions[0].(schema)
	fields, err := find(version, "schema.openAPIV3Schema.properties.spec.properties")
	if err != nil {
		return nil, nil, err
	}
	template, _ := fields["template"].(schema)
	inner, _ := template["properties"].(schema)
	for _, field := range inner {
		silence(field)
	}
	var errs []error
	for _, rule := range v1alpha1.TemplateRules() {
		errs = append(errs, apply(template, rule))
	}
	for field, most := range bounds() {
		s, _, err := fieldOf(template, field)
		if errs = append(errs, err); err == nil {
			s["maxItems"] = most
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	crds, err = yaml.Marshal(crd)
	if err != nil {
		return nil, nil, fmt.Errorf("writing the definition: %w", err)
	}
	delete(fields, "template") // its defaults are those of Kubernetes
	defaults, err = json.MarshalIndent(defaultsOf(fields), "", "  ")
	if err != nil {
		return nil, nil, fmt.Errorf("writing the defaults: %w", err)
	}
	return append([]byte("---\n"), crds...), append(defaults, '\n'), nil
}

// node is a field with a default, or with fields that have one.
type node struct {
	Default any             `json:"default,omitempty"`
	Fields  map[string]node `json:"fields,omitempty"`
}

// defaultsOf returns the fields of a schema that have defaults.
func defaultsOf(properties schema) map[string]node {
	all := map[string]node{}
	for name, s := range properties {
		s, _ := s.(schema)
		inner, _ := s["properties"].(schema)
		if n := (node{s["default"], defaultsOf(inner)}); n.Default != nil || len(n.Fields) > 0 {
			all[name] = n
		}
	}
	return all
}

// bounds are the longest lists. The API server estimates the cost of a rule by the length of the lists around it, and
// refuses a definition whose rules could cost too much.
func bounds() map[string]int {
	all := map[string]int{
		"spec.containers": 16, "spec.initContainers": 16, "spec.volumes": 64, "spec.volumes[].projected.sources": 32,
		"spec.tolerations": 32,
	}
	for _, at := range []string{"spec.containers[].", "spec.initContainers[]."} {
		all[at+"ports"], all[at+"volumeMounts"], all[at+"env"] = 32, 128, 256
	}
	return all
}

// silence removes the descriptions of a schema and of the schemas in it.
func silence(node any) {
	switch node := node.(type) {
	case schema:
		if text, is := node["description"].(string); is && text != "" {
			delete(node, "description")
		}
		for _, child := range node {
			silence(child)
		}
	case []any:
		for _, child := range node {
			silence(child)
		}
	}
}

// apply adds a rule to the schema of its field, or removes the field.
func apply(template schema, rule v1alpha1.TemplateRule) error {
	s, siblings, err := fieldOf(template, rule.Field)
	if err != nil {
		return err
	}
	if rule.Fix == "" {
		delete(siblings, rule.Field[strings.LastIndex(rule.Field, ".")+1:])
		return nil
	}
	condition := "false"
	if len(rule.Values) > 0 {
		condition = "!(self in [" + strings.Join(rule.Values, ", ") + "])"
	}
	rules, _ := s["x-kubernetes-validations"].([]any)
	s["x-kubernetes-validations"] = append(rules, schema{"rule": condition, "message": rule.Fix})
	return nil
}

// fieldOf returns the schema of a field, and the properties that it is one of.
func fieldOf(at schema, path string) (s, siblings schema, err error) {
	for _, step := range strings.Split(path, ".") {
		name, list := strings.CutSuffix(step, "[]")
		siblings, _ = at["properties"].(schema)
		next, there := siblings[name].(schema)
		if !there {
			return nil, nil, fmt.Errorf("the template has no field %s", path)
		}
		if at = next; list {
			at, _ = next["items"].(schema)
		}
	}
	return at, siblings, nil
}

// find returns what stands at a path of keys.
func find(at schema, path string) (schema, error) {
	for _, key := range strings.Split(path, ".") {
		next, there := at[key].(schema)
		if !there {
			return nil, fmt.Errorf("the definition has no %s", path)
		}
		at = next
	}
	return at, nil
}
