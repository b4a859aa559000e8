package track

import (
	"bytes"
	"math"
	"slices"
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

// class is what a token that begins with a character may be.
type class uint8

const (
	anything class = iota
	blank
	ofLetters
	ofDigits
	sign   // of a number, or a point before its digits
	beyond // a part of a character beyond ASCII
)

// classes has the class of each byte.
var classes = func() (all [256]class) {
	for i := range all {
		switch c := byte(i); {
		case c == ' ', c == '\t':
			all[i] = blank
		case letter(c):
			all[i] = ofLetters
		case digit(c):
			all[i] = ofDigits
		case c == '-', c == '+', c == '.':
			all[i] = sign
		case c >= 0x80:
			all[i] = beyond
		}
	}
	return all
}()

// tokens splits a line into its tokens, appended to out, and returns what all words of it may mean.
func tokens(line []byte, out []token) ([]token, meaning) {
	all := meaning(0)
	for i := 0; i < len(line); {
		begin := i
		for classes[line[i]] == blank {
			if i++; i == len(line) {
				return out, all
			}
		}
		joined := i == begin && len(out) > 0
		if len(out) == cap(out) {
			out = slices.Grow(out, 64)
		}
		out = out[:len(out)+1]
		t := &out[len(out)-1] // set in place: a token that is put together elsewhere and copied takes several times as long
		*t = token{}
		t.joined, t.wide, t.from = joined, i-begin > 1, int32(i)
		switch c := line[i]; classes[c] {
		case ofLetters:
			s, n := spell(line[i:])
			if t.hash = s.hash(); n <= longest {
				t.meaning = words.find(s, t.hash).meaning
				all |= t.meaning
			} else {
				t.hash = hashed(t.hash, line[i+longest:i+n])
			}
			i += n
		case ofDigits:
			if i = quantity(line, i, t); t.kind == rounded && len(out) > 1 && out[len(out)-2].meaning&(mStep|mBatch|mEpoch) != 0 && (i == len(line) || line[i] == ':' || line[i] == ',' || line[i] == ' ') {
				t.count(line[begin:i])
			}
		case sign:
			if i+1 < len(line) && numeric(line[i+1:], c) && !(joined && glued(line[i-1])) {
				i = quantity(line, i, t)
				break
			}
			t.kind, t.char = other, c
			i++
		case beyond: // the cells of a bar are many of these
			for t.kind, t.char = other, bar; i < len(line) && line[i] >= 0x80; i++ {
			}
		default:
			t.kind, t.char = other, c
			i++
		}
		t.to = int32(i)
	}
	return out, all
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// numeric reports whether text, behind a sign or a point, goes on as a number.
func numeric(text []byte, before byte) bool {
	return digit(text[0]) || before != '.' && text[0] == '.' && len(text) > 1 && digit(text[1])
}

// glued reports whether a sign or a point behind a character belongs to the token of that: the "-" of 2026-03 is no sign.
func glued(before byte) bool {
	return letter(before) || digit(before) || before == '_' || before == ')' || before == '.'
}

// quantity reads a number, a clock, a date, or a name that has digits in it, at line[i], and returns where it ends.
func quantity(line []byte, i int, t *token) int {
	joined := t.joined && i > 0 && (letter(line[i-1]) || line[i-1] == '_' && i > 1 && letter(line[i-2])) // to a word
	if !joined {
		if end := t.decimal(line, i); end > 0 {
			return end
		}
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
	return end
}

// count takes the digits behind a word for a step or an epoch, such as those of epoch3, for its number.
func (t *token) count(text []byte) {
	if v := value(text); !math.IsNaN(v) {
		t.kind, t.value = number, v
	}
}

// powers are exact in floating point, as are whole numbers below 2^53: so are their product and their quotient, rounded once.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// mostDigits is how many digits are below 2^53 for certain.
const mostDigits = 15

// decimal reads most of the quantities that there are: digits, digits behind a point, a small exponent; and clocks of whole seconds. It returns 0 for
// others, such as dates.
func (t *token) decimal(line []byte, i int) (end int) {
	n, point, from := uint64(0), 0, i // point: the digits before it, if there is one
	for ; i < len(line); i++ {
		c := line[i]
		if c -= '0'; c <= 9 {
			n = n*10 + uint64(c)
			continue
		}
		if line[i] != '.' || point > 0 || i == from || i+1 == len(line) || !digit(line[i+1]) {
			break
		}
		point = i - from
	}
	digits, exponent := i-from, 0
	if point > 0 {
		digits--
		exponent = point - digits
	}
	if digits == 0 || digits > mostDigits {
		return 0
	}
	if i < len(line) {
		switch c := line[i]; c {
		case '.':
			return 0
		case ',':
			if point == 0 && i+1 < len(line) && digit(line[i+1]) { // 6,472
				return 0
			}
		case '-':
			if point == 0 && i+1 < len(line) && digit(line[i+1]) { // 2026-03-01
				return 0
			}
		case ':':
			if i+2 < len(line) && digit(line[i+1]) && digit(line[i+2]) {
				if point > 0 {
					return 0
				}
				return t.clock(line, i, n)
			}
		case 'e', 'E':
			power := 0
			if power, i = shortExponent(line, i+1); i == 0 {
				return 0
			}
			exponent += power
		}
	}
	switch t.kind = number; {
	case exponent == 0:
		t.value = float64(n)
	case -exponent >= len(powers) || exponent >= len(powers):
		t.kind = word
		return 0
	case exponent < 0:
		t.value = float64(n) / powers[-exponent]
	default:
		t.value = float64(n) * powers[exponent]
	}
	return i
}

// shortExponent reads what is behind an e, of one or two digits with nothing that may belong to it behind them, and returns where it ends; 0 if it is something else.
func shortExponent(line []byte, i int) (power, end int) {
	negative := i < len(line) && line[i] == '-'
	if negative || i < len(line) && line[i] == '+' {
		i++
	}
	from := i
	for ; i < len(line) && digit(line[i]); i++ {
		power = min(power*10+int(line[i]-'0'), 1000)
	}
	if i == from || i < len(line) && (letter(line[i]) || classes[line[i]] == sign || line[i] == ':' || line[i] == ',' && i+1 < len(line) && digit(line[i+1])) {
		return 0, 0
	}
	if negative {
		power = -power
	}
	return power, i
}

// clock reads the rest of a clock, from the colon at line[i], behind a number n.
func (t *token) clock(line []byte, i int, n uint64) (end int) {
	for parts := 0; i+2 < len(line) && line[i] == ':' && digit(line[i+1]) && digit(line[i+2]); parts++ {
		if parts == 2 {
			return 0
		}
		n = n*60 + uint64(line[i+1]-'0')*10 + uint64(line[i+2]-'0')
		i += 3
	}
	if i < len(line) && (digit(line[i]) || line[i] == '.' || line[i] == ':' || line[i] == '-' || line[i]|0x20 == 'e') {
		return 0
	}
	t.kind, t.value = clock, float64(n)
	return i
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
