package audit

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/workload"
)

// file is an open file, uncompressed when its name ends in .gz.
type file struct {
	path string
	in   io.Reader
	f    *os.File
}

func open(path string) (file, error) {
	f, err := os.Open(path)
	if err != nil {
		return file{}, badFile(path, err)
	}
	in := io.Reader(bufio.NewReaderSize(f, 1<<18))
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			f.Close()
			return file{}, badFile(path, err)
		}
	}
	return file{path, in, f}, nil
}

func (f *file) close() { f.f.Close() }

// csvFile reads rows by the names of their columns.
type csvFile struct {
	file
	csv    *csv.Reader
	column map[string]int
	row    []string
	err    error // of the last row's fields
}

func openCSV(path string, columns ...string) (csvFile, error) {
	f, err := open(path)
	if err != nil {
		return csvFile{}, err
	}
	c := csvFile{file: f, csv: csv.NewReader(f.in), column: map[string]int{}}
	c.csv.ReuseRecord = true
	header, err := c.csv.Read()
	if err != nil {
		f.close()
		return csvFile{}, badFile(path, err)
	}
	for i, name := range header {
		c.column[name] = i
	}
	for _, name := range columns {
		if !slices.Contains(header, name) {
			f.close()
			return csvFile{}, &workload.Error{File: path, Line: 1, Field: name, Want: "this column"}
		}
	}
	return c, nil
}

// next reads a row; false after the last one, or with an error.
func (c *csvFile) next() (bool, error) {
	row, err := c.csv.Read()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, badFile(c.path, err)
	}
	c.row, c.err = row, nil
	return true, nil
}

// text returns a field, which is valid as long as it is kept.
func (c *csvFile) text(column string) string { return c.row[c.column[column]] }

// optional is text, empty without such a column.
func (c *csvFile) optional(column string) string {
	if _, ok := c.column[column]; !ok {
		return ""
	}
	return c.text(column)
}

func (c *csvFile) wrong(column, want string) {
	if c.err == nil {
		line, _ := c.csv.FieldPos(0)
		c.err = &workload.Error{File: c.path, Line: line, Field: column,
			Want: fmt.Sprintf("%s, found %q", want, c.text(column))}
	}
}

func (c *csvFile) int(column string) int64 {
	v, err := strconv.ParseInt(c.text(column), 10, 64)
	if err != nil {
		c.wrong(column, "a whole number")
	}
	return v
}

func (c *csvFile) bool(column string) bool {
	v, err := strconv.ParseBool(c.text(column))
	if err != nil {
		c.wrong(column, "true or false")
	}
	return v
}

// time reads seconds as nanoseconds; -1 when the field is empty.
func (c *csvFile) time(column string) int64 {
	text := c.text(column)
	if text == "" {
		return -1
	}
	t, rest, ok := cutSeconds([]byte(text))
	if !ok || len(rest) > 0 {
		c.wrong(column, "seconds")
	}
	return t
}

// optionalTime is time for a column that need not be there; 0 without it.
func (c *csvFile) optionalTime(column string) int64 {
	if c.optional(column) == "" {
		return 0
	}
	return c.time(column)
}

// cutSeconds parses the decimal number of seconds that text begins with, as
// nanoseconds. Further decimals are dropped.
func cutSeconds(text []byte) (t int64, rest []byte, ok bool) {
	i := 0
	for ; i < len(text) && '0' <= text[i] && text[i] <= '9'; i++ {
		t = t*10 + int64(text[i]-'0')
	}
	ok = i > 0 && i < 11
	t *= 1e9
	if i < len(text) && text[i] == '.' {
		i++
		for unit := int64(1e8); i < len(text) && '0' <= text[i] && text[i] <= '9'; i++ {
			t += int64(text[i]-'0') * unit
			unit /= 10
		}
	}
	return t, text[i:], ok
}

// seconds writes nanoseconds for a message; negative ones are no time.
func seconds(t int64) string {
	if t < 0 {
		return "never"
	}
	return strconv.FormatFloat(float64(t)/1e9, 'f', -1, 64) + " s"
}
