// Package table writes tables of text for terminals.
package table

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Table is rows of cells, the header first.
type Table struct {
	// Align says of each column whether it is aligned left, l, or right, r.
	// What it does not say is left for the first column and right for others.
	Align string
	rows  [][]string
}

// Add adds a row. Rows may be shorter than others. A cell is shown in one line.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = oneLine.Replace(Printable(cell))
	}
	t.rows = append(t.rows, row)
}

var oneLine = strings.NewReplacer("\n", " ", "\t", " ")

// Printable returns a text of others as a terminal may show it: with spaces for what would move the cursor, change colours or the
// direction of writing. Tabs and ends of lines stay.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return ' '
		}
		return r
	}, s)
}

// Write writes the table with two spaces between columns, or one where two do
// not fit in this many characters. If it is still too wide and the last column
// is aligned left, that is cut. A screen of 0 has room for all.
func (t *Table) Write(w io.Writer, screen int) error {
	widths := t.widths()
	width := 0
	for _, n := range widths {
		width += n
	}
	gap := 2
	if screen > 0 && width+gap*(len(widths)-1) > screen {
		gap = 1
	}
	last := len(widths) - 1
	if over := width + gap*last - screen; screen > 0 && over > 0 && last > 0 && !t.right(last) {
		widths[last] = max(widths[last]-over, 8)
	}
	for _, row := range t.rows {
		var b strings.Builder
		for i, cell := range row {
			if i == last {
				cell = Shorten(cell, widths[i])
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				b.WriteString("  "[:gap])
			}
			if t.right(i) {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) right(column int) bool {
	if column < len(t.Align) {
		return t.Align[column] == 'r'
	}
	return column > 0
}

func (t *Table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// Shorten cuts a text to this many characters, the last of them an ellipsis.
func Shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
