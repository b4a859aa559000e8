package track

import (
	"bytes"
	"slices"
	"strconv"
)

// header is the names of the columns of a table, such as fastai and spaCy print: a line of names, then lines of numbers.
type header struct {
	names [][]byte
	line  []byte // of a row, with its names
}

// mostColumns bounds a table; a longer line of words is prose.
const mostColumns = 24

// read takes a line without a number for the header of a table if it has at least three columns, and one is a step, an epoch or a loss.
func (h *header) read(line []byte) {
	if len(line) > 400 || !bytes.ContainsAny(line, "|\t") && !bytes.Contains(line, []byte("  ")) {
		return
	}
	if t := bytes.TrimLeft(line, " "); len(t) > 1 && t[0] == '#' && t[1] == ' ' { // of a comment
		line = t[1:]
	}
	columns := columnsOf(withoutSource(line))
	if len(columns) < 3 || len(columns) > mostColumns {
		return
	}
	all := meaning(0)
	for i, c := range columns {
		switch string(c) {
		case "#":
			columns[i] = []byte("step")
		case "E":
			columns[i] = []byte("epoch")
		}
		if bytes.ContainsAny(c, ":=,;[]{}") {
			return
		}
		_, m := tokens(columns[i], nil)
		all |= m
	}
	if all&(mStep|mBatch|mEpoch|mLoss) == 0 {
		return
	}
	h.names = h.names[:0]
	for _, c := range columns {
		if string(c) == "total" && all&mLoss == 0 { // of losses that are named by their kinds
			c = []byte("total_loss")
		}
		c = bytes.ReplaceAll(c, []byte(" / "), []byte("/"))
		h.names = append(h.names, bytes.Clone(c))
	}
}

// columnsOf splits a line at bars, at tabs, or else at two spaces or more.
func columnsOf(line []byte) [][]byte {
	switch {
	case bytes.IndexByte(line, '|') >= 0:
		line = bytes.Trim(line, "| \t")
		return trimmed(bytes.Split(line, []byte("|")))
	case bytes.IndexByte(line, '\t') >= 0:
		return trimmed(bytes.Split(bytes.TrimSpace(line), []byte("\t")))
	}
	return trimmed(slices.DeleteFunc(bytes.Split(line, []byte("  ")), func(c []byte) bool { return len(bytes.TrimSpace(c)) == 0 }))
}

// withoutSource returns a line without the file and the line of the program that some loggers put at its end: train.py:604.
func withoutSource(line []byte) []byte {
	n := len(line)
	for n > 0 && digit(line[n-1]) {
		n--
	}
	if n == 0 || n == len(line) || line[n-1] != ':' {
		return line
	}
	if i := bytes.LastIndexByte(line, ' '); i > 0 && bytes.Contains(line[i:], []byte(".py:")) {
		return line[:i]
	}
	return line
}

func trimmed(list [][]byte) [][]byte {
	for i := range list {
		list[i] = bytes.TrimSpace(list[i])
	}
	return list
}

// name returns a row of the table with the name before each of its numbers, as a line that says the same; another line as it is. A row has
// as many values as there are columns: numbers, but for columns whose name means nothing.
func (h *header) name(line []byte) (named []byte, row bool) {
	if len(h.names) == 0 || len(line) > 400 {
		return line, false
	}
	var values [][]byte
	if !bytes.ContainsAny(line, "|\t") {
		values = bytes.Fields(line)
	}
	if len(values) != len(h.names) { // 43.140 ms is one
		values = columnsOf(withoutSource(line))
	}
	if len(values) != len(h.names) {
		return line, false
	}
	inSteps := slices.ContainsFunc(h.names, func(name []byte) bool { return h.means(name, mStep) })
	out := h.line[:0]
	for i, v := range values {
		if len(v) == 0 || string(v) == "-" {
			continue
		}
		name := h.names[i]
		if v[0] == '[' {
			if v = bytes.Trim(v, "[] "); len(v) == 0 {
				continue
			}
		}
		ts, _ := tokens(v, nil)
		switch {
		case len(ts) == 0:
			return line, false
		case len(ts) > 2 && ts[0].kind == word && bytes.IndexByte(v, ':') > 0: // images/sec: 312.5, which says its name itself
			out = append(append(out, v...), ", "...)
			continue
		case len(ts) == 1 && ts[0].kind == clock && h.means(name, mTime):
			if inSteps {
				out = append(append(out, name...), '=')
			} else {
				out = append(out, "epoch took "...)
			}
			out = append(strconv.AppendFloat(out, ts[0].value, 'f', -1, 64), "s, "...)
			continue
		case ts[0].kind != number && !h.means(name, ^meaning(0)): // such as the name of a trial
			continue
		case ts[0].kind != number && !(len(ts) == 1 && ts[0].meaning&mValue != 0):
			return line, false
		}
		out = append(append(append(append(out, name...), '='), v...), ", "...)
	}
	h.line = out
	return out, true
}

// means reports whether a word of the name means one of m.
func (h *header) means(name []byte, m meaning) bool {
	_, all := tokens(name, nil)
	return all&m != 0
}

// isCell reports whether the line is a row of two columns, a name and its value.
func (r *reader) isCell() bool {
	n := len(r.tokens)
	if n < 5 || !r.tokens[0].is('|') || !r.tokens[n-1].is('|') {
		return false
	}
	bars := 0
	for i := range r.tokens {
		if r.tokens[i].is('|') {
			bars++
		}
	}
	return bars == 3
}
