package eventlog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// longestLine bounds the length of a line.
const longestLine = 256 << 20

// Read returns the entries of a file, compressed or not, or of a folder's files in their
// order. Where a file continues the one before, Read omits the snapshot at its beginning,
// so that the entries are those of one engine. Read drops a line that is cut off at the
// end of a file, as after a crash. After an error, of type [*workload.Error], Read stops.
func Read(path string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		r := reader{yield: yield}
		if err := r.all(path); err != nil && !errors.Is(err, errEnough) {
			yield(Entry{}, err)
		}
	}
}

// errEnough reports that the caller wants no more entries.
var errEnough = errors.New("no more is wanted")

// reader reads a sequence of files.
type reader struct {
	yield func(Entry, error) bool
	last  *Header // of the file before
	whole bool    // it was read to its end
	now   core.Time
	lines int // of all files
}

func (r *reader) all(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return unreadable(path, err)
	}
	if !info.IsDir() {
		err = r.file(path)
	} else {
		err = r.folder(path)
	}
	if err == nil && r.lines == 0 {
		err = &workload.Error{File: path, Want: "an event log, found an empty file"}
	}
	return err
}

func (r *reader) folder(path string) error {
	files, err := list(path)
	if err != nil {
		return unreadable(path, err)
	}
	if len(files) == 0 {
		return &workload.Error{File: path, Want: "a folder with files " + name(1) + ", found none"}
	}
	for _, n := range files {
		if err := r.file(filepath.Join(path, name(n))); err != nil {
			return err
		}
	}
	return nil
}

func unreadable(path string, err error) error {
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return &workload.Error{File: path, Want: "a readable event log; found: " + err.Error()}
}

// file reads a file.
func (r *reader) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return unreadable(path, err)
	}
	defer f.Close()
	return r.text(path, f)
}

// text reads an open file.
func (r *reader) text(path string, f io.Reader) error {
	raw := bufio.NewReaderSize(f, 1<<16)
	in := raw
	if magic, _ := raw.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(raw)
		if cut(err) {
			r.whole = false
			return nil
		}
		if err != nil {
			return unreadable(path, err)
		}
		in = bufio.NewReaderSize(z, 1<<18)
	}
	var header *Header
	snapshot := 0 // lines of it that are left
	skip := false
	for n := 1; ; n++ {
		text, err := readLine(in)
		if err != nil && !cut(err) {
			return unreadable(fmt.Sprintf("%s:%d", path, n), err)
		}
		if err != nil {
			r.whole = err == io.EOF && header != nil
			return nil
		}
		e, wrong := parse(text)
		if wrong == nil {
			e.File, e.Line = path, n
			wrong = r.check(&e, n, header)
		}
		if wrong != nil {
			wrong.File, wrong.Line = path, n
			return wrong
		}
		r.lines++
		if e.Begin != nil {
			header, snapshot = e.Begin, e.Begin.Snapshot
			skip = r.follows(header)
			r.last = header
		} else {
			e.Restored = snapshot > 0
			snapshot = max(0, snapshot-1)
		}
		r.now = e.Now
		if skip && (e.Begin != nil || e.Restored) {
			continue
		}
		if !r.yield(e, nil) {
			return errEnough
		}
	}
}

// check returns an error if the n-th line of a file with that header is invalid.
func (r *reader) check(e *Entry, n int, header *Header) *workload.Error {
	switch {
	case n == 1 && e.Begin == nil:
		return &workload.Error{Field: "begin", Want: "the header of an event log in the first line, found another line"}
	case n > 1 && e.Begin != nil:
		return &workload.Error{Field: "begin", Want: "the header of an event log only in the first line, found another"}
	case header != nil && e.Now < r.now:
		return &workload.Error{Field: "t", Want: fmt.Sprintf("a time of at least that of the line above, %d, found %d", r.now, e.Now)}
	}
	return nil
}

// follows reports whether a file continues where the one before it ended.
func (r *reader) follows(h *Header) bool {
	return r.last != nil && r.whole && !h.Gap && h.Engine == r.last.Engine && h.Part == r.last.Part+1
}

// cut reports whether an error is the end of a file, expected or not.
func cut(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// readLine returns a line without its end; io.EOF after the last, and
// io.ErrUnexpectedEOF for one without an end.
func readLine(in *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := in.ReadSlice('\n')
		switch {
		case err == bufio.ErrBufferFull:
			if long = append(long, part...); len(long) > longestLine {
				return nil, fmt.Errorf("a line of more than %d MiB", longestLine>>20)
			}
		case err == io.EOF && len(long)+len(part) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case long != nil:
			return append(long, part[:len(part)-1]...), nil
		default:
			return part[:len(part)-1], nil
		}
	}
}
