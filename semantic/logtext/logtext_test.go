package logtext

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func forward(t interface{ Fatal(...any) }, r io.Reader) []string {
	var lines []string
	s := NewScanner(r)
	for s.Scan() {
		if s.Index() != int64(len(lines)) {
			t.Fatal("index", s.Index(), "of line", len(lines))
		}
		lines = append(lines, string(s.Line()))
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	return lines
}

func TestLines(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"a", []string{"a"}},
		{"a\n", []string{"a"}},
		{"a\nb", []string{"a", "b"}},
		{"a\r\nb\r\n", []string{"a", "b"}},
		{"\n\n", []string{"", ""}},
		{"  1%|\r 50%|\r100%|\ndone\n", []string{"  1%|", " 50%|", "100%|", "done"}},
		{"a\r\r\nb", []string{"a", "", "b"}},
		{"\x1b[31mloss\x1b[0m: 1\n", []string{"loss: 1"}},
		{"1 \u00b5s\u009b2J", []string{"1 \u00b5s2J"}},
		{"\x1b]0;title\x07text", []string{"text"}},
		{"\x1b]no end", []string{"no end"}},
		{"12\b\b34", []string{"34"}},
		{"a\tb\x00c", []string{"a\tbc"}},
		{"\x1b", []string{""}},
		{"\x1b[", []string{""}},
		{"\x1b[K  1/100", []string{"  1/100"}},
	} {
		if got := forward(t, strings.NewReader(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%q: lines %q, want %q", c.text, got, c.want)
		}
	}
}

// A line beyond the bound is cut, and the next one is whole.
func TestLongLine(t *testing.T) {
	text := strings.Repeat("x", 10*chunk+1) + "\nshort\n"
	want := []string{strings.Repeat("x", MaxLine), "short"}
	if got := forward(t, strings.NewReader(text)); !slices.Equal(got, want) {
		t.Fatalf("%d lines", len(got))
	}
	if got := reversed(t, []byte(text)); !slices.Equal(got, want) {
		t.Fatalf("%d lines from the end", len(got))
	}
}

func reversed(t interface{ Fatal(...any) }, text []byte) []string {
	var lines []string
	err := Backward(bytes.NewReader(text), int64(len(text)), func(line []byte) bool {
		lines = append(lines, string(line))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(lines)
	return lines
}

// However the text is cut into reads, and from whichever end it is read, the lines are the same.
func TestSameLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"\n", "\r", "\r\n", "a", "bc", "\x1b[1m", strings.Repeat("y", chunk/3), strings.Repeat("z", chunk-1)})
		text := strings.Join(rapid.SliceOfN(piece, 0, 14).Draw(t, "pieces"), "")
		want := forward(t, strings.NewReader(text))
		if got := forward(t, iotest.OneByteReader(strings.NewReader(text))); !slices.Equal(got, want) {
			t.Fatalf("%q byte by byte: %q, want %q", text, got, want)
		}
		if got := reversed(t, []byte(text)); !slices.Equal(got, want) {
			t.Fatalf("%q from the end: %q, want %q", text, got, want)
		}
	})
}

func TestReadError(t *testing.T) {
	s := NewScanner(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.New("lost"))))
	var lines []string
	for s.Scan() {
		lines = append(lines, string(s.Line()))
	}
	if !slices.Equal(lines, []string{"a", "b"}) || s.Err() == nil {
		t.Fatal(lines, s.Err())
	}
	if err := Backward(strings.NewReader("a"), 2, func([]byte) bool { return true }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
}

func BenchmarkScanner(b *testing.B) {
	text := strings.Repeat(strings.Repeat("word 1.25 ", 12)+"\n", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for s := NewScanner(strings.NewReader(text)); s.Scan(); {
		}
	}
}

// A compressed log that is cut off or overwritten is an error that says so, wherever that is.
func TestPlainDamaged(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i := range 1000 {
		fmt.Fprintln(z, "step", i, "loss", 1/float64(1+i))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	wrong := bytes.Clone(whole)
	wrong[len(wrong)-5]++ // of the checksum
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"in its header": {whole[:5], "the gzip file is truncated"},
		"in its text":   {whole[:len(whole)/2], "the gzip file is truncated"},
		"at its end":    {whole[:len(whole)-3], "the gzip file is truncated"},
		"overwritten":   {append(append(whole[:10:10], 0xff), whole[11:]...), "the gzip file is damaged"},
		"the checksum":  {wrong, "the gzip file is damaged"},
	} {
		r, err := Plain(bytes.NewReader(c.data))
		if err == nil {
			s := NewScanner(r)
			for s.Scan() {
			}
			err = s.Err()
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestNotText(t *testing.T) {
	random := make([]byte, 200_000)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(random)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(random)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	log := strings.Repeat("\x1b[32mépoque 3\x1b[0m  损失 0.41 │████▌     │\r", 9_000)
	for _, c := range []struct {
		name, log string
		text      bool
	}{
		{"random bytes", string(random), false},
		{"few random bytes", string(random[:40]), false},
		{"random bytes that are compressed", zipped.String(), false},
		{"a log in UTF-8 with colours and bars", log, true},
		{"a log in Latin-1", strings.Repeat("d\xe9but de l'\xe9poque 3, perte 0.41\n", 5_000), true},
		{"zeros at the head", string(make([]byte, 100_000)) + "step 3\n", true},
		{"nothing", "", true},
		{"random bytes behind the head", log + string(random), true},
	} {
		for name, slowly := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader} {
			in, err := Plain(slowly(strings.NewReader(c.log)))
			if err == nil {
				_, err = io.Copy(io.Discard, in)
			}
			if want := map[bool]error{false: ErrNotText}[c.text]; !errors.Is(err, want) {
				t.Errorf("%s, %s: %v, want %v", c.name, name, err, want)
			}
		}
	}
}
