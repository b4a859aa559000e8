package strict

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Enum is a string type that accepts certain values only.
type Enum interface{ Values() []string }

// Decode reads the document into the struct that into points to.
//
// Types beyond the plain ones say how they are read: an [Enum] lists its
// values; an [encoding.TextUnmarshaler] gets the text of a string, number or
// boolean, and its error says what is expected; a struct that is one as well
// may be written either way.
func (s *Source) Decode(into any) error {
	return s.value("", s.root, reflect.ValueOf(into).Elem(), "")
}

// value reads n, which stands at path, into v. bounds is the tag of v's field.
func (s *Source) value(path string, n ast.Node, v reflect.Value, bounds reflect.StructTag) error {
	if isNull(n) && nullable(v.Kind()) {
		return nil
	}
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		v.Set(p)
		return s.value(path, n, p.Elem(), bounds)
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok && !(v.Kind() == reflect.Struct && isMapping(n)) {
		return s.text(path, n, u)
	}
	switch v.Kind() {
	case reflect.Struct:
		return s.object(path, n, v)
	case reflect.Slice:
		return s.list(path, n, v, bounds)
	case reflect.Map:
		return s.strings(path, n, v)
	case reflect.String:
		return s.str(path, n, v)
	case reflect.Bool:
		return s.boolean(path, n, v)
	case reflect.Int, reflect.Int8, reflect.Int32, reflect.Int64:
		return s.whole(path, n, v, bounds)
	case reflect.Float64:
		return s.number(path, n, v, bounds)
	}
	panic("strict: no way to read a " + v.Type().String())
}

func nullable(k reflect.Kind) bool {
	return k == reflect.Pointer || k == reflect.Slice || k == reflect.Map
}

func (s *Source) wrong(path string, n ast.Node, want string) error {
	return s.errorAt(line(n), path, "%s; found %s", want, describe(n))
}

func (s *Source) text(path string, n ast.Node, u encoding.TextUnmarshaler) error {
	text, ok := scalar(n)
	if !ok {
		text = ""
	}
	if err := u.UnmarshalText([]byte(text)); err != nil || !ok {
		want := "a name or a number"
		if err != nil {
			want = err.Error()
		}
		return s.wrong(path, n, want)
	}
	return nil
}

func (s *Source) object(path string, n ast.Node, v reflect.Value) error {
	if !isMapping(n) {
		return s.wrong(path, n, "an object")
	}
	fields := s.fieldsOf(v.Type())
	seen := map[string]bool{}
	for _, p := range pairs(n) {
		name := keyText(p)
		f, ok := fields.named(name)
		if !ok {
			return s.errorAt(line(p), join(path, name), "one of %s; found an unknown field", strings.Join(fields.names(), ", "))
		}
		if seen[name] {
			return s.errorAt(line(p), join(path, name), "each field once; found it again")
		}
		seen[name] = true
		if err := s.value(join(path, name), orKey(p), v.FieldByIndex(f.Index), f.Tag); err != nil {
			return err
		}
	}
	for _, f := range fields {
		if f.required && !seen[f.name] {
			return s.errorAt(line(n), join(path, f.name), "this field; found nothing")
		}
	}
	return nil
}

// orKey returns the value of p, or a null that stands at its key.
func orKey(p *ast.MappingValueNode) ast.Node {
	if isNull(p.Value) && p.Key != nil {
		return ast.Null(p.Key.GetToken())
	}
	return p.Value
}

func (s *Source) list(path string, n ast.Node, v reflect.Value, bounds reflect.StructTag) error {
	l, ok := n.(*ast.SequenceNode)
	if !ok {
		return s.wrong(path, n, "a list")
	}
	v.Set(reflect.MakeSlice(v.Type(), len(l.Values), len(l.Values)))
	for i, e := range l.Values {
		if err := s.value(fmt.Sprintf("%s[%d]", path, i), e, v.Index(i), bounds); err != nil {
			return err
		}
	}
	return nil
}

// strings reads a map from names to strings.
func (s *Source) strings(path string, n ast.Node, v reflect.Value) error {
	if !isMapping(n) {
		return s.wrong(path, n, "an object")
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, p := range pairs(n) {
		key := reflect.ValueOf(keyText(p))
		at := join(path, keyText(p))
		if v.MapIndex(key).IsValid() {
			return s.errorAt(line(p), at, "each field once; found it again")
		}
		e := reflect.New(v.Type().Elem()).Elem()
		if err := s.value(at, orKey(p), e, ""); err != nil {
			return err
		}
		v.SetMapIndex(key, e)
	}
	return nil
}

func (s *Source) str(path string, n ast.Node, v reflect.Value) error {
	text, ok := scalar(n)
	if e, is := v.Interface().(Enum); is {
		if !ok || !slices.Contains(e.Values(), text) {
			return s.wrong(path, n, "one of "+strings.Join(e.Values(), ", "))
		}
	} else if n.Type() != ast.StringType && n.Type() != ast.LiteralType {
		want := "a string"
		if ok {
			want = fmt.Sprintf("a string, in quotes (%q)", shorten(text))
		}
		return s.wrong(path, n, want)
	}
	v.SetString(text)
	return nil
}

func (s *Source) boolean(path string, n ast.Node, v reflect.Value) error {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		return s.wrong(path, n, "true or false")
	}
	v.SetBool(b.Value)
	return nil
}

func (s *Source) whole(path string, n ast.Node, v reflect.Value, bounds reflect.StructTag) error {
	i, ok := integer(n)
	if !ok || v.OverflowInt(i) || !inside(float64(i), bounds) {
		return s.wrong(path, n, "a whole number"+boundsText(bounds))
	}
	v.SetInt(i)
	return nil
}

func integer(n ast.Node) (int64, bool) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch x := i.Value.(type) {
	case int64:
		return x, true
	case uint64:
		return int64(x), x <= math.MaxInt64
	}
	return 0, false
}

func (s *Source) number(path string, n ast.Node, v reflect.Value, bounds reflect.StructTag) error {
	i, ok := integer(n)
	x := float64(i)
	if f, is := n.(*ast.FloatNode); is {
		x, ok = f.Value, true
	}
	if !ok || !inside(x, bounds) {
		return s.wrong(path, n, "a number"+boundsText(bounds))
	}
	v.SetFloat(x)
	return nil
}

// bound returns the number in a min or max tag.
func bound(tag reflect.StructTag, name string) (float64, bool) {
	text, ok := tag.Lookup(name)
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil
}

func inside(x float64, tag reflect.StructTag) bool {
	least, low := bound(tag, "min")
	most, high := bound(tag, "max")
	return !(low && x < least) && !(high && x > most)
}

func boundsText(tag reflect.StructTag) string {
	least, low := tag.Lookup("min")
	most, high := tag.Lookup("max")
	switch {
	case low && high:
		return " from " + least + " to " + most
	case low:
		return ", at least " + least
	case high:
		return ", at most " + most
	}
	return ""
}

// field is a field of a struct as a document names it.
type field struct {
	reflect.StructField
	name     string
	required bool
}

type fields []field

// fieldsOf lists the fields with a json name, and those of embedded structs
// without one.
func (s *Source) fieldsOf(t reflect.Type) fields {
	if known, ok := s.fields[t]; ok {
		return known
	}
	var all fields
	var named []int // the last embedded struct with a name of its own: its fields are below that name
	for _, f := range reflect.VisibleFields(t) {
		if named != nil && len(f.Index) > len(named) && slices.Equal(f.Index[:len(named)], named) {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		if f.Anonymous {
			named = f.Index
		}
		optional := slices.ContainsFunc(strings.Split(options, ","), func(o string) bool { return o == "omitempty" || o == "omitzero" })
		all = append(all, field{f, name, !optional})
	}
	s.fields[t] = all
	return all
}

func (fs fields) named(name string) (field, bool) {
	i := slices.IndexFunc(fs, func(f field) bool { return f.name == name })
	if i < 0 {
		return field{}, false
	}
	return fs[i], true
}

func (fs fields) names() []string {
	var all []string
	for _, f := range fs {
		all = append(all, f.name)
	}
	return all
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
