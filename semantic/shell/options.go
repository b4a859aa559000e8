package shell

import (
	"regexp"
	"strconv"
	"strings"
)

// This file reads the loops by which scripts take their options apart: while [ $# -gt 0 ] with case $1, for arg in "$@" with case $arg, and
// while getopts with case $opt.

var (
	optionLoop = regexp.MustCompile(`(?s)^(?:while\s[^\n]*?\$\{?[#1][^\n]*?|for\s+(\w+)\s+in\s+"?\$\{?@\}?"?\s*|for\s+(\w+)\s*|while\s+getopts\s+["']?([\w:]+)["']?\s+(\w+)[^\n]*?)(?:;\s*|\n\s*)do\b(.*?)\bcase\s+["']?\$\{?(\w+)\}?["']?\s+in\b(.*?)\besac\b(.*?)\bdone\b`)
	assigned   = regexp.MustCompile(`(?:^|[\s;])(?:export\s+)?([A-Za-z_]\w*)=("[^"\n]*"|'[^'\n]*'|[^\s;&|]*)`)
	shifted    = regexp.MustCompile(`\bshift\b[ \t]*(\d*)`)
	afterEqual = regexp.MustCompile(`^\$\{\w+#+(?:\*|-+[\w-]+)=\}$`)
)

// arm is a branch of a case: the patterns, and what it does.
type arm struct {
	patterns []string
	body     string
}

// optionLoop takes the options of the script apart if a loop that does so begins here, and returns whether one does.
func (r *reader) optionLoop() bool {
	rest := r.source[r.at:]
	if !strings.HasPrefix(rest, "while") && !strings.HasPrefix(rest, "for") || r.loops == maxLoops {
		return false
	}
	r.loops++
	m := optionLoop.FindStringSubmatch(rest[:min(len(rest), maxLoop)])
	if m == nil {
		return false
	}
	item, getopts, about := m[1]+m[2], m[3], m[6]
	switch {
	case getopts != "":
		if about != m[4] {
			return false
		}
	case item != "":
		if about != item {
			return false
		}
	case about != "1":
		first := regexp.MustCompile(`\b` + about + `=["']?\$\{?1\}?`) // key="$1"
		if !first.MatchString(m[5]) {
			return false
		}
	}
	arms := armsOf(m[7])
	switch {
	case getopts != "":
		r.letters(getopts, arms)
	default:
		r.options(arms, item != "", shifts(m[5])+shifts(m[8]))
	}
	r.skip(len(m[0]))
	return true
}

// maxLoop bounds how much of a script is searched for the end of a loop, and maxLoops in how many loops.
const (
	maxLoop  = 1 << 15
	maxLoops = 100
)

func armsOf(text string) []arm {
	var all []arm
	for part := range strings.SplitSeq(text, ";;") {
		head, body, ok := strings.Cut(part, ")")
		if !ok {
			continue
		}
		a := arm{body: body}
		for p := range strings.SplitSeq(strings.TrimLeft(strings.TrimSpace(head), "("), "|") {
			a.patterns = append(a.patterns, strings.Trim(strings.TrimSpace(p), `"'`))
		}
		all = append(all, a)
	}
	return all
}

// options has the arms set what the parameters say. Between two of them are as many shifts as the arm has, and always more.
func (r *reader) options(arms []arm, each bool, always int) {
	rest := r.params
	for len(rest) > 0 {
		n := always
		for _, a := range arms {
			if !a.takes(rest[0]) {
				continue
			}
			value := ""
			if len(rest) > 1 {
				value = rest[1]
			}
			r.assign(a.body, rest[0], value)
			n += shifts(a.body)
			break
		}
		if each || n == 0 {
			n = 1
		}
		rest = rest[min(n, len(rest)):]
	}
	if !each {
		r.params = nil
	}
}

// takes reports whether a parameter matches a pattern of the arm other than *.
func (a *arm) takes(param string) bool {
	for _, p := range a.patterns {
		prefix, any := strings.CutSuffix(p, "*")
		if p == param || any && prefix != "" && strings.HasPrefix(param, prefix) {
			return true
		}
	}
	return false
}

// letters does as getopts.
func (r *reader) letters(spec string, arms []arm) {
	for len(r.params) > 0 && len(r.params[0]) > 1 && r.params[0][0] == '-' {
		letter, value := r.params[0][1:2], r.params[0][2:]
		r.params = r.params[1:]
		if i := strings.Index(spec, letter); i >= 0 && strings.HasPrefix(spec[i+1:], ":") && value == "" && len(r.params) > 0 {
			value, r.params = r.params[0], r.params[1:]
		}
		for _, a := range arms {
			if a.takes(letter) {
				r.assign(a.body, "-"+letter, value)
				break
			}
		}
	}
}

// assign sets the variables that an arm sets: from the value behind the option, from that in --option=value, or as it is written.
func (r *reader) assign(body, param, value string) {
	for _, at := range assigned.FindAllStringSubmatchIndex(body, -1) {
		name, v := body[at[2]:at[3]], strings.Trim(body[at[4]:at[5]], `"'`)
		if (v == "$1" || v == "${1}") && shifts(body[:at[0]]) > 0 { // shift; NAME=$1
			v = "$2"
		}
		switch {
		case v == "$2" || v == "${2}" || v == "$OPTARG" || v == "${OPTARG}":
			v = value
		case afterEqual.MatchString(v):
			_, v, _ = strings.Cut(param, "=")
		case v == "$1" || v == "${1}":
			v = param
		}
		if !strings.Contains(v, "$") {
			r.set(name, Var{Value: v, Line: r.line})
		}
	}
}

// shifts counts by how many parameters a text shifts.
func shifts(text string) int {
	n := 0
	for _, m := range shifted.FindAllStringSubmatch(text, -1) {
		by, err := strconv.Atoi(m[1])
		if err != nil {
			by = 1
		}
		n += min(by, 1000)
	}
	return n
}
