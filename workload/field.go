package workload

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/muster-sched/muster/core"
)

// Limits of the values in a file. They keep every sum within int64: a job's pods times a
// pod's size, a submission time plus a duration.
const (
	maxPods     = 1_000_000
	maxTasks    = 1_000
	maxCPUMilli = 1_000_000_000
	maxMemMiB   = 1_000_000_000
)

// Endless is the duration of jobs that never end by themselves: a hundred years, which is
// also the greatest time in a file.
const Endless = 100 * 365 * 24 * 3600 * core.Second

// field returns the field of the row in column c (counted in the columns that
// were chosen by use), nil when the file has no such column. It is valid until
// the next row.
func (t *table) field(c int) []byte {
	if i := t.index[c]; i >= 0 {
		return t.fields[i]
	}
	return nil
}

// has reports whether the file has column c.
func (t *table) has(c int) bool { return t.index[c] >= 0 }

// wrong records that the field in column c is invalid, unless an earlier field was.
func (t *table) wrong(c int, want string) {
	if t.err == nil {
		t.err = t.fault(t.header[t.index[c]], want+", found "+quote(t.field(c)))
	}
}

// quote quotes a field for a message, shortened to a readable length.
func quote(field []byte) string {
	const most = 40
	if len(field) > most {
		return strconv.Quote(string(field[:most])) + "…"
	}
	return strconv.Quote(string(field))
}

// text reads a name or label, which may be empty.
func (t *table) text(c int) []byte {
	f := t.field(c)
	if !printable(f) {
		t.wrong(c, "text without control characters")
	}
	return f
}

// name reads a name, which may not be empty.
func (t *table) name(c int) []byte {
	f := t.text(c)
	if len(f) == 0 {
		t.wrong(c, "a name")
	}
	return f
}

// printable reports whether text has no control characters.
func printable[T string | []byte](text T) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] == 0x7f {
			return false
		}
	}
	return true
}

// count reads a whole number between low and high.
func (t *table) count(c int, low, high int64) int64 {
	v, ok := parseDecimal(t.field(c), 0)
	if !ok || v < low || v > high {
		t.wrong(c, fmt.Sprintf("a whole number %d..%d", low, high))
		return low
	}
	return v
}

// milli reads a decimal number between 0 and high, in thousandths.
func (t *table) milli(c int, high int64) int64 {
	v, ok := parseDecimal(t.field(c), 3)
	if !ok || v > high*1000 {
		t.wrong(c, fmt.Sprintf("a number 0..%d with at most 3 decimals", high))
		return 0
	}
	return v
}

// seconds reads a time, in seconds.
func (t *table) seconds(c int) core.Time { return t.time(c, core.Second, "seconds") }

// time reads a time given as a decimal number of units.
func (t *table) time(c int, unit core.Time, units string) core.Time {
	v, ok := parseDecimal(t.field(c), 9)
	if most := int64(Endless / unit); !ok || v > most*1e9 {
		t.wrong(c, fmt.Sprintf("%s 0..%d with at most 9 decimals", units, most))
		return 0
	}
	return core.Time(v) * (unit / core.Second)
}

// parseDecimal parses digits with an optional fraction as a number of
// 10^-scale. It refuses signs, exponents, more decimals than scale (unless they
// are zeros) and numbers that overflow.
func parseDecimal(text []byte, scale int) (v int64, ok bool) {
	whole, fraction, dotted := bytes.Cut(text, []byte("."))
	if len(whole) == 0 || dotted && len(fraction) == 0 {
		return 0, false
	}
	for len(fraction) > scale && fraction[len(fraction)-1] == '0' {
		fraction = fraction[:len(fraction)-1]
	}
	if len(fraction) > scale {
		return 0, false
	}
	v, ok = appendDigits(0, whole)
	if ok {
		v, ok = appendDigits(v, fraction)
	}
	for i := len(fraction); ok && i < scale; i++ {
		v, ok = appendDigits(v, []byte("0"))
	}
	return v, ok
}

// appendDigits returns the number with the decimal digits of v, then digits.
func appendDigits(v int64, digits []byte) (int64, bool) {
	const most = (1<<63 - 1) / 10
	for _, d := range digits {
		if d < '0' || d > '9' || v > most || v == most && d > '7' {
			return 0, false
		}
		v = v*10 + int64(d-'0')
	}
	return v, true
}
