package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// output is how a command prints its answer: the flag --output.
type output struct {
	form    string
	allowed []string
}

// The forms of an answer. Wide is a text with more columns.
const (
	formText = "text"
	formWide = "wide"
	formJSON = "json"
	formYAML = "yaml"
)

// flag adds the flag. Further forms are allowed beside text, json and yaml.
func (o *output) flag(c *cobra.Command, further ...string) {
	o.form, o.allowed = formText, append([]string{formText, formJSON, formYAML}, further...)
	c.Flags().VarP(o, "output", "o", either(o.allowed))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.allowed, cobra.ShellCompDirectiveNoFileComp))
}

// either writes alternatives as "a, b or c".
func either(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// String returns the form.
func (o *output) String() string { return o.form }

// Type returns what the flag's help shows as its value.
func (o *output) Type() string { return "FORM" }

// Set sets the form, if it is one of those that the command has.
func (o *output) Set(form string) error {
	if !slices.Contains(o.allowed, form) {
		return fmt.Errorf("write %s", either(o.allowed))
	}
	o.form = form
	return nil
}

// wide reports whether further columns are wanted.
func (o *output) wide() bool { return o.form == formWide }

// data reports whether the answer is for programs.
func (o *output) data() bool { return o.form == formJSON || o.form == formYAML }

// print prints a value for programs, or else calls text.
func (o *output) print(w io.Writer, value any, text func() error) error {
	switch o.form {
	case formJSON:
		return printJSON(w, value)
	case formYAML:
		document, err := yaml.Marshal(value)
		if err == nil {
			_, err = w.Write(document)
		}
		return err
	}
	return text()
}

// spelled returns the answer of an agent or a journal with its fields spelled as those of the API are: cpuSet for
// CPUSet. Agents of other versions and journals have the names of Go.
func spelled(value any) any {
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return value // which cannot be printed either
	}
	return json.RawMessage(fieldNames.ReplaceAllFunc(text, func(name []byte) []byte {
		start := bytes.IndexByte(name, '"') + 1
		end := start + 1 // of what becomes lower case: the first letter, or an abbreviation such as CPU or CPUs
		for end < len(name) && unicode.IsUpper(rune(name[end])) {
			end++
		}
		plural := string(name[end:]) == `s":`
		if end > start+1 && unicode.IsLower(rune(name[end])) && !plural {
			end-- // the last letter begins the next word
		}
		copy(name[start:], bytes.ToLower(name[start:end]))
		return name
	}))
}

// fieldNames matches names at the beginnings of lines. No text in JSON has a line break.
var fieldNames = regexp.MustCompile(`(?m)^ *"[A-Z][A-Za-z0-9]*":`)

// table prints rows in columns below their heads. cells returns the cells of a row with tabs between them.
func table[T any](out io.Writer, heads string, rows []T, cells func(*T) string) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, heads)
	for i := range rows {
		fmt.Fprintln(t, cells(&rows[i]))
	}
	return t.Flush()
}

// printEach writes each element of a list by a format.
func printEach[T any](out io.Writer, format string, all []T) {
	for _, v := range all {
		fmt.Fprintf(out, format, v)
	}
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
