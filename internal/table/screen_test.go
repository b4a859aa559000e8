package table

import (
	"encoding/json"
	"strings"
	"testing"
)

// Nothing that is written to a screen controls it, however it is cut into writes; JSON is the
// same JSON.
func TestScreen(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\nc é 世 😀":               "a\tb\nc é 世 😀",
		"\x1b[2Jx\r\x07\x7f\x00":      `\u001b[2Jx\u000d\u0007\u007f\u0000`,
		"\u009b2J\u202egpj.exe\u2066": `\u009b2J\u202egpj.exe\u2066`,
		"\U000e0041":                  `\udb40\udc41`,
		"a\x9bb\xc2":                  "a\ufffdb\ufffd",
	} {
		text, want = "0123456789~"+text+"0123456789~", "0123456789~"+want+"0123456789~"
		for cut := range len(text) + 1 {
			var b strings.Builder
			s := NewScreen(&b)
			for _, part := range []string{text[:cut], text[cut:]} {
				if n, err := s.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			if b.String() != want {
				t.Errorf("%q cut at %d: %q, want %q", text, cut, b.String(), want)
			}
		}
	}
	name := "a\u009b\u202e\U000e0041"
	var b strings.Builder
	if err := json.NewEncoder(NewScreen(&b)).Encode(name); err != nil {
		t.Fatal(err)
	}
	var read string
	if err := json.Unmarshal([]byte(b.String()), &read); err != nil || read != name || strings.Contains(b.String(), "\u009b") {
		t.Errorf("%q is read as %q, %v", b.String(), read, err)
	}
}
