package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
)

// Cover is how Waterline covers a key of another system.
type Cover string

// The covers.
const (
	Equal   Cover = "equal"   // a field of a policy has the same effect
	Nearest Cover = "nearest" // a field comes near, and the note says what differs
	None    Cover = "none"    // no field; the note says why, or what to use
)

// Key is one key of another system, or several that are covered alike.
type Key struct {
	// Where is the document that has the key: a key of a ConfigMap, a kind, or the flags of a program.
	Where string
	// Names are the paths of the keys within it. A * stands for any name, and [] for the items of a list.
	Names []string
	Cover Cover
	// To is the field of a policy; "" for none.
	To string
	// Note says what differs or what to use instead; "" with [Equal].
	Note string

	value rule
}

type rule struct {
	what  string // how errors name it
	check func(value any) bool
}

var (
	anything = rule{"anything", func(any) bool { return true }}
	boolean  = rule{"true or false", func(v any) bool { _, ok := v.(bool); return ok }}
	words    = rule{"a text", func(v any) bool { _, ok := v.(string); return ok }}
	selector = rule{"a selector, such as {matchLabels: {pool: web}}", func(v any) bool {
		_, err := labelSelector(v)
		return err == nil
	}}
	percent  = number(0, 100)
	positive = number(0, math.MaxInt64)
)

func number(low, high float64) rule {
	what := fmt.Sprintf("a number from %g to %g", low, high)
	if high == math.MaxInt64 {
		what = fmt.Sprintf("a number, at least %g", low)
	}
	return rule{what, func(v any) bool { n, ok := v.(float64); return ok && n >= low && n <= high }}
}

func oneOf(all ...string) rule {
	return rule{strings.Join(all, " or "), func(v any) bool { return slices.Contains(all, text(v)) }}
}

// opaque are the names of keys whose values are not looked into.
var opaque = []string{"nodeSelector", "namespaceSelector", "selector", "labelSelector", "httpGet", "patch",
	"extensions", "labels", "annotations", "labelKeysMapping", "annotationKeysMapping", "labelSuffixes", "schedFeatures"}

// leaf is one key of an input with its value.
type leaf struct {
	path  string // names joined by /
	value any
}

// leaves returns the keys of a tree that have values, in order.
func leaves(tree any) []leaf {
	var all []leaf
	var walk func(at string, value any)
	walk = func(at string, value any) {
		switch v := value.(type) {
		case map[string]any:
			if at == "" || !slices.Contains(opaque, path.Base(at)) {
				for _, name := range slices.Sorted(maps.Keys(v)) {
					walk(path.Join(at, strings.ReplaceAll(name, "/", "_")), v[name])
				}
				return
			}
		case []any:
			if slices.ContainsFunc(v, func(item any) bool { _, isObject := item.(map[string]any); return isObject }) {
				for _, item := range v {
					walk(at+"[]", item)
				}
				return
			}
		}
		all = append(all, leaf{at, value})
	}
	walk("", tree)
	return all
}

// find returns the key of a table that a path names, or nil.
func find(table []Key, where, at string) *Key {
	for i := range table {
		if table[i].Where == where && slices.ContainsFunc(table[i].Names, func(name string) bool {
			// Brackets mean something else to Match.
			ok, err := path.Match(strings.ReplaceAll(strings.ReplaceAll(name, ".", "/"), "[]", "@"),
				strings.ReplaceAll(at, "[]", "@"))
			return name == at || err == nil && ok
		}) {
			return &table[i]
		}
	}
	return nil
}

// Note is a comment about something that has no equal.
type Note struct {
	Cover Cover
	Keys  []string // with their values, as users write them
	Text  string
}

// notes collects the notes of a policy and the errors of an input.
type notes struct {
	table []Key
	all   []Note
	errs  []error
}

// add adds a note. Notes with the same text become one.
func (n *notes) add(cover Cover, key, sentence string) {
	i := slices.IndexFunc(n.all, func(n Note) bool { return n.Cover == cover && n.Text == sentence })
	if i < 0 {
		i, n.all = len(n.all), append(n.all, Note{Cover: cover, Text: sentence})
	}
	n.all[i].Keys = appendNew(n.all[i].Keys, key)
}

// take checks the keys of a part of an input, and notes those without an equal. From names the input in errors.
func (n *notes) take(from, where string, tree map[string]any) {
	for _, l := range leaves(tree) {
		name := where + " " + strings.ReplaceAll(l.path, "/", ".") // as users write it
		key := find(n.table, where, l.path)
		switch {
		case key == nil:
			n.add(None, name+": "+excerpt(l.value), "No such key is known. Check its spelling; if it is right, ask for it.")
		case l.value != nil && !key.value.check(l.value):
			n.bad(from, name, l.value, key.value.what)
		case key.Cover != Equal:
			n.add(key.Cover, name+": "+excerpt(l.value), key.sentence())
		}
	}
}

// check checks the values of a part of an input, whose notes are taken when a policy uses it.
func (n *notes) check(from, where string, tree map[string]any) {
	dry := notes{table: n.table}
	dry.take(from, where, tree)
	n.errs = append(n.errs, dry.errs...)
}

func (n *notes) bad(from, name string, value any, want string) {
	n.errs = append(n.errs, fmt.Errorf("%s: %s: %s cannot be used: write %s", from, name, excerpt(value), want))
}

// sentence is the note about the key, with the field that comes near.
func (k *Key) sentence() string {
	if k.To == "" {
		return k.Note
	}
	return "To " + k.To + ". " + k.Note
}

// excerpt writes a value in few characters.
func excerpt(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		return "?"
	}
	if s := []rune(string(encoded)); len(s) > 60 {
		return string(s[:57]) + "..."
	}
	return string(encoded)
}
