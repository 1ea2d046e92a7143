package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	yaml3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// rename is one change of the API of policies: a field or a value that was renamed.
type rename struct {
	field string // path below spec; [] stands for each entry of a list
	to    string // the field's new name; empty: it keeps its name
	value string // only this value is renamed; empty: the field is
	as    string // its new name
	hand  string // what to write instead, where the change is not in one place; empty: the command writes it
}

// renames returns the table of renames. docs/upgrade.md has the same table.
func renames() []rename {
	all := []rename{
		{field: "windows[].preDrain", to: "drainBefore"},
		{field: "mode", value: "Off", as: "Disabled"},
		{field: "cpu.suppressBy", to: "suppression"},
		{field: "cpu.floor", to: "minBatch"},
		{field: "cpu.idle", hand: "batchClass: Idle, or nothing where it was false"},
		{field: "cpu.schedIdle", hand: "batchClass: Idle, or nothing where it was false"},
		{field: "cpu.groupIdentity", hand: "batchClass: GroupIdentity, or nothing where it was false"},
		{field: "protect.cycles", hand: "nothing; protect.services is for services that need caches"},
		{field: "protect.culprit", to: "interference"},
		{field: "protect.evict", to: "eviction"},
		{field: "batch", to: "batchPods"},
		{field: "pods", to: "podDefaults"},
		{field: "compat", hand: "nothing, and set the chart's value resourceNames: Koordinator where it was true"},
	}
	var values []rename
	for field, words := range map[string]string{
		"cpu.method": "Predicted Realtime Static", "memory.method": "Predicted Realtime Static",
		"weight.scope": "Node Class", "weight.quota": "Kubelet Unlimited",
		"batch[].tier": "Batch Mid", "pods[].cpuManager": "None Share Exclusive",
		"pods[].cpuPlacement": "Packed Spread",
	} {
		for word := range strings.FieldsSeq(words) {
			values = append(values, rename{field: field, value: strings.ToLower(word), as: word})
		}
	}
	for _, was := range []string{"CPUSet", "Quota", "Both"} {
		values = append(values, rename{field: "cpu.suppression", value: was, as: "Arithmetic"},
			rename{field: "cpu.suppressBy", value: strings.ToLower(was), as: "Arithmetic"})
	}
	values = append(values, rename{field: "cpu.suppressBy", value: "none", as: "None"},
		rename{field: "pods[].cpuPlacement", value: "pcpu-only", as: "PhysicalCores"})
	slices.SortFunc(values, func(a, b rename) int { return strings.Compare(a.field+a.value, b.field+b.value) })
	return append(values, all...)
}

func migrateCommand() *cobra.Command {
	var cluster reach
	var write bool
	var save string
	c := &cobra.Command{
		Use:   "migrate [FILE...]",
		Short: "Rewrite policies whose fields were renamed",
		Long: `Find fields and values in policies that have other names in this version, and show what they are now. Nothing
is changed without --write, which rewrites the files in place: only these words, with comments and the order kept.
A file can also have values of the chart, whose field "policy" is a policy's spec.

Without files, it reads the policies of the cluster. Do that before the custom resource definitions are upgraded,
because the API server forgets fields that they do not know; --save keeps the rewritten policies, to be applied
afterwards, but not those of the chart, which Helm writes. docs/upgrade.md has the table of renames.

The exit code is 1 if something must still be changed.`,
		Example: `  waterline migrate policies/*.yaml
  waterline migrate policies/*.yaml --write
  waterline migrate --save policies.yaml`,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 && write || len(files) > 0 && save != "" {
				return usageError(errors.New("--write goes with files, and --save without"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, files []string) error {
			m := migration{out: c.OutOrStdout()}
			if len(files) == 0 {
				return m.cluster(c.Context(), &cluster, save)
			}
			for _, file := range files {
				if err := m.file(file, write); err != nil {
					return err
				}
			}
			return m.result(write)
		},
	}
	cluster.flags(c)
	c.Flags().BoolVar(&write, "write", false, "rewrite the files")
	c.Flags().StringVar(&save, "save", "", "without files: `FILE` for the policies of the cluster, rewritten")
	return c
}

// migration rewrites policies.
type migration struct {
	out             io.Writer
	changed, byHand int
}

func (m *migration) result(written bool) error {
	switch {
	case m.byHand > 0:
		return fmt.Errorf("%s must be changed by hand", count(m.byHand, "field"))
	case m.changed > 0 && !written:
		return fmt.Errorf("%s must be changed; --write does it", count(m.changed, "line"))
	case m.changed == 0:
		fmt.Fprintln(m.out, "nothing has another name now")
	}
	return nil
}

func (m *migration) file(file string, write bool) error {
	before, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading policies: %w", err)
	}
	after, err := m.document(file, before)
	if err != nil || !write || bytes.Equal(before, after) {
		return err
	}
	info, err := os.Stat(file)
	if err == nil {
		err = os.WriteFile(file, after, info.Mode())
	}
	if err != nil {
		return fmt.Errorf("writing policies: %w", err)
	}
	return nil
}

// cluster rewrites the policies of the cluster into a file.
func (m *migration) cluster(ctx context.Context, r *reach, save string) error {
	a, err := r.connect()
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name   string            `json:"name"`
				Labels map[string]string `json:"labels,omitempty"`
			} `json:"metadata"`
			Spec map[string]any `json:"spec"`
		} `json:"items"`
	}
	request := a.core.Get().AbsPath("/apis/" + v1alpha1.GroupVersion + "/colocationpolicies")
	if err := getJSON(ctx, request, &list); err != nil {
		return fmt.Errorf("listing policies: %w", err)
	}
	var all []byte
	for _, p := range list.Items {
		document, err := yaml.Marshal(map[string]any{
			"apiVersion": v1alpha1.GroupVersion, "kind": "ColocationPolicy", "metadata": p.Metadata, "spec": p.Spec,
		})
		if err != nil {
			return fmt.Errorf("writing policy %s: %w", p.Metadata.Name, err)
		}
		after, err := m.document("policy "+p.Metadata.Name, document)
		if err != nil {
			return err
		}
		if p.Metadata.Labels["app.kubernetes.io/managed-by"] == "Helm" {
			continue // Helm writes it anew from the chart's values, and refuses what another writer applied
		}
		all = append(append(all, "---\n"...), after...)
	}
	if save == "" {
		return m.result(false)
	}
	if err := os.WriteFile(save, all, 0o600); err != nil {
		return fmt.Errorf("saving policies: %w", err)
	}
	return m.result(true)
}

// document rewrites the policies in a text of one or more YAML documents, and shows each line that changes.
func (m *migration) document(name string, text []byte) ([]byte, error) {
	lines := strings.SplitAfter(string(text), "\n")
	original := slices.Clone(lines)
	for decoder := yaml3.NewDecoder(bytes.NewReader(text)); ; {
		var document yaml3.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		specs, err := policySpecs(&document)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, spec := range specs {
			if err := m.policy(name, spec, lines); err != nil {
				return nil, err
			}
		}
	}
	for i := range lines {
		if lines[i] != original[i] {
			m.changed++
			fmt.Fprintf(m.out, "%s:%d\n- %s\n+ %s\n", name, i+1, strings.TrimSuffix(original[i], "\n"),
				strings.TrimSuffix(lines[i], "\n"))
		}
	}
	return []byte(strings.Join(lines, "")), nil
}

// policySpecs returns the specs of the policies in an object: of the object itself, of the items of a list, such as
// "kubectl get -o yaml" prints, or in values of the chart.
func policySpecs(object *yaml3.Node) ([]*yaml3.Node, error) {
	var of struct {
		APIVersion string       `yaml:"apiVersion"`
		Kind       string       `yaml:"kind"`
		Spec       yaml3.Node   `yaml:"spec"`
		Items      []yaml3.Node `yaml:"items"`
		Policy     yaml3.Node   `yaml:"policy"` // of values
	}
	if object.Kind == yaml3.DocumentNode && len(object.Content) > 0 {
		object = object.Content[0]
	}
	if object.Kind != yaml3.MappingNode {
		return nil, nil
	}
	if err := object.Decode(&of); err != nil {
		return nil, err
	}
	switch {
	case of.Kind == "ColocationPolicy" && of.APIVersion == v1alpha1.GroupVersion:
		return []*yaml3.Node{&of.Spec}, nil
	case of.Kind == "" && of.APIVersion == "":
		return []*yaml3.Node{&of.Policy}, nil
	}
	if !strings.HasSuffix(of.Kind, "List") {
		return nil, nil
	}
	var all []*yaml3.Node
	for i := range of.Items {
		specs, err := policySpecs(&of.Items[i])
		if err != nil {
			return nil, err
		}
		all = append(all, specs...)
	}
	return all, nil
}

// word is a place of a text in which one word becomes another.
type word struct {
	node *yaml3.Node
	as   string
}

// policy rewrites the lines of one policy.
func (m *migration) policy(name string, spec *yaml3.Node, lines []string) error {
	var words []word
	for _, r := range renames() {
		for _, at := range find(spec, r.field) {
			switch {
			case r.hand != "":
				m.byHand++
				fmt.Fprintf(m.out, "%s:%d\n  %s: write %s\n", name, at.key.Line, at.key.Value, r.hand)
			case r.value == "":
				words = append(words, word{at.key, r.to})
			case at.value.Value == r.value:
				words = append(words, word{at.value, r.as})
			}
		}
	}
	// From the end of a line to its beginning, so that places before keep their columns.
	slices.SortFunc(words, func(a, b word) int { return b.node.Column - a.node.Column })
	for _, w := range words {
		line, at := lines[w.node.Line-1], w.node.Column-1
		if w.node.Style&(yaml3.DoubleQuotedStyle|yaml3.SingleQuotedStyle) != 0 {
			at++
		}
		runes := []rune(line)
		if at > len(runes) || !strings.HasPrefix(string(runes[at:]), w.node.Value) {
			return fmt.Errorf("%s:%d: %q is written in a way that this command cannot change; write %q", name, w.node.Line,
				w.node.Value, w.as)
		}
		lines[w.node.Line-1] = string(runes[:at]) + w.as + strings.TrimPrefix(string(runes[at:]), w.node.Value)
	}
	return nil
}

// entry is a field with its value.
type entry struct{ key, value *yaml3.Node }

// find returns the fields at a path below a node.
func find(node *yaml3.Node, path string) []entry {
	name, rest, deeper := strings.Cut(path, ".")
	name, each := strings.CutSuffix(name, "[]")
	if node.Kind != yaml3.MappingNode {
		return nil
	}
	var all []entry
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Value != name:
		case !deeper:
			all = append(all, entry{key, value})
		case !each:
			all = append(all, find(value, rest)...)
		case value.Kind == yaml3.SequenceNode:
			for _, item := range value.Content {
				all = append(all, find(item, rest)...)
			}
		}
	}
	return all
}
