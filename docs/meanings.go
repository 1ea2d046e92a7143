package docs

import (
	"regexp"
	"strings"
)

// Meaning is what a document says about a word, such as a reason code.
type Meaning struct {
	Text string // what it means
	Fix  string // what to do; "": nothing
	Row  string // the row of its table, as the document has it
}

var (
	word   = regexp.MustCompile("`(\\w+)`")
	linked = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// Meanings reads the tables of a document whose columns say what a word means, what to look at, and what to do. The
// words stand in the first column.
func Meanings(document string) map[string]Meaning {
	all := map[string]Meaning{}
	var header []string
	for line := range strings.Lines(document) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			header = nil
			continue
		case header == nil:
			header = cells
			continue
		}
		m := Meaning{Row: line}
		for i, cell := range cells {
			switch {
			case i >= len(header):
			case strings.TrimSpace(header[i]) == "meaning":
				m.Text = plain(cell)
			case strings.TrimSpace(header[i]) == "look at":
				m.Text = "look at " + plain(cell)
			case strings.TrimSpace(header[i]) == "what to do":
				m.Fix = plain(cell)
			}
		}
		for _, w := range word.FindAllStringSubmatch(cells[0], -1) {
			if m.Text != "" {
				all[w[1]] = m
			}
		}
	}
	return all
}

// plain takes Markdown's marks out of a text.
func plain(markdown string) string {
	text := linked.ReplaceAllString(markdown, "$1")
	return strings.NewReplacer("`", "", `\|`, "|", "**", "").Replace(strings.TrimSpace(text))
}
