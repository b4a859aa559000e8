package track

import (
	"bytes"
	"math"
	"strconv"
)

// kind is what a token is.
type kind uint8

const (
	word    kind = iota // letters; a name such as global_step is several words that are joined
	number              // 1,234.5e-3
	clock               // 0:03:31, a duration or a time of day
	date                // 2026-03-01
	other               // one byte of anything else, or characters beyond ASCII
	span                // 101-200; its value is the end
	rounded             // a whole name that a number is a part of, such as mAP50 or 10.0.0.1
)

// bar is the char of a token of characters beyond ASCII, such as the cells of a progress bar.
const bar = 0x80

// token is a part of a line. Spaces are not tokens.
type token struct {
	kind     kind
	joined   bool // to the token before: no space between them
	wide     bool // at least two spaces before it
	char     byte // of other
	from, to int32
	meaning  meaning // of a word
	value    float64 // of a number; the seconds of a clock
	hash     uint64  // of a word in lower case
}

// is reports whether a token is the character c.
func (t *token) is(c byte) bool { return t.kind == other && t.char == c }

// tokens splits a line into its tokens, appended to out.
func tokens(line []byte, out []token) []token {
	for i := 0; i < len(line); {
		begin := i
		for i < len(line) && (line[i] == ' ' || line[i] == '\t') {
			i++
		}
		if i == len(line) {
			break
		}
		t := token{from: int32(i), joined: i == begin && len(out) > 0, wide: i-begin > 1}
		switch c := line[i]; {
		case letter(c):
			s, n := spell(line[i:])
			if t.hash = s.hash(); n <= longest {
				t.meaning = words.find(s).meaning
			} else {
				t.hash = hashed(t.hash, line[i+longest:i+n])
			}
			i += n
		case digit(c), (c == '-' || c == '+' || c == '.') && i+1 < len(line) && numeric(line[i+1:], c) && !(t.joined && glued(out, line[i-1])):
			t, i = quantity(line, i, t)
		case c >= 0x80: // the cells of a bar are many of these
			for t.kind, t.char = other, bar; i < len(line) && line[i] >= 0x80; i++ {
			}
		default:
			t.kind, t.char = other, c
			i++
		}
		t.to = int32(i)
		out = append(out, t)
	}
	return out
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// numeric reports whether text, behind a sign or a point, goes on as a number.
func numeric(text []byte, before byte) bool {
	return digit(text[0]) || before != '.' && text[0] == '.' && len(text) > 1 && digit(text[1])
}

// glued reports whether a sign or a point behind the last token belongs to it: the "-" of 2026-03 is no sign.
func glued(out []token, before byte) bool {
	return len(out) > 0 && (letter(before) || digit(before) || before == '_' || before == ')' || before == '.')
}

// quantity reads a number, a clock, a date, or a name that has digits in it, at line[i].
func quantity(line []byte, i int, t token) (token, int) {
	joined := t.joined && i > 0 && (letter(line[i-1]) || line[i-1] == '_' && i > 1 && letter(line[i-2])) // to a word
	if v, end := decimal(line, i); end > 0 && !joined {
		t.kind, t.value = number, v
		return t, end
	}
	end := i
	if !digit(line[end]) && line[end] != '.' {
		end++
	}
	points, colons, dashes, other := 0, 0, 0, false
	e := false
scan:
	for ; end < len(line); end++ {
		switch c := line[end]; {
		case digit(c):
		case c == '.' && end+1 < len(line) && digit(line[end+1]):
			points++
		case c == '.' && points == 0 && colons == 0 && (end+1 == len(line) || !letter(line[end+1])):
			points++ // "1." with nothing behind the point
		case c == ':' && !e && dashes == 0 && end+2 < len(line) && digit(line[end+1]) && digit(line[end+2]):
			colons++
		case c == '-' && points == 0 && !e && end+1 < len(line) && digit(line[end+1]) && digit(line[end-1]):
			dashes++
		case c == ',' && points == 0 && colons == 0 && thousands(line, i, end):
			other = true
		case (c == 'e' || c == 'E') && !e && exponent(line[end+1:]):
			e = true
			end++
		default:
			break scan
		}
	}
	text := line[i:end]
	switch {
	case joined:
		t.kind = rounded
	case dashes == 2 && end-i == len("2026-03-01"):
		t.kind = date
	case dashes == 1 && points == 0 && colons == 0 && !other && rises(text):
		t.kind, t.value = span, value(text[bytes.IndexByte(text, '-')+1:])
	case dashes > 0, points > 1, colons > 0 && e:
		t.kind = rounded
	case colons > 0:
		t.kind, t.value = clock, seconds(text)
	default:
		t.kind = number
		if other {
			text = without(text, ',')
		}
		v, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			t.kind = rounded
		}
		t.value = v
	}
	return t, end
}

// powers are exact in floating point, as are whole numbers below 2^53: so is the quotient, rounded once.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// decimal reads most of the numbers there are: digits, and digits behind a point. It returns 0 for the end of others, such as dates.
func decimal(line []byte, i int) (v float64, end int) {
	n, whole, from := uint64(0), -1, i
	for ; i < len(line); i++ {
		switch c := line[i]; {
		case digit(c):
			n = n*10 + uint64(c-'0')
			continue
		case c == '.' && whole < 0 && i > from && i+1 < len(line) && digit(line[i+1]):
			whole = i - from
			continue
		case c == '.' || c == ':' || c == '-' || c == ',' || c|0x20 == 'e':
			return 0, 0
		}
		break
	}
	switch digits := i - from; {
	case digits == 0 || digits > len(powers)-1:
		return 0, 0
	case whole < 0:
		return float64(n), i
	default:
		return float64(n) / powers[digits-whole-1], i
	}
}

// rises reports whether the second of two numbers with a dash between them is the larger one.
func rises(text []byte) bool {
	a, b, _ := bytes.Cut(text, []byte("-"))
	return len(a) > 0 && value(a) < value(b)
}

// value returns a number of digits; NaN of anything else.
func value(text []byte) float64 {
	v, err := strconv.ParseUint(string(text), 10, 53)
	if err != nil {
		return math.NaN()
	}
	return float64(v)
}

// exponent reports whether what comes behind an e is the exponent of a number.
func exponent(text []byte) bool {
	if len(text) > 1 && (text[0] == '-' || text[0] == '+') {
		return digit(text[1])
	}
	return len(text) > 0 && digit(text[0]) && (len(text) == 1 || digit(text[1]) || !letter(text[1]))
}

// thousands reports whether the comma at line[i] separates thousands: one to three digits before it, three behind it.
func thousands(line []byte, from, i int) bool {
	if i+3 >= len(line) || !digit(line[i+1]) || !digit(line[i+2]) || !digit(line[i+3]) || i+4 < len(line) && (digit(line[i+4]) || line[i+4] == '.' && i+5 < len(line) && !digit(line[i+5])) {
		return false
	}
	n := 0
	for j := i - 1; j >= from && digit(line[j]); j-- {
		n++
	}
	return n >= 1 && n <= 3
}

func without(text []byte, c byte) []byte {
	var out []byte
	for _, x := range text {
		if x != c {
			out = append(out, x)
		}
	}
	return out
}

// seconds returns what a clock such as 1:02:03.5 says.
func seconds(text []byte) float64 {
	sum, part, unit := 0.0, 0.0, 1.0
	point := false
	for _, c := range text {
		switch {
		case c == ':':
			sum, part = (sum+part)*60, 0
		case c == '.':
			point = true
		case digit(c) && point:
			unit /= 10
			part += float64(c-'0') * unit
		case digit(c):
			part = part*10 + float64(c-'0')
		}
	}
	return sum + part
}
