package workload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
)

// maxLine bounds a line of an input, so that a file without line ends fails
// instead of filling the memory.
const maxLine = 1 << 20

// table reads a CSV file row by row, strictly: every row has as many fields as
// the header, the text is UTF-8, quoting follows RFC 4180 except that a quoted
// field ends on its line. CRLF, a byte order mark and empty lines are
// tolerated. It holds one line at a time.
type table struct {
	file  string
	lines *bufio.Reader
	close func() error
	line  int
	// header is the first row; index maps the columns of a format, in the format's order,
	// to positions in a row, -1 for a missing column.
	header []string
	index  []int
	// fields are those of the last row; they alias the line buffer and scratch.
	fields  [][]byte
	scratch []byte
	// err is the first thing wrong with the last row's fields.
	err *Error
}

// openTable opens a plain or gzip-compressed CSV file and reads its header.
func openTable(path string) (*table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &Error{File: path, Want: "a readable file or a built-in name: " + cause(err)}
	}
	t, err := newTable(path, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	t.close = f.Close
	return t, nil
}

// newTable reads the header of the CSV text in r, which is called file in
// errors.
func newTable(file string, r io.Reader) (*table, error) {
	t := &table{file: file, close: func() error { return nil }}
	raw := bufio.NewReaderSize(r, 1<<16)
	t.lines = bufio.NewReaderSize(raw, maxLine)
	if magic, _ := raw.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, t.broken(err)
		}
		t.lines.Reset(z)
	}
	if bom, _ := t.lines.Peek(3); string(bom) == "\ufeff" {
		t.lines.Discard(3)
	}
	switch err := t.read(); {
	case err == io.EOF:
		return nil, &Error{File: file, Want: "a header row, found an empty file"}
	case err != nil:
		return nil, err
	}
	for _, f := range t.fields {
		t.header = append(t.header, string(f))
	}
	return t, nil
}

// use chooses the columns that field numbers refer to from now on, required
// ones first.
func (t *table) use(required, optional []string) {
	t.index = t.index[:0]
	for _, name := range slices.Concat(required, optional) {
		t.index = append(t.index, slices.Index(t.header, name))
	}
}

// next reads the next row. It returns io.EOF after the last, else an *Error.
func (t *table) next() error {
	t.err = nil
	if err := t.read(); err != nil {
		return err
	}
	if len(t.fields) != len(t.header) {
		return t.fault("", fmt.Sprintf("%d fields as in the header, found %d", len(t.header), len(t.fields)))
	}
	return nil
}

// read reads the next line that is not empty and splits it.
func (t *table) read() error {
	for {
		line, err := t.lines.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return io.EOF
		}
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return t.broken(err)
		}
		t.line++
		if err == bufio.ErrBufferFull {
			return t.fault("", fmt.Sprintf("a line of at most %d bytes", maxLine))
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if len(line) == 0 {
			continue
		}
		if !utf8.Valid(line) {
			return t.fault("", "UTF-8 text")
		}
		return t.split(line)
	}
}

// split cuts a line into t.fields.
func (t *table) split(line []byte) error {
	t.fields = t.fields[:0]
	if bytes.IndexByte(line, '"') >= 0 {
		return t.splitQuoted(line)
	}
	for {
		i := bytes.IndexByte(line, ',')
		if i < 0 {
			t.fields = append(t.fields, line)
			return nil
		}
		t.fields = append(t.fields, line[:i])
		line = line[i+1:]
	}
}

// splitQuoted is split for lines with quotes. Fields are unquoted into scratch,
// which never grows past the line and is not reallocated meanwhile.
func (t *table) splitQuoted(line []byte) error {
	t.scratch = slices.Grow(t.scratch[:0], len(line))
	for {
		rest, ok := t.cutField(line)
		if !ok {
			return t.fault("", `quotes only around whole fields, doubled inside them and closed on their line`)
		}
		if rest == nil {
			return nil
		}
		line = rest[1:]
	}
}

// cutField appends the first field of line to t.fields and returns the rest,
// which starts with a comma or is nil at the end of the line.
func (t *table) cutField(line []byte) (rest []byte, ok bool) {
	if len(line) == 0 || line[0] != '"' {
		end := bytes.IndexByte(line, ',')
		if end < 0 {
			end = len(line)
		}
		t.fields = append(t.fields, line[:end])
		return tail(line[end:]), bytes.IndexByte(line[:end], '"') < 0
	}
	start := len(t.scratch)
	for line = line[1:]; ; line = line[1:] {
		i := bytes.IndexByte(line, '"')
		if i < 0 {
			return nil, false
		}
		t.scratch = append(t.scratch, line[:i]...)
		line = line[i+1:]
		if len(line) == 0 || line[0] != '"' {
			break
		}
		t.scratch = append(t.scratch, '"')
	}
	t.fields = append(t.fields, t.scratch[start:])
	return tail(line), len(line) == 0 || line[0] == ','
}

// tail returns nil for an empty rest.
func tail(rest []byte) []byte {
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// broken returns the error that the file cannot be read beyond the current line.
func (t *table) broken(err error) *Error {
	want := "readable data: " + cause(err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		want = "the rest of the gzip data, found the end of the file: it is truncated"
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		want = "intact gzip data: " + cause(err)
	}
	return &Error{File: t.file, Line: t.line, Want: want}
}

// fault returns the error that the current line, or a field of it, is invalid.
func (t *table) fault(field, want string) *Error {
	return &Error{File: t.file, Line: t.line, Field: field, Want: want}
}

// cause is the last part of an operating system's error message: the file is
// named by the [Error] around it.
func cause(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, ": "); i >= 0 {
		s = s[i+2:]
	}
	return s
}
