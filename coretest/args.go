package coretest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/muster-sched/muster/core"
)

// line is a command with its arguments. The first thing wrong with it stays in
// err; an argument that was not asked for is wrong too.
type line struct {
	text string
	cmd  string
	name string // the first argument, when it has no value
	args []datadriven.CmdArg
	used []bool
	err  error
}

func parseLine(text string) *line {
	cmd, args, err := datadriven.ParseLine(text)
	l := &line{text: text, cmd: cmd, err: err}
	if len(args) > 0 && len(args[0].Vals) == 0 {
		l.name, args = args[0].Key, args[1:]
	}
	l.args, l.used = args, make([]bool, len(args))
	for i, a := range args {
		if slices.ContainsFunc(args[:i], func(o datadriven.CmdArg) bool { return o.Key == a.Key }) {
			l.wrong("%s is given twice", a.Key)
		}
	}
	return l
}

func (l *line) wrong(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf(format, args...)
	}
}

// finish reports what is wrong with the line.
func (l *line) finish() error {
	for i, used := range l.used {
		if !used {
			l.wrong("argument %s is not known to %s", l.args[i].Key, l.cmd)
		}
	}
	if l.err != nil {
		return fmt.Errorf("%q: %w", l.text, l.err)
	}
	return nil
}

// take returns the values of an argument; false when it is not there.
func (l *line) take(key string) ([]string, bool) {
	for i := range l.args {
		if l.args[i].Key == key {
			l.used[i] = true
			return l.args[i].Vals, true
		}
	}
	return nil, false
}

// flag reports whether an argument without a value is there.
func (l *line) flag(key string) bool {
	vals, ok := l.take(key)
	if len(vals) > 0 {
		l.wrong("%s takes no value", key)
	}
	return ok
}

// word returns the only value of an argument, or other when it is not there.
func (l *line) word(key, other string) string {
	vals, ok := l.take(key)
	if !ok {
		return other
	}
	if len(vals) != 1 || vals[0] == "" {
		l.wrong("%s takes one value", key)
		return other
	}
	return vals[0]
}

// list returns all values of an argument.
func (l *line) list(key string) []string {
	vals, ok := l.take(key)
	if ok && len(vals) == 0 {
		l.wrong("%s takes values", key)
	}
	return vals
}

func (l *line) number(key string, other int) int {
	w := l.word(key, "")
	if w == "" {
		return other
	}
	n, err := strconv.Atoi(w)
	if err != nil {
		l.wrong("%s=%s: a whole number is expected", key, w)
	}
	return n
}

// milli returns thousandths of what the argument counts.
func (l *line) milli(key string, other int64) int64 {
	w := l.word(key, "")
	if w == "" {
		return other
	}
	return l.thousandths(key, w)
}

func (l *line) thousandths(key, w string) int64 {
	f, err := strconv.ParseFloat(w, 64)
	if err != nil {
		l.wrong("%s=%s: a number is expected", key, w)
	}
	return int64(math.Round(f * 1000))
}

// time reads a duration in seconds, minutes or hours: 90s, 1.5m, 2h.
func (l *line) time(key string, other core.Time) core.Time {
	w := l.word(key, "")
	if w == "" {
		return other
	}
	return l.duration(key, w)
}

// duration reads a duration as time does.
func (l *line) duration(key, w string) core.Time {
	unit := map[byte]core.Time{'s': core.Second, 'm': 60 * core.Second, 'h': 3600 * core.Second}[w[len(w)-1]]
	f, err := strconv.ParseFloat(w[:len(w)-1], 64)
	if unit == 0 || err != nil {
		l.wrong("%s=%s: a time such as 90s, 1.5m or 2h is expected", key, w)
	}
	return core.Time(f * float64(unit))
}

// switched reads on or off.
func (l *line) switched(key string, other bool) bool {
	switch w := l.word(key, ""); w {
	case "":
		return other
	case "on", "off":
		return w == "on"
	default:
		l.wrong("%s=%s: on or off is expected", key, w)
		return other
	}
}

// oneOf returns the place of a value among names.
func (l *line) oneOf(key string, names []string, other int) int {
	w := l.word(key, "")
	if w == "" {
		return other
	}
	i := slices.Index(names, w)
	if i < 0 {
		l.wrong("%s=%s: one of %s is expected", key, w, strings.Join(names, ", "))
		return other
	}
	return i
}

// pair splits a value at sep.
func (l *line) pair(key, val, sep string) (string, string) {
	a, b, ok := strings.Cut(val, sep)
	if !ok || a == "" || b == "" {
		l.wrong("%s: %q: expected two words with %q between them", key, val, sep)
	}
	return a, b
}

func pairs(l *line, key string) map[string]string {
	var out map[string]string
	for _, v := range l.list(key) {
		if out == nil {
			out = map[string]string{}
		}
		k, w := l.pair(key, v, "=")
		out[k] = w
	}
	return out
}
