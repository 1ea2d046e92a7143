package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/docs"
)

// meanings are the meanings of words, such as reason codes.
type meanings map[string]docs.Meaning

// reasons are the meanings of all reason codes and operands.
func reasons() meanings { return docs.Meanings(docs.Reasons) }

// said matches a word that may be a reason code, with the operands behind it.
var said = regexp.MustCompile(`\b([A-Z][A-Za-z]+)\b((?: [a-z]+=[^\s;,]+)*)`)

// operandName matches the name of an operand.
var operandName = regexp.MustCompile(`\b([a-z]+)=`)

// note is a reason in an explanation.
type note struct {
	code     string
	operands []string // that neither its own row explains nor an earlier note
}

// notes returns the codes in a text in the order in which they appear first.
func (m meanings) notes(text string) []note {
	var all []note
	for _, s := range said.FindAllStringSubmatch(text, -1) {
		about, known := m[s[1]]
		if !known {
			continue
		}
		i := slices.IndexFunc(all, func(n note) bool { return n.code == s[1] })
		if i < 0 {
			i, all = len(all), append(all, note{code: s[1]})
		}
		for _, o := range operandName.FindAllStringSubmatch(s[2], -1) {
			named := func(n note) bool { return slices.Contains(n.operands, o[1]) }
			if !strings.Contains(about.Row, "`"+o[1]+"`") && !slices.ContainsFunc(all, named) {
				all[i].operands = append(all[i].operands, o[1])
			}
		}
	}
	return all
}

// width is how wide a text is that is not in columns.
const width = 100

// explain writes below a text what the codes and operands in it mean, and what to do.
func (m meanings) explain(out io.Writer, text string) {
	all := m.notes(text)
	if len(all) == 0 {
		return
	}
	fmt.Fprint(out, "\nIn other words\n")
	for _, n := range all {
		fmt.Fprint(out, wrap("  "+n.code+": ", "    ", m[n.code].Text))
		for _, o := range n.operands {
			if about, known := m[o]; known {
				fmt.Fprint(out, wrap("    "+o+": ", "      ", about.Text))
			}
		}
		if fix := m[n.code].Fix; fix != "" {
			fmt.Fprint(out, wrap("    what to do: ", "      ", fix))
		}
	}
}

// wrap breaks a text into lines. The first one begins with head, the others with indent.
func wrap(head, indent, text string) string {
	var b strings.Builder
	line := head
	for i, w := range strings.Fields(text) {
		switch {
		case i == 0:
			line += w
		case len(line)+1+len(w) > width:
			b.WriteString(line + "\n")
			line = indent + w
		default:
			line += " " + w
		}
	}
	return b.String() + line + "\n"
}
