// Package table writes tables of text for terminals.
package table

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A Table is rows of cells, the header first.
type Table struct {
	// Align says of each column whether it is aligned left, l, or right, r.
	// What it does not say is left for the first column and right for others.
	Align string
	rows  [][]string
}

// Add adds a row. Rows may be shorter than others.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

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
