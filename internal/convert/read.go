package convert

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Document is an object of Kubernetes, as it was read.
type Document struct {
	From   string // where it was read: a file and the number of the document in it
	Object map[string]any
}

// Kind returns the kind of the object.
func (d *Document) Kind() string { return text(d.Object["kind"]) }

// Name returns the name of the object.
func (d *Document) Name() string { return text(at(d.Object, "metadata", "name")) }

// String names the document in errors.
func (d *Document) String() string { return fmt.Sprintf("%s, %s %s", d.From, d.Kind(), d.Name()) }

// Read reads a file of YAML or JSON documents. A list, such as "kubectl get -o yaml" prints, counts as its items. From
// names the file in errors.
func Read(from string, content []byte) ([]Document, error) {
	var all []Document
	var errs []error
	documents, n := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))), 0
	for {
		part, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF):
			return all, errors.Join(errs...)
		case err == nil && len(bytes.TrimSpace(part)) == 0:
			continue
		}
		n++
		where := fmt.Sprintf("%s, document %d", from, n)
		var object any
		if err == nil {
			err = yaml.Unmarshal(part, &object)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w; write YAML or JSON", where, err))
			continue
		}
		switch o := object.(type) {
		case nil: // nothing but comments
		case map[string]any:
			found := []any{o}
			if items, isList := o["items"].([]any); isList && strings.HasSuffix(text(o["kind"]), "List") {
				found = items
			}
			for _, item := range found {
				one, isObject := item.(map[string]any)
				if !isObject || text(one["kind"]) == "" {
					errs = append(errs, fmt.Errorf("%s: no kind; write an object of Kubernetes, as \"kubectl get -o yaml\" prints it",
						where))
					continue
				}
				all = append(all, Document{From: where, Object: one})
			}
		default:
			errs = append(errs, fmt.Errorf("%s: %.40q is no object; write an object of Kubernetes, "+
				"as \"kubectl get -o yaml\" prints it", where, strings.TrimSpace(string(part))))
		}
	}
}

// readJSON reads the JSON text of a ConfigMap's key. The error has the line at which the text is broken.
func readJSON(content string) (map[string]any, error) {
	var object map[string]any
	err := json.Unmarshal([]byte(content), &object)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		before := content[:min(int(syntax.Offset), len(content))]
		lines := strings.Split(before, "\n")
		return nil, fmt.Errorf("%w in line %d, at %q; write JSON: no comma after the last item, and one between two",
			err, len(lines), strings.TrimSpace(lines[len(lines)-1]))
	}
	if err != nil {
		return nil, fmt.Errorf("%w; write a JSON object", err)
	}
	return object, nil
}

// at returns what stands at a path of a tree, nil for nothing.
func at(tree any, path ...string) any {
	for _, name := range path {
		object, isObject := tree.(map[string]any)
		if !isObject {
			return nil
		}
		tree = object[name]
	}
	return tree
}

// text returns a value that is a text, else "".
func text(value any) string {
	s, _ := value.(string)
	return s
}

// list returns the items of a list that are objects.
func list(value any) []map[string]any {
	items, _ := value.([]any)
	var all []map[string]any
	for _, item := range items {
		if object, isObject := item.(map[string]any); isObject {
			all = append(all, object)
		}
	}
	return all
}
