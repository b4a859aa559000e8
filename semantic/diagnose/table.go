package diagnose

import (
	"bytes"
	"slices"
)

// table is a list of jobs, pods or trials, with a column that says what became of each. Where it lists several of them, it is not about this job alone.
type table struct {
	columns [][2]int // the first byte of each title, and the one behind it
	whole   string   // the first word of the first row
	name    string   // the part of it that the steps of a job share
	several bool     // rows are of several jobs, or of one under several settings
}

// stateColumns are titles, in lower case.
var stateColumns = []string{"state", "status", "st", "result", "outcome"}

// rows notes whether a line is the head or a row of a table.
func (s *scan) rows(line []byte) {
	if s.found.has(markState) {
		if t := tableHead(line); t != nil {
			s.table = t
			return
		}
	}
	if s.table != nil && !s.table.row(line) {
		s.table = nil
	}
}

// fields returns the places of the words of a line; bars between columns are no words.
func fields(line []byte) (all [][2]int) {
	for i := 0; i < len(line); {
		if line[i] == ' ' || line[i] == '|' || line[i] == '\t' {
			i++
			continue
		}
		end := i
		for end < len(line) && line[end] != ' ' && line[end] != '|' && line[end] != '\t' {
			end++
		}
		all = append(all, [2]int{i, end})
		i = end
	}
	return all
}

// tableHead returns the table that a line of titles begins, or nil.
func tableHead(line []byte) *table {
	columns, state := fields(line), false
	if len(columns) < 3 {
		return nil
	}
	for _, c := range columns {
		title := line[c[0]:c[1]]
		if bytes.ContainsAny(title, ".:=,;<>'\"") || bytes.ContainsAny(title, "0123456789") {
			return nil
		}
		state = state || slices.Contains(stateColumns, string(bytes.ToLower(title)))
	}
	if !state || !bytes.Contains(bytes.TrimSpace(line), []byte("  ")) && bytes.IndexByte(line, '|') < 0 {
		return nil
	}
	return &table{columns: columns}
}

// row says whether a line is a row of the table: most of its words stand under a title, at its left or its right end.
func (t *table) row(line []byte) bool {
	if len(bytes.Trim(line, "-=+| ")) == 0 {
		return len(line) > 0
	}
	words, under := fields(line), 0
	for _, c := range t.columns {
		if slices.ContainsFunc(words, func(w [2]int) bool { return w[0] == c[0] || w[1] == c[1] }) {
			under++
		}
	}
	if under < 3 || under*3 < len(t.columns)*2 {
		return false
	}
	whole := line[words[0][0]:words[0][1]]
	name, _, _ := bytes.Cut(whole, []byte(".")) // "811.batch" is a step of 811
	if t.whole == "" {
		t.whole, t.name = string(whole), string(name)
		return true
	}
	t.several = t.several || string(name) != t.name || string(whole) == t.whole
	return true
}

// isOfOthers says whether an event is only what a table says of one job among others. What a table says of the parts of a node counts.
func (t *table) isOfOthers(e *event) bool {
	if t == nil || !t.several || e.traceback {
		return false
	}
	return e.sig.Class != Infrastructure || e.sig.Elsewhere || e.sig.Component == "memory_host"
}

// diff says how far a comparison of two texts has come: its lines are text, not the job's.
type diff int

const (
	noDiff  diff = iota
	oldName      // the last line may have named the old text
	inside
)

// inDiff says whether a line is of a comparison as diff and git print it, behind "--- old" and "+++ new".
func (s *scan) inDiff(line []byte) bool {
	switch {
	case s.diff == oldName && bytes.HasPrefix(line, []byte("+++ ")):
		s.diff = inside
	case bytes.HasPrefix(line, []byte("--- ")):
		s.diff = oldName
		return false
	case s.diff == inside && len(line) > 0 && bytes.IndexByte([]byte("+-@ \\"), line[0]) >= 0:
	default:
		s.diff = noDiff
	}
	return s.diff == inside
}
