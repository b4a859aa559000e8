package redact

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// spans is a text of which parts are replaced. What is replaced is not searched again.
type spans struct {
	r      *Redactor
	pieces []piece
}

type piece struct {
	text string
	done bool // a placeholder
}

// found is a part of a piece, and what it is.
type found struct {
	from, to int
	kind     kind
}

// cut replaces what find returns of each piece: parts in order that do not overlap.
func (s *spans) cut(find func(text string) []found) {
	var out []piece
	for i, p := range s.pieces {
		var all []found
		if !p.done {
			all = find(p.text)
		}
		if all == nil {
			if out != nil {
				out = append(out, p)
			}
			continue
		}
		if out == nil {
			out = append(make([]piece, 0, len(s.pieces)+2*len(all)), s.pieces[:i]...)
		}
		at := 0
		for _, f := range all {
			if f.from > at {
				out = append(out, piece{text: p.text[at:f.from]})
			}
			value := p.text[f.from:f.to]
			out = append(out, piece{s.r.place(f.kind, value) + strings.Repeat("\n", strings.Count(value, "\n")), true}) // lines keep their numbers
			at = f.to
		}
		if at < len(p.text) {
			out = append(out, piece{text: p.text[at:]})
		}
	}
	if out != nil {
		s.pieces = out
	}
}

func (s *spans) String() string {
	var b strings.Builder
	for _, p := range s.pieces {
		b.WriteString(p.text)
	}
	return b.String()
}

// matches replaces what an expression matches: the first group that has a part in it, or all of it without groups.
func (s *spans) matches(e *regexp.Regexp, k kind) {
	s.cut(func(text string) []found {
		var all []found
		for _, m := range e.FindAllStringSubmatchIndex(text, -1) {
			if len(m) > 2 {
				m = m[2:]
			}
			for len(m) > 2 && m[0] < 0 {
				m = m[2:]
			}
			if m[0] >= 0 && m[1] > m[0] {
				all = append(all, found{m[0], m[1], k})
			}
		}
		return all
	})
}

// secrets replaces keys and passwords.
func (s *spans) secrets(whole string) {
	lower := strings.ToLower(whole)
	for _, f := range secretForms {
		if f.find == nil || slices.ContainsFunc(f.find, func(l string) bool { return strings.Contains(lower, l) }) {
			s.matches(f.form, aSecret)
		}
	}
}

// addresses replaces addresses of IP and of network cards.
func (s *spans) addresses() {
	s.matches(mac, anIP)
	s.cut(func(text string) []found {
		var all []found
		for _, m := range colon.FindAllStringIndex(text, -1) {
			from, to, ok := isAddress(text[m[0]:m[1]])
			if from, to = from+m[0], to+m[0]; ok && !wordBefore(text, from) && !wordBehind(text, to) {
				all = append(all, found{from, to, anIP})
			}
		}
		return all
	})
	s.cut(func(text string) []found {
		var all []found
		for _, m := range ipv4.FindAllStringIndex(text, -1) {
			a, err := netip.ParseAddr(text[m[0]:m[1]])
			more := m[1]+1 < len(text) && text[m[1]] == '.' && digit(text[m[1]+1]) || m[1] < len(text) && digit(text[m[1]])
			if err == nil && !here(a) && !more && !(m[0] > 0 && (digit(text[m[0]-1]) || text[m[0]-1] == '.')) {
				all = append(all, found{m[0], m[1], anIP})
			}
		}
		return all
	})
}

// domains replaces names of hosts with their domain.
func (s *spans) domains() {
	s.cut(func(text string) []found {
		if !strings.Contains(text, ".") {
			return nil
		}
		var all []found
		for _, m := range names.FindAllStringIndex(text, -1) {
			if isHost(text[m[0]:m[1]], text[:m[0]], text[m[1]:]) {
				all = append(all, found{m[0], m[1], aHost})
			}
		}
		return all
	})
}

// learn notes the words of a text that expressions show to be of a kind.
func learn(words map[string]bool, text string, by []*regexp.Regexp) {
	for _, e := range by {
		for _, m := range e.FindAllStringSubmatchIndex(text, -1) {
			word, behind := text[m[2]:m[3]], text[m[3]:]
			domain := len(behind) > 1 && behind[0] == '.' && isWord(behind[1]) // all of it is the name
			if !domain && !noHost.MatchString(word) {
				words[word] = true
			}
		}
	}
}

// known replaces words that were learnt.
func (s *spans) known(words map[string]bool, k kind) {
	longest := 0
	for w := range words {
		longest = max(longest, len(w))
	}
	is := func(word string) bool { return len(word) <= longest && words[word] } // no text of a megabyte is hashed at each of its dots
	s.cut(func(text string) []found {
		var all []found
		for _, m := range token.FindAllStringIndex(text, -1) {
			from := m[0]
			for from < m[1] { // the words between dots, and all of them
				if is(text[from:m[1]]) {
					all = append(all, found{from, m[1], k})
					break
				}
				to := m[1]
				if dot := strings.IndexByte(text[from:to], '.'); dot >= 0 {
					to = from + dot
				}
				if is(text[from:to]) {
					all = append(all, found{from, to, k})
				}
				from = to + 1
			}
		}
		return all
	})
}

// paths replaces the folders of absolute paths.
func (s *spans) paths() { s.matches(path, aPath) }

func digit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return digit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func wordBefore(text string, at int) bool { return at > 0 && isWord(text[at-1]) }

func wordBehind(text string, at int) bool { return at < len(text) && isWord(text[at]) }
