package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A table is rows of cells, the header first. The first column is aligned left,
// the others right.
type table [][]string

func (t *table) add(cells ...string) { *t = append(*t, cells) }

// screen is the width that tables keep to, in characters.
const screen = 100

// write writes the table with two spaces between columns, or one where two do
// not fit on the screen.
func (t table) write(w io.Writer) error {
	var widths []int
	for _, row := range t {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	width := 2 * len(widths)
	for _, n := range widths {
		width += n
	}
	gap := 2
	if width-gap > screen {
		gap = 1
	}
	for _, row := range t {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString(strings.Repeat(" ", gap) + pad + cell)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// shorten cuts a text to so many characters.
func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
