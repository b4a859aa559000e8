package eventlog

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/muster-sched/muster/core"
)

// Lines are JSON that encoding/json decodes to the same values. Zero fields, which are
// most fields of most events, are omitted. Keys are the names of the fields in core.

// appendHeader appends the line of a header.
func appendHeader(b []byte, now core.Time, h *Header) []byte {
	b = append(appendTime(b, now), `,"begin":`...)
	return append(appendValue(b, reflect.ValueOf(h).Elem()), '}', '\n')
}

// appendEvent appends the line of an event.
func appendEvent(b []byte, now core.Time, ev core.Event) []byte {
	v := reflect.ValueOf(ev)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	b = append(appendTime(b, now), `,"`...)
	b = append(append(b, v.Type().Name()...), `":`...)
	return append(appendValue(b, v), '}', '\n')
}

// appendPass appends the line of a pass.
func appendPass(b []byte, now core.Time, ds []core.Decision) []byte {
	b = append(appendTime(b, now), `,"pass":[`...)
	for i := range ds {
		if i > 0 {
			b = append(b, ',')
		}
		d := &ds[i]
		b = appendValue(b, reflect.ValueOf(decision{d.Op.String(), d.Job, d.Node, d.Reason.String(), d.Pods, d.Detail, d.For, d.At}))
	}
	return append(b, "]}\n"...)
}

func appendTime(b []byte, now core.Time) []byte {
	return strconv.AppendInt(append(b, `{"t":`...), int64(now), 10)
}

// decision is a [core.Decision] as a line spells it.
type decision struct {
	Op     string
	Job    string
	Node   string
	Reason string
	Pods   []core.Placement
	Detail string
	For    string
	At     core.Time
}

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10)
	case reflect.Float64:
		return strconv.AppendFloat(b, v.Float(), 'g', -1, 64)
	case reflect.String:
		return appendString(b, v.String())
	case reflect.Slice, reflect.Array:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, v.Index(i))
		}
		return append(b, ']')
	case reflect.Map: // from texts
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k.String()), ':')
			b = appendValue(b, v.MapIndex(k))
		}
		return append(b, '}')
	case reflect.Pointer: // nil ones are left out, as all fields that are zero
		return appendValue(b, v.Elem())
	case reflect.Struct:
		b = append(b, '{')
		b, _ = appendFields(b, v, true)
		return append(b, '}')
	}
	panic("eventlog: no way to write a " + v.Type().String())
}

// appendFields appends the fields of a struct and of its embedded structs. first is set
// if no field precedes them.
func appendFields(b []byte, v reflect.Value, first bool) ([]byte, bool) {
	for i, key := range keysOf(v.Type()) {
		f := v.Field(i)
		switch {
		case f.IsZero():
			continue
		case key == "":
			b, first = appendFields(b, f, first)
			continue
		case !first:
			b = append(b, ',')
		}
		b, first = appendValue(append(b, key...), f), false
	}
	return b, first
}

var keysByType sync.Map // from reflect.Type to []string

// keysOf returns the text before the value of each field of a struct type, empty for an
// embedded field.
func keysOf(t reflect.Type) []string {
	if keys, ok := keysByType.Load(t); ok {
		return keys.([]string)
	}
	keys := make([]string, t.NumField())
	for i := range keys {
		if f := t.Field(i); !f.Anonymous {
			keys[i] = `"` + key(f.Name) + `":`
		}
	}
	keysByType.Store(t, keys)
	return keys
}

// key writes the name of a field with a small letter: gpus for GPUs, cpuMilli
// for CPUMilli.
func key(name string) string {
	n := 0
	for n < len(name) && unicode.IsUpper(rune(name[n])) {
		n++
	}
	if rest := name[n:]; n > 1 && rest != "" && rest != "s" {
		n--
	}
	return strings.ToLower(name[:n]) + name[n:]
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // texts have no error
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
