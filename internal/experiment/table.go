package experiment

import (
	"strings"
	"unicode/utf8"
)

// Table is a result in rows. The first column is text, the others are numbers.
type Table struct {
	Head []string
	Rows [][]string
}

// String lays the table out for a terminal: the first column to the left, the others to the right.
func (t Table) String() string {
	widths := make([]int, len(t.Head))
	lines := append([][]string{t.Head}, t.Rows...)
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, cells := range lines {
		for i, cell := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case i == 0 && len(cells) == 1:
				b.WriteString(cell)
			case i == 0:
				b.WriteString(cell + pad)
			default:
				b.WriteString("  " + pad + cell)
			}
		}
		b.WriteByte('\n')
		if n == 0 {
			for i, w := range widths {
				if i > 0 {
					b.WriteString("  ")
				}
				b.WriteString(strings.Repeat("─", w))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
