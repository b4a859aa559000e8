package table

import (
	"strings"
	"testing"
)

// A name that others chose does not draw on the terminal, or make a line of its own.
func TestPrintable(t *testing.T) {
	var b strings.Builder
	rows := Table{Align: "ll"}
	rows.Add("JOB", "USER")
	rows.Add("a\x1b[2Jb", "é\u009bx\u202ey\nz")
	if err := rows.Write(&b, 0); err != nil {
		t.Fatal(err)
	}
	if want := "JOB     USER\na [2Jb  é x y z\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
