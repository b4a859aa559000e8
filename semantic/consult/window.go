package consult

import (
	"bytes"
	"io"
	"math"
	"strings"

	"github.com/muster-sched/muster/semantic/logtext"
)

// Line is a line of a log, by its number from 0.
type Line struct {
	Index int64
	Text  string
}

// longest is how many bytes of a line a model is shown.
const longest = 500

// Window returns up to n lines of a log in order, in one pass: most of them before line around, some behind it. If around is less than 0, these are the
// last lines, or, if none of these looks like an error, those around the last one that does.
func Window(r io.Reader, around int64, n int) ([]Line, error) {
	r, err := logtext.Plain(r)
	if err != nil {
		return nil, err
	}
	behind := int64(n / 4)
	ring := make([]Line, 0, n)
	last := func() []Line { // the ring in order
		if len(ring) < n {
			return append([]Line(nil), ring...)
		}
		at := 0
		for i := range ring {
			if ring[i].Index < ring[at].Index {
				at = i
			}
		}
		return append(append([]Line(nil), ring[at:]...), ring[:at]...)
	}
	var kept []Line
	due, suspect := int64(-1), int64(-1)
	if around >= 0 {
		due = around + behind
	}
	s := logtext.NewScanner(r)
	for s.Scan() {
		i := s.Index()
		l := Line{i, strings.ToValidUTF8(string(s.Line()[:min(len(s.Line()), longest)]), "")}
		if len(ring) < n {
			ring = append(ring, l)
		} else {
			ring[i%int64(n)] = l
		}
		if around < 0 && suspicious(s.Line()) {
			suspect, due = i, i+behind
		}
		if i == due {
			kept = last()
			if around >= 0 {
				return kept, nil
			}
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	end := last()
	if kept == nil || around >= 0 || suspect >= end[0].Index {
		return end, nil
	}
	return kept, nil
}

// errorWords are in lines that report an error, in the words of any program.
var errorWords = [][]byte{
	[]byte("error"), []byte("fail"), []byte("fatal"), []byte("abort"), []byte("exception"), []byte("panic"), []byte("killed"), []byte("timed out"), []byte("timeout"),
	[]byte("denied"), []byte("cannot"), []byte("can't"), []byte("unable"), []byte("refused"), []byte("corrupt"), []byte("unreachable"), []byte("invalid"), []byte("missing"),
	[]byte("not found"), []byte("no such"), []byte("crash"), []byte("lost"), []byte("broken"), []byte("critical"), []byte("segfault"), []byte("core dumped"), []byte("traceback"),
}

func suspicious(line []byte) bool {
	line = bytes.ToLower(line)
	for _, w := range errorWords {
		if bytes.Contains(line, w) {
			return true
		}
	}
	return false
}

// Last returns the last n lines of a log.
func Last(r io.Reader, n int) ([]Line, error) { return Window(r, math.MaxInt64/2, n) }
