// Package python reads what Python source states without running it: imports, assignments, calls with their arguments,
// classes and functions with their defaults. It is a scanner, not a compiler: what it does not understand is an unknown
// expression, never an error, so that a file in any dialect of Python gives what can be had from it.
package python

import (
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	end     tokenKind = iota // of the file
	newline                  // of a logical line
	name
	number
	text
	operator
)

type token struct {
	kind tokenKind
	text string // of a string: its value
	line int
	// column is where the token begins in its line, a tab counting as eight. Of the first token of a statement that is
	// its indentation.
	column int
	format bool // a string with fields, such as f"{a}"
}

// scanner splits source into tokens.
type scanner struct {
	source string
	at     int
	line   int
	column int
	open   int // brackets that are open: line ends in them do not end a statement
	begun  bool
}

// restart has words that begin a statement and stand nowhere at the left margin within brackets.
var restart = map[string]bool{"def": true, "class": true, "import": true, "from": true, "return": true, "with": true, "while": true}

func (s *scanner) next() token {
	for s.at < len(s.source) {
		c := s.source[s.at]
		switch {
		case c == '\n':
			s.newLine()
			if s.open == 0 && s.begun {
				s.begun = false
				return token{kind: newline, line: s.line - 1}
			}
		case c == ' ' || c == '\f' || c == '\r':
			s.at++
			s.column++
		case c == '\t':
			s.at++
			s.column = (s.column/8 + 1) * 8
		case c == '#':
			for s.at < len(s.source) && s.source[s.at] != '\n' {
				s.at++
			}
		case c == '\\':
			s.at++
			if rest := s.source[s.at:]; strings.HasPrefix(rest, "\r\n") {
				s.at++
				s.newLine()
			} else if strings.HasPrefix(rest, "\n") {
				s.newLine()
			}
		default:
			return s.token(c)
		}
	}
	if s.begun {
		s.begun = false
		return token{kind: newline, line: s.line}
	}
	return token{kind: end, line: s.line}
}

func (s *scanner) newLine() {
	s.at++
	s.line++
	s.column = 0
}

func (s *scanner) token(c byte) token {
	s.begun = true
	t := token{line: s.line, column: s.column}
	start := s.at
	switch {
	case c == '"' || c == '\'':
		s.str(&t, "")
	case c >= '0' && c <= '9' || c == '.' && s.at+1 < len(s.source) && isDigit(s.source[s.at+1]):
		t.kind = number
		for s.at < len(s.source) && (isDigit(s.source[s.at]) || s.source[s.at] == '.' || s.source[s.at] == '_' || isLetter(s.source[s.at]) ||
			(s.source[s.at] == '-' || s.source[s.at] == '+') && (s.source[s.at-1] == 'e' || s.source[s.at-1] == 'E') && !strings.HasPrefix(s.source[start:], "0x")) {
			s.at++
		}
		t.text = strings.ReplaceAll(s.source[start:s.at], "_", "")
	case isLetter(c) || c == '_' || c >= utf8.RuneSelf:
		s.word()
		t.kind, t.text = name, s.source[start:s.at]
		if s.at < len(s.source) && (s.source[s.at] == '"' || s.source[s.at] == '\'') && isPrefix(t.text) {
			s.str(&t, strings.ToLower(t.text))
			break
		}
		if s.open > 0 && t.column == 0 && restart[t.text] { // a bracket was never closed
			s.open = 0
			s.at, s.begun = start, false
			return token{kind: newline, line: s.line}
		}
	default:
		s.op(&t)
	}
	s.column += s.at - start
	return t
}

func (s *scanner) word() {
	for s.at < len(s.source) {
		if c := s.source[s.at]; c < utf8.RuneSelf {
			if !isLetter(c) && !isDigit(c) && c != '_' {
				return
			}
			s.at++
			continue
		}
		_, n := utf8.DecodeRuneInString(s.source[s.at:])
		s.at += n
	}
}

func isPrefix(w string) bool {
	return len(w) <= 2 && strings.Trim(strings.ToLower(w), "rbuft") == ""
}

// str reads a string that begins at s.at; prefix is what stands before its quotes, such as rb.
func (s *scanner) str(t *token, prefix string) {
	t.kind = text
	t.format = strings.Contains(prefix, "f")
	raw := strings.Contains(prefix, "r")
	quote := s.source[s.at : s.at+1]
	if strings.HasPrefix(s.source[s.at:], strings.Repeat(quote, 3)) {
		quote = strings.Repeat(quote, 3)
	}
	s.at += len(quote)
	start, escaped := s.at, false
	for s.at < len(s.source) && !strings.HasPrefix(s.source[s.at:], quote) {
		switch c := s.source[s.at]; {
		case c == '\\' && s.at+1 < len(s.source):
			escaped = true
			s.at++
			if s.source[s.at] == '\n' {
				s.line++
			}
		case c == '\n' && len(quote) == 1: // the string was not closed
			t.text = s.source[start:s.at]
			return
		case c == '\n':
			s.line++
		}
		s.at++
	}
	t.text = s.source[start:s.at]
	s.at = min(s.at+len(quote), len(s.source))
	if escaped && !raw {
		t.text = unescape.Replace(t.text)
	}
}

// unescape takes the escapes away that occur in names and paths; the others stay as they are.
var unescape = strings.NewReplacer(`\\`, `\`, `\'`, `'`, `\"`, `"`, `\n`, "\n", `\t`, "\t", "\\\n", "")

var operators = []string{"**=", "//=", ">>=", "<<=", "...", "**", "//", ">>", "<<", "<=", ">=", "==", "!=", "->", ":=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "@="}

func (s *scanner) op(t *token) {
	t.kind = operator
	rest := s.source[s.at:]
	t.text = rest[:1]
	for _, o := range operators {
		if strings.HasPrefix(rest, o) {
			t.text = o
			break
		}
	}
	s.at += len(t.text)
	switch t.text {
	case "(", "[", "{":
		s.open++
	case ")", "]", "}":
		s.open = max(0, s.open-1)
	}
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
