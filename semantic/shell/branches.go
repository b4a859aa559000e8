package shell

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// This file decides which branches of an if a script takes, where the values that it compares are known. Where they are not, all branches are read, and what the first
// sets counts.

// truth is whether a condition holds, as far as that is known.
type truth int8

const (
	maybe truth = iota
	yes
	no
)

// branch is the branch of an if that is being read.
type branch struct {
	testing bool  // the condition is not complete yet
	holds   truth // the condition so far
	tests   int   // commands of it
	taken   bool  // a branch before this one is taken
	dead    bool  // this one is not
	other   bool  // one before it may be taken as well
	decided bool  // the condition decided that it is
}

// keyword follows the words of an if.
func (r *reader) keyword(w string) {
	if w == "if" {
		r.branches = append(r.branches, branch{testing: true})
		return
	}
	if len(r.branches) == 0 {
		return
	}
	b := &r.branches[len(r.branches)-1]
	switch w {
	case "then":
		b.testing = false
		b.dead = b.dead || !r.all && b.holds == no
		b.decided = !r.all && b.holds == yes
	case "elif", "else":
		b.taken = b.taken || b.decided
		b.other = b.other || !b.dead && !b.decided
		b.dead, b.decided, b.holds, b.tests, b.testing = b.taken, false, maybe, 0, w == "elif"
	case "fi":
		r.branches = r.branches[:len(r.branches)-1]
	}
}

// skipped is whether what is being read is in a branch that is not taken.
func (r *reader) skipped() bool {
	return slices.ContainsFunc(r.branches, func(b branch) bool { return b.dead })
}

// alternative is whether what is being read may not be done, as another branch is.
func (r *reader) alternative() bool {
	return slices.ContainsFunc(r.branches, func(b branch) bool { return b.other })
}

// tested adds a command to the condition that is being read, if one is.
func (r *reader) tested(words []string, not bool) {
	if len(r.branches) == 0 {
		return
	}
	b := &r.branches[len(r.branches)-1]
	if !b.testing {
		return
	}
	holds := test(words)
	if not && holds != maybe {
		holds = yes + no - holds
	}
	b.tests++
	switch {
	case b.tests == 1:
		b.holds = holds
	case r.joined == '&' && (b.holds == no || holds == no):
		b.holds = no
	case r.joined == '&' && b.holds == yes:
		b.holds = holds
	case r.joined == '|' && (b.holds == yes || holds == yes):
		b.holds = yes
	case r.joined == '|' && b.holds == no:
		b.holds = holds
	default:
		b.holds = maybe
	}
}

// test returns whether a test of values holds.
func test(words []string) truth {
	words = slices.Clone(words)
	for len(words) > 0 && (words[0] == "[" || words[0] == "[[" || words[0] == "test") {
		words = words[1:]
	}
	for len(words) > 0 && (words[len(words)-1] == "]" || words[len(words)-1] == "]]") {
		words = words[:len(words)-1]
	}
	if slices.ContainsFunc(words, func(w string) bool { return strings.ContainsAny(w, "$*?`") }) {
		return maybe
	}
	is := func(holds bool) truth {
		if holds {
			return yes
		}
		return no
	}
	switch {
	case len(words) == 1 && (words[0] == "true" || words[0] == "false"):
		return is(words[0] == "true")
	case len(words) == 2 && words[0] == "-z":
		return is(words[1] == "")
	case len(words) == 2 && words[0] == "-n":
		return is(words[1] != "")
	case len(words) == 3 && (words[1] == "=" || words[1] == "=="):
		return is(words[0] == words[2])
	case len(words) == 3 && words[1] == "!=":
		return is(words[0] != words[2])
	case len(words) == 3 && strings.HasPrefix(words[1], "-"):
		a, errA := strconv.Atoi(words[0])
		b, errB := strconv.Atoi(words[2])
		if errA != nil || errB != nil {
			return maybe
		}
		switch words[1] {
		case "-eq":
			return is(a == b)
		case "-ne":
			return is(a != b)
		case "-lt":
			return is(a < b)
		case "-le":
			return is(a <= b)
		case "-gt":
			return is(a > b)
		case "-ge":
			return is(a >= b)
		}
	}
	return maybe
}

// sourced sets what the script of Kaldi's recipes sets that takes options apart: --max-epochs 3 is the variable max_epochs.
func (r *reader) sourced(words []string) {
	if len(words) < 2 || words[0] != "." && words[0] != "source" || path.Base(words[1]) != "parse_options.sh" {
		return
	}
	for len(r.params) > 0 && strings.HasPrefix(r.params[0], "--") {
		name, value, has := strings.Cut(r.params[0][2:], "=")
		switch {
		case has:
			r.params = r.params[1:]
		case len(r.params) > 1:
			value, r.params = r.params[1], r.params[2:]
		default:
			return
		}
		name = strings.ReplaceAll(name, "-", "_")
		if n := nameLen(name); n > 0 && n == len(name) {
			r.set(name, Var{Value: value, Line: r.line})
		}
	}
}
