// Package logtext reads the logs of jobs as lines of plain text.
//
// A line ends at \n, at \r\n, or at a \r alone: each refresh of a progress bar is a line. What a terminal would not show is taken
// out: escape sequences (colours, cursor moves), the characters that a backspace deletes, and control characters.
package logtext

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// MaxLine is how many bytes of a line are kept. What is beyond is dropped: no log needs it, and a file without line ends, such as
// a core dump, must not fill the memory.
const MaxLine = 16 << 10

// chunk is how much is read at a time.
const chunk = 64 << 10

// Head is how many of the first bytes say whether it is a log.
const Head = chunk

// Compressed reports whether a text with this head is one that gzip compressed.
func Compressed(head []byte) bool { return bytes.HasPrefix(head, []byte{0x1f, 0x8b}) }

// Plain returns a reader of the text that r reads, which gzip may have compressed. Reading fails with [ErrNotText] if the head is
// something else.
func Plain(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, chunk)
	if head, _ := b.Peek(2); Compressed(head) {
		z, err := gzip.NewReader(b)
		return &checked{r: unzipped{z}}, inWords(err)
	}
	return &checked{r: b}, nil
}

// ErrNotText says that a log is none: among random bytes are words such as ECC by chance, and a program has the messages of all that
// may fail.
var ErrNotText = errors.New("bytes that are no text in UTF-8")

// checked reads on while what it has read first is text.
type checked struct {
	r    io.Reader
	head census
}

func (c *checked) Read(p []byte) (int, error) {
	if c.head.bytes >= Head {
		return c.r.Read(p)
	}
	n, err := c.r.Read(p)
	c.head.count(p[:n])
	if (err != nil || c.head.bytes >= Head) && !c.head.text() {
		return n, ErrNotText
	}
	return n, err
}

// IsText reports whether at most a tenth of what is read is neither UTF-8 nor what a terminal understands. NUL does not count: a file
// system may leave runs of them after a crash, and so does the rotation of a log that is open.
func IsText(text []byte) bool {
	if utf8.Valid(text) && bytes.IndexFunc(text, unreadable) < 0 {
		return true
	}
	var c census
	c.count(text)
	return c.text()
}

// census counts bytes but for NUL, and those of them that are no text.
type census struct {
	bytes, not int
	part       []byte // a character of which the rest comes with what is read next
}

func (c *census) count(text []byte) {
	if len(c.part) > 0 {
		text = append(c.part, text...)
	}
	c.part = c.part[:0]
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && !utf8.FullRune(text[i:]) {
			c.part = append([]byte(nil), text[i:]...)
			return
		}
		if r != 0 {
			c.bytes += n
		}
		if r == utf8.RuneError && n == 1 || unreadable(r) {
			c.not += n
		}
		i += n
	}
}

// unreadable reports whether no log has a character: control characters but for those of terminals.
func unreadable(r rune) bool {
	switch r {
	case 0, '\a', '\b', '\t', '\n', '\v', '\f', '\r', 0x1b:
		return false
	}
	return r < ' ' || r == 0x7f
}

func (c *census) text() bool { return 10*c.not <= c.bytes }

// unzipped reads a text that gzip compressed.
type unzipped struct{ z *gzip.Reader }

func (u unzipped) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	return n, inWords(err)
}

// inWords says what is wrong with a text that gzip compressed.
func inWords(err error) error {
	corrupt := flate.CorruptInputError(0)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the gzip file is truncated")
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		return errors.New("the gzip file is damaged")
	}
	return err
}

// Scanner reads lines from the first to the last.
type Scanner struct {
	r     io.Reader
	buf   []byte // what is read, and not yet returned
	rest  []byte // the part of buf that is not yet returned
	next  int    // where the first \n of rest is, len(rest) if there is none; below 0 it is not known
	line  []byte
	index int64
	err   error
	begun bool // some of the next line is read, or dropped
	lf    bool // a \n that comes next ends nothing: the \r before it did
}

// NewScanner returns a Scanner of the text that r reads.
func NewScanner(r io.Reader) *Scanner { return &Scanner{r: r, index: -1} }

// Scan goes on to the next line, and returns false when there is none or reading fails. A last line without an end counts.
func (s *Scanner) Scan() bool {
	s.line = s.line[:0]
	for {
		if s.lf && len(s.rest) > 0 {
			if s.rest[0] == '\n' {
				s.advance(1)
			}
			s.lf = false
		}
		if end := s.lineEnd(); end >= 0 {
			s.keep(s.rest[:end])
			s.lf, s.begun = s.rest[end] == '\r', false
			s.advance(end + 1)
			s.found()
			return true
		}
		s.keep(s.rest)
		s.begun = s.begun || len(s.rest) > 0
		s.rest, s.next = nil, 0
		if s.err != nil {
			if s.begun {
				s.begun = false
				s.found()
				return true
			}
			return false
		}
		if s.buf == nil {
			s.buf = make([]byte, chunk)
		}
		var n int
		n, s.err = s.r.Read(s.buf)
		s.rest, s.next = s.buf[:n], -1
	}
}

func (s *Scanner) keep(text []byte) {
	s.line = append(s.line, text[:min(len(text), MaxLine-len(s.line))]...)
}

func (s *Scanner) found() {
	s.index++
	s.line = Clean(s.line)
}

// Line returns the line. It is valid until the next call of Scan.
func (s *Scanner) Line() []byte { return s.line }

// Index returns the number of the line, from 0.
func (s *Scanner) Index() int64 { return s.index }

// Err returns why reading failed; nil at the end of the text.
func (s *Scanner) Err() error {
	if s.err == io.EOF {
		return nil
	}
	return s.err
}

func (s *Scanner) advance(n int) {
	s.rest = s.rest[n:]
	s.next -= n
}

// lineEnd returns where the first line of the rest ends, or -1.
func (s *Scanner) lineEnd() int {
	if s.next < 0 {
		if s.next = bytes.IndexByte(s.rest, '\n'); s.next < 0 {
			s.next = len(s.rest)
		}
	}
	if cr := bytes.IndexByte(s.rest[:s.next], '\r'); cr >= 0 {
		return cr
	}
	if s.next < len(s.rest) {
		return s.next
	}
	return -1
}

// Backward calls yield with the lines of a file of size bytes from the last to the first, until it returns false. It reads no more of the file
// than that takes. A line is valid during the call. The lines are those of a Scanner.
func Backward(r io.ReaderAt, size int64, yield func(line []byte) bool) error {
	b := backward{yield: yield}
	buf := make([]byte, chunk)
	for end := size; end > 0 && !b.done; {
		begin := max(0, end-chunk)
		part := buf[:end-begin]
		if n, err := r.ReadAt(part, begin); n < len(part) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		b.split(part)
		end = begin
	}
	if !b.done && b.open {
		b.emit()
	}
	return nil
}

// backward collects the lines of chunks that come from the last to the first.
type backward struct {
	yield func(line []byte) bool
	// tail is the part of the line before the last line end that is read already. open says that there is such a line, even if the part is
	// empty; before the first line end from behind it needs at least one byte.
	tail []byte
	open bool
	done bool
	lf   bool // the byte behind the chunk is a \n that ends a line
	line []byte
}

// split emits the lines of a chunk but for the first one, whose begin is in the chunk before.
func (b *backward) split(part []byte) {
	lf, cr := len(part), len(part) // the last ones before i, or further back than it: each is searched once
	for i := len(part) - 1; i >= 0 && !b.done; i-- {
		if lf > i {
			lf = bytes.LastIndexByte(part[:i+1], '\n')
		}
		if cr > i {
			cr = bytes.LastIndexByte(part[:i+1], '\r')
		}
		end := max(lf, cr)
		if end < i {
			b.prepend(part[end+1 : i+1])
			b.lf = false
			if i = end; end < 0 {
				return
			}
		}
		if part[i] == '\r' && b.lf { // the begin of a \r\n
			b.lf = false
			continue
		}
		if b.open {
			b.emit()
		}
		b.open, b.lf = true, part[i] == '\n'
	}
}

// prepend puts text before the part of the line that is read already. Only the first bytes of a line are kept.
func (b *backward) prepend(text []byte) {
	b.open = true
	joined := append(append(make([]byte, 0, len(text)+len(b.tail)), text...), b.tail...)
	b.tail = joined[:min(len(joined), MaxLine)]
}

func (b *backward) emit() {
	b.line = Clean(append(b.line[:0], b.tail...))
	b.tail = b.tail[:0]
	b.open = false
	b.done = !b.yield(b.line)
}

// c1 is the first byte of the control characters from U+0080 to U+009F, and of others up to U+00BF.
const c1 = 0xc2

// Clean takes out of a line, in place, what a terminal would not show, and returns what is left. Tabs stay.
func Clean(line []byte) []byte {
	i := 0
	for ; i+8 <= len(line); i += 8 {
		if x := binary.LittleEndian.Uint64(line[i:]); (x-every*' ')&^x&high != 0 || hasZero(x^every*0x7f) || hasZero(x^every*c1) {
			break // one of the eight is probably below ' ', or one of those two
		}
	}
	for i < len(line) && line[i] >= ' ' && line[i] != 0x7f && line[i] != c1 {
		i++
	}
	if i == len(line) {
		return line
	}
	out := line[:i]
	for i < len(line) {
		switch c := line[i]; {
		case c == 0x1b:
			i += escape(line[i:])
			continue
		case c == '\b':
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
		case c == c1 && i+1 < len(line) && line[i+1] >= 0x80 && line[i+1] < 0xa0: // as ESC and another character
			i += 2
			continue
		case c >= ' ' && c != 0x7f, c == '\t':
			out = append(out, c)
		}
		i++
	}
	return out
}

// every is one in each of eight bytes, and high the high bit of each.
const (
	every = 0x0101010101010101
	high  = every * 0x80
)

// hasZero reports whether one of eight bytes is zero.
func hasZero(x uint64) bool { return (x-every)&^x&high != 0 }

// escape returns the length of the escape sequence (ECMA-48) that text begins with.
func escape(text []byte) int {
	if len(text) < 2 {
		return len(text)
	}
	switch text[1] {
	case '[': // a control sequence: parameters, then a final byte
		for i := 2; i < len(text); i++ {
			if text[i] >= 0x40 && text[i] <= 0x7e {
				return i + 1
			}
			if text[i] < 0x20 {
				return i
			}
		}
		return len(text)
	case ']', 'P', '_', '^', 'X': // a string, to BEL or ESC \
		for i := 2; i < len(text); i++ {
			if text[i] == 0x07 {
				return i + 1
			}
			if text[i] == 0x1b && i+1 < len(text) && text[i+1] == '\\' {
				return i + 2
			}
		}
		return 2 // no end: the text behind it is worth more than the sequence
	}
	return 2
}
