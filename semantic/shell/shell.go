// Package shell reads which commands a shell script would run, with which words, without running anything. Variables that
// the script sets are filled in. What only a run can tell, such as the output of a command, stays in the words as it is
// written: a word with a dollar sign is not known.
package shell

import (
	"slices"
	"strconv"
	"strings"
)

// Command is a simple command of a script.
type Command struct {
	Words []string
	Env   []string // the assignments before its words, as NAME=value
	Line  int
}

// Script is what a script does.
type Script struct {
	Commands []Command
	Comments []Comment
	Vars     map[string]Var // what is set last, or first where branches differ
	Exported []string       // the names of those that what it calls has, too
	Skipped  bool           // a branch was not read, as its condition does not hold

	size int // bytes that were added to words and values so far
}

// Comment is a comment that has a line of its own, such as an #SBATCH directive, with its #.
type Comment struct {
	Text string
	Line int
}

// Var is the value of a variable.
type Var struct {
	Value string
	Words []string // of an array, its words
	Line  int
}

// maxValue bounds the length of a value, so that a=$a$a does not grow without end, and maxSize what all words and values of a script have
// together: what follows is not read.
const (
	maxValue = 1 << 16
	maxSize  = 2 << 20
)

type reader struct {
	source   string
	at, line int
	script   *Script
	params   []string
	dir      string

	words    []string
	env      []string
	word     strings.Builder
	inWord   bool
	began    int  // the line of the first word
	joined   byte // what stands between the last command and the next one
	branches []branch
	all      bool // all branches are read
	heredoc  []string
	depth    int // of defaults in defaults
	loops    int // that were searched for options
}

// Call is how a script is called.
type Call struct {
	Dir    string // where the script asks for its own folder, as by $(dirname "$0")
	Params []string
	Env    []string // NAME=value
	All    bool     // branches are read whose conditions do not hold, too
}

// Parse reads a script that is called with params, and whose own folder is dir.
func Parse(source []byte, dir string, params ...string) *Script {
	return ParseCall(source, Call{Dir: dir, Params: params})
}

// ParseCall reads a script.
func ParseCall(source []byte, c Call) *Script {
	r := &reader{source: string(source), line: 1, script: &Script{Vars: map[string]Var{}}, dir: c.Dir, params: c.Params, all: c.All}
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		r.script.Vars[name] = Var{Value: value}
		r.script.Exported = append(r.script.Exported, name)
	}
	for r.more() {
		r.step()
	}
	r.endCommand()
	return r.script
}

// Split returns the words of one command line.
func Split(line string) []Command {
	return Parse([]byte(line), ".").Commands
}

// more is whether there is more to read.
func (r *reader) more() bool { return r.at < len(r.source) && r.script.size <= maxSize }

func (r *reader) step() {
	c := r.source[r.at]
	rest := r.source[r.at:]
	if (c == 'w' || c == 'f') && !r.inWord && len(r.words) == 0 && r.optionLoop() {
		return
	}
	switch {
	case strings.HasPrefix(rest, "\\\n"), strings.HasPrefix(rest, "\\\r\n"):
		r.at += strings.IndexByte(rest, '\n') + 1
		r.line++
		r.endWord()
	case c == '\\' && len(rest) > 1:
		r.add(rest[1:2])
		r.at += 2
	case c == '\'':
		r.single()
	case c == '"':
		r.double()
	case c == '$':
		r.at++
		r.expand(false)
	case c == '\n':
		r.at++
		if r.endCommand() {
			r.joined = c
		}
		r.line++
		r.skipHeredocs()
	case c == ' ' || c == '\t' || c == '\r':
		r.at++
		r.endWord()
	case c == '#' && !r.inWord:
		r.comment()
	case c == '<' || c == '>':
		r.redirect()
	case c == '(' && r.inWord && strings.HasSuffix(r.word.String(), "=") && (len(r.words) == 0 || declares[r.words[0]]):
		r.array()
	case strings.IndexByte(";&|()", c) >= 0:
		r.at++
		r.endCommand()
		r.joined = c
	case c == '`':
		r.backquoted()
	default:
		r.add(rest[:1])
		r.at++
	}
}

func (r *reader) add(s string) {
	if !r.inWord && len(r.words) == 0 && len(r.env) == 0 {
		r.began = r.line
	}
	r.inWord = true
	r.script.size += 1 + len(s)
	if r.word.Len()+len(s) <= maxValue {
		r.word.WriteString(s)
	}
}

func (r *reader) comment() {
	n := strings.IndexByte(r.source[r.at:], '\n')
	if n < 0 {
		n = len(r.source) - r.at
	}
	if len(r.words) == 0 {
		r.script.Comments = append(r.script.Comments, Comment{strings.TrimSpace(r.source[r.at : r.at+n]), r.line})
	}
	r.at += n
}

func (r *reader) single() {
	n := strings.IndexByte(r.source[r.at+1:], '\'')
	if n < 0 {
		n = len(r.source) - r.at - 1
	}
	s := r.source[r.at+1 : r.at+1+n]
	r.add(s)
	r.line += strings.Count(s, "\n")
	r.at = min(r.at+n+2, len(r.source))
}

func (r *reader) double() {
	r.add("")
	r.at++
	for r.more() {
		c := r.source[r.at]
		switch {
		case c == '"':
			r.at++
			return
		case c == '\\' && r.at+1 < len(r.source):
			if next := r.source[r.at+1]; next == '\n' {
				r.line++
				r.add(" ")
			} else {
				if next != '"' && next != '$' && next != '\\' && next != '`' {
					r.add(`\`)
				}
				r.add(r.source[r.at+1 : r.at+2])
			}
			r.at += 2
		case c == '$':
			r.at++
			r.expand(true)
		case c == '\n':
			r.line++
			r.add(" ")
			r.at++
		default:
			r.add(r.source[r.at : r.at+1])
			r.at++
		}
	}
}

// backquoted keeps the output of a command as unknown.
func (r *reader) backquoted() {
	n := strings.IndexByte(r.source[r.at+1:], '`')
	if n < 0 {
		n = len(r.source) - r.at - 1
	}
	r.line += strings.Count(r.source[r.at+1:r.at+1+n], "\n")
	r.output(r.source[r.at+1 : r.at+1+n])
	r.at = min(r.at+n+2, len(r.source))
}

// output adds what a command prints, as far as that can be known.
func (r *reader) output(command string) {
	own := strings.Contains(command, "$0") || strings.Contains(command, "${0}") || strings.Contains(command, "BASH_SOURCE")
	switch {
	case own && strings.Contains(command, "dirname") && strings.Contains(command, ".."):
		r.add(r.dir + "/..")
	case own && strings.Contains(command, "dirname"):
		r.add(r.dir)
	case strings.TrimSpace(command) == "pwd":
		r.add(".")
	default:
		r.add("$()")
	}
}

// expand reads what follows a dollar sign.
func (r *reader) expand(quoted bool) {
	rest := r.source[r.at:]
	switch {
	case strings.HasPrefix(rest, "(("):
		n := closing(rest, "(", ")") // the outer one
		value, ok := r.arithmetic(rest[2:max(2, n-1)])
		r.skip(min(n+1, len(rest)))
		if ok {
			r.add(strconv.FormatInt(value, 10))
		} else {
			r.add("$(())")
		}
	case strings.HasPrefix(rest, "("):
		n := closing(rest, "(", ")")
		r.output(rest[1:max(1, n)])
		r.skip(min(n+1, len(rest)))
	case strings.HasPrefix(rest, "{"):
		n := closing(rest, "{", "}")
		r.braced(rest[1:max(1, n)], quoted)
		r.skip(min(n+1, len(rest)))
	default:
		n := nameLen(rest)
		if n == 0 && rest != "" && strings.IndexByte("@*#?$!-", rest[0]) >= 0 || rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			n = 1
		}
		r.at += n
		if n == 0 {
			r.add("$")
			return
		}
		r.value(rest[:n], "$"+rest[:n], quoted)
	}
}

func (r *reader) skip(n int) {
	r.line += strings.Count(r.source[r.at:r.at+n], "\n")
	r.at += n
}

// closing returns where the bracket closes that text begins with, or the length of text.
func closing(text, open, shut string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], open):
			depth++
			i += len(open) - 1
		case strings.HasPrefix(text[i:], shut):
			depth--
			if depth == 0 {
				return i
			}
			i += len(shut) - 1
		}
	}
	return len(text)
}

func nameLen(s string) int {
	n := 0
	for n < len(s) && (s[n] == '_' || s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z' || n > 0 && s[n] >= '0' && s[n] <= '9') {
		n++
	}
	return n
}

// braced expands ${...}.
func (r *reader) braced(inner string, quoted bool) {
	unknown := "${" + inner + "}"
	if strings.HasPrefix(inner, "#") || strings.HasPrefix(inner, "!") {
		r.add(unknown)
		return
	}
	n := nameLen(inner)
	if n == 0 && inner != "" {
		n = 1
	}
	name, op := inner[:n], inner[n:]
	switch {
	case op == "" || op == "[@]" || op == "[*]":
		r.value(name, unknown, quoted)
	case strings.HasPrefix(op, ":-"), strings.HasPrefix(op, ":="), strings.HasPrefix(op, "-"), strings.HasPrefix(op, "="):
		if v, ok := r.lookup(name); ok && v.Value != "" {
			r.value(name, unknown, quoted)
			return
		}
		value := r.inside(strings.TrimLeft(op, ":-="))
		if strings.HasPrefix(op, "=") || strings.HasPrefix(op, ":=") {
			r.set(name, Var{Value: value, Line: r.line})
		}
		r.split(value, quoted)
	case (name == "@" || name == "*") && strings.HasPrefix(op, ":") && number(op[1:]) > 0: // ${@:2}
		r.list(r.params[min(number(op[1:])-1, len(r.params)):], quoted)
	default: // ${x%.*} and the like
		r.add(unknown)
	}
}

// number returns a number that text is, or 0.
func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// inside expands the variables in a default, such as ${b} in ${a:-${b}}.
func (r *reader) inside(text string) string {
	if r.depth == 10 {
		return text
	}
	text = strings.Trim(text, `"'`)
	sub := &reader{source: `"` + text + `"`, line: r.line, script: r.script, params: r.params, dir: r.dir, depth: r.depth + 1}
	sub.double()
	return sub.word.String()
}

func (r *reader) lookup(name string) (Var, bool) {
	if i, err := strconv.Atoi(name); err == nil {
		if i >= 1 && i <= len(r.params) {
			return Var{Value: r.params[i-1]}, true
		}
		return Var{}, false
	}
	if name == "@" || name == "*" {
		return Var{Words: r.params, Value: strings.Join(r.params, " ")}, true
	}
	v, ok := r.script.Vars[name]
	return v, ok
}

// value adds the value of a variable to the word, or unknown where it has none.
func (r *reader) value(name, unknown string, quoted bool) {
	v, ok := r.lookup(name)
	switch {
	case !ok:
		r.add(unknown)
	case v.Words != nil:
		r.list(v.Words, quoted)
	default:
		r.split(v.Value, quoted)
	}
}

// list adds words, which are one where they are assigned. Without quotes those with spaces are several.
func (r *reader) list(words []string, quoted bool) {
	if r.assigns() {
		r.add(strings.Join(words, " "))
		return
	}
	for i, w := range words {
		if i > 0 {
			r.endWord()
		}
		if quoted {
			r.add(w)
		} else {
			r.split(w, false)
		}
	}
}

// split adds a value, which is split into words unless it is quoted or assigned.
func (r *reader) split(value string, quoted bool) {
	if quoted || r.assigns() {
		r.add(value)
		return
	}
	for i, field := range strings.Fields(value) {
		if i > 0 {
			r.endWord()
		}
		r.add(field)
	}
}

// assigns is whether the word that is being read is an assignment.
func (r *reader) assigns() bool {
	w := r.word.String()
	n := nameLen(w)
	return n > 0 && n < len(w) && (w[n] == '=' || strings.HasPrefix(w[n:], "+=")) && (len(r.words) == 0 || declares[r.words[0]])
}

var declares = map[string]bool{"export": true, "local": true, "declare": true, "readonly": true, "typeset": true}

func (r *reader) array() {
	target := strings.TrimSuffix(r.word.String(), "=")
	line, declared := r.line, r.words
	r.words = nil
	r.word.Reset()
	r.inWord = false
	r.at++
	for r.more() && r.source[r.at] != ')' {
		switch c := r.source[r.at]; {
		case c == '\n':
			r.at++
			r.line++
			r.endWord()
		case c == '#' && !r.inWord:
			for r.at < len(r.source) && r.source[r.at] != '\n' {
				r.at++
			}
		case strings.IndexByte(";&|(<>", c) >= 0:
			r.add(r.source[r.at : r.at+1])
			r.at++
		default:
			r.step()
		}
	}
	r.at = min(r.at+1, len(r.source))
	r.endWord()
	words := append([]string{}, r.words...)
	r.words = declared
	name, more := strings.CutSuffix(target, "+")
	if more {
		words = append(append([]string{}, r.script.Vars[name].Words...), words...)
	}
	r.set(name, Var{Value: strings.Join(words, " "), Words: words, Line: line})
}

func (r *reader) set(name string, v Var) {
	if _, ok := r.script.Vars[name]; r.skipped() || ok && r.alternative() {
		return
	}
	r.script.size += len(v.Value)
	if len(v.Value) > maxValue {
		v = Var{Value: "$" + name, Line: v.Line}
	}
	r.script.Vars[name] = v
}

func (r *reader) redirect() {
	rest := r.source[r.at:]
	if w := r.word.String(); r.inWord && len(w) == 1 && w[0] >= '0' && w[0] <= '9' {
		r.word.Reset() // the 2 of 2>file
		r.inWord = false
	}
	r.endWord()
	here := strings.HasPrefix(rest, "<<") && !strings.HasPrefix(rest, "<<<")
	n := 0
	for n < len(rest) && strings.IndexByte("<>&-", rest[n]) >= 0 {
		n++
	}
	for n < len(rest) && (rest[n] == ' ' || rest[n] == '\t') {
		n++
	}
	start := n
	for n < len(rest) && strings.IndexByte(" \t\r\n;&|()<>", rest[n]) < 0 {
		n++
	}
	if here {
		r.heredoc = append(r.heredoc, strings.Trim(rest[start:n], `'"\`))
	}
	r.at += n
}

// skipHeredocs reads over the text between a << and its mark.
func (r *reader) skipHeredocs() {
	for _, mark := range r.heredoc {
		begin, line := r.at, r.line
		for r.at < len(r.source) {
			n := strings.IndexByte(r.source[r.at:], '\n')
			if n < 0 {
				n = len(r.source) - r.at
			}
			text, end := strings.TrimSpace(r.source[r.at:r.at+n]), r.at
			r.at = min(r.at+n+1, len(r.source))
			r.line++
			if text == mark {
				r.readInto(r.source[begin:end], line)
				break
			}
		}
	}
	r.heredoc = nil
}

// readInto sets the variable of a read -d ” that takes the text of a here-document: long commands are composed so.
func (r *reader) readInto(text string, line int) {
	if len(r.script.Commands) == 0 || r.depth == 10 {
		return
	}
	c := r.script.Commands[len(r.script.Commands)-1]
	if c.Words[0] != "read" || !slices.Contains(c.Words, "-d") || c.Line != line-1 {
		return
	}
	name := c.Words[len(c.Words)-1]
	if n := nameLen(name); n == 0 || n < len(name) {
		return
	}
	r.set(name, Var{Value: r.inside(strings.ReplaceAll(text, `"`, `\"`)), Line: line})
}

// endWord ends a word, which may assign a variable.
func (r *reader) endWord() {
	if !r.inWord {
		return
	}
	w := r.word.String()
	assigns := r.assigns()
	r.word.Reset()
	r.inWord = false
	if !assigns {
		r.words = append(r.words, w)
		return
	}
	name, value, _ := strings.Cut(w, "=")
	if more, ok := strings.CutSuffix(name, "+"); ok {
		name, value = more, r.script.Vars[more].Value+value
		r.script.size += len(value)
	}
	r.env = append(r.env, name+"="+value)
}

// reserved has the words that may stand before a command.
var reserved = map[string]bool{"then": true, "do": true, "else": true, "{": true, "!": true, "time": true, "if": true, "elif": true, "while": true, "until": true, "}": true, "fi": true, "done": true}

// endCommand ends a command, and returns whether there was one.
func (r *reader) endCommand() bool {
	r.endWord()
	words, env := r.words, r.env
	r.words, r.env = nil, nil
	any, not := len(words)+len(env) > 0, false
	for len(words) > 0 && reserved[words[0]] {
		r.keyword(words[0])
		not = words[0] == "!"
		words = words[1:]
	}
	for len(words) > 0 && len(env) == 0 && nameLen(words[0]) > 0 && strings.Contains(words[0], "=") { // then X=1
		name, _, _ := strings.Cut(words[0], "=")
		if nameLen(name) != len(name) {
			break
		}
		env, words = append(env, words[0]), words[1:]
	}
	if len(words) > 0 {
		r.tested(words, not)
	}
	if r.skipped() {
		r.script.Skipped = true
		return any
	}
	if len(words) > 0 && words[0] == "export" {
		for _, w := range append(slices.Clone(words[1:]), env...) {
			name, _, _ := strings.Cut(w, "=")
			r.script.Exported = append(r.script.Exported, name)
		}
	}
	switch {
	case len(words) == 0 || declares[words[0]]:
		for _, e := range env {
			name, value, _ := strings.Cut(e, "=")
			r.set(name, Var{Value: value, Line: r.began})
		}
	case words[0] == "." || words[0] == "source":
		r.sourced(words)
		r.script.Commands = append(r.script.Commands, Command{Words: words, Env: env, Line: r.began})
	case words[0] == "shift":
		n := 1
		if len(words) > 1 {
			n, _ = strconv.Atoi(words[1])
		}
		r.params = r.params[min(max(n, 0), len(r.params)):]
	case words[0] == "for" && len(words) > 3 && words[2] == "in":
		r.set(words[1], Var{Value: words[3], Line: r.began})
	default:
		r.script.Commands = append(r.script.Commands, Command{Words: words, Env: env, Line: r.began})
	}
	return any
}

// arithmetic computes sums and products of numbers and variables, from the left with the usual precedence.
func (r *reader) arithmetic(text string) (int64, bool) {
	text = strings.NewReplacer("$", "", "{", "", "}", "", "(", "", ")", "").Replace(text)
	total, sign := int64(0), int64(1)
	for len(text) > 0 {
		n := strings.IndexAny(text[1:], "+-")
		term := text
		if n >= 0 {
			term = text[:n+1]
		}
		v, ok := r.product(strings.TrimLeft(term, "+- "))
		if !ok {
			return 0, false
		}
		if strings.HasPrefix(strings.TrimSpace(term), "-") {
			sign = -1
		} else {
			sign = 1
		}
		total += sign * v
		text = text[len(term):]
	}
	return total, true
}

func (r *reader) product(text string) (int64, bool) {
	value, op := int64(1), byte('*')
	for {
		n := strings.IndexAny(text, "*/")
		factor := text
		if n >= 0 {
			factor = text[:n]
		}
		factor = strings.TrimSpace(factor)
		if v, ok := r.lookup(factor); ok {
			factor = v.Value
		}
		v, err := strconv.ParseInt(factor, 10, 64)
		if err != nil || op == '/' && v == 0 {
			return 0, false
		}
		if op == '*' {
			value *= v
		} else {
			value /= v
		}
		if n < 0 {
			return value, true
		}
		op, text = text[n], text[n+1:]
	}
}
