package table

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// A Screen is a writer of text that a terminal may show. It writes characters that would move the
// cursor, change colours or the direction of writing as \uXXXX, which in JSON is the same text.
// Tabs and ends of lines stay. Several goroutines may use it.
type Screen struct {
	mu   sync.Mutex
	to   io.Writer
	rest []byte // the beginning of a character
}

// NewScreen returns a screen that writes to a writer.
func NewScreen(to io.Writer) *Screen { return &Screen{to: to} }

// Raw is the writer that a screen writes to, or w itself if it is none.
func Raw(w io.Writer) io.Writer {
	if s, ok := w.(*Screen); ok {
		return s.to
	}
	return w
}

// Write writes text. A character may be written in parts.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := p
	if len(s.rest) > 0 {
		text = append(s.rest, p...)
	}
	var out []byte
	from := 0 // what is before it is in out
	k := 0
	for k < len(text) {
		if c := text[k]; c >= ' ' && c < 0x7f || c == '\n' || c == '\t' {
			for k++; k+8 <= len(text) && plain(binary.LittleEndian.Uint64(text[k:])); k += 8 {
			}
			continue
		}
		if !utf8.FullRune(text[k:]) {
			break
		}
		r, n := utf8.DecodeRune(text[k:])
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError && n == 1 {
			out = append(append(out, text[from:k]...), escape(r)...)
			from = k + n
		}
		k += n
	}
	s.rest = append([]byte(nil), text[k:]...)
	if out == nil {
		out = text[:k]
	} else {
		out = append(out, text[from:k]...)
	}
	if _, err := s.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// plain reports whether each of eight bytes is of ASCII, and no control character.
func plain(x uint64) bool {
	const every, high = 0x0101010101010101, 0x8080808080808080
	return (x|(x-every*' ')|(x+every))&high == 0 // below ' ' a byte borrows, 0x7f carries into its high bit; bytes beyond have it
}

// Flush writes the beginning of a character that was never ended.
func (s *Screen) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) == 0 {
		return nil
	}
	s.rest = nil
	_, err := s.to.Write([]byte(escape(utf8.RuneError)))
	return err
}

// escape writes a character as JSON does; one beyond 16 bits in two parts.
func escape(r rune) string {
	if r > 0xffff {
		r -= 0x10000
		return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	if r == utf8.RuneError {
		return string(r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}
