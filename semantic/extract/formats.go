package extract

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/pelletier/go-toml/v2/unstable"
)

// This file reads the formats of configurations.

type yamlReader struct {
	file    string
	anchors map[string]ast.Node
	nodes   int
}

func readYAML(file string, data []byte) *node {
	if deep(data) || indented(data) {
		return nil
	}
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil
	}
	all := newMap(where(file, 1))
	for _, d := range f.Docs {
		if d.Body == nil {
			continue
		}
		r := yamlReader{file: file, anchors: map[string]ast.Node{}}
		if n := r.node(d.Body, 0); n != nil && n.fields != nil {
			all.merge(n)
		}
	}
	return all
}

// deep is whether brackets in data nest deeper than a configuration of people does: parsers take long for those.
func deep(data []byte) bool {
	depth := 0
	for _, c := range data {
		switch c {
		case '[', '{':
			if depth++; depth > 2*maxNested {
				return true
			}
		case ']', '}':
			depth--
		}
	}
	return false
}

// indented is whether data is indented deeper than a configuration of people is.
func indented(data []byte) bool {
	var levels []int
	for line := range bytes.Lines(data) {
		indent := len(line) - len(bytes.TrimLeft(line, " -"))
		if bytes.Contains(line, []byte("- - - - - - - - ")) {
			return true
		}
		if indent == len(line) || line[indent] == '\n' || line[indent] == '#' {
			continue
		}
		for len(levels) > 0 && levels[len(levels)-1] >= indent {
			levels = levels[:len(levels)-1]
		}
		if levels = append(levels, indent); len(levels) > maxNested {
			return true
		}
	}
	return false
}

// readJSON reads JSON, also with comments.
func readJSON(file string, data []byte) *node {
	if n := readStrictJSON(file, data); n != nil {
		return n
	}
	return readStrictJSON(file, notJSON.ReplaceAllFunc(data, func(m []byte) []byte {
		if m[0] == '"' {
			return m
		}
		return bytes.Repeat([]byte("\n"), bytes.Count(m, []byte("\n")))
	}))
}

// notJSON are strings, which stay, and comments, which JSON does not have.
var notJSON = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*[\s\S]*?\*/`)

func readStrictJSON(file string, data []byte) *node {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	line, seen := 1, 0
	at := func() string {
		o := int(d.InputOffset())
		line += bytes.Count(data[seen:o], []byte("\n"))
		seen = o
		return where(file, line)
	}
	var read func(depth int) *node
	read = func(depth int) *node {
		t, err := d.Token()
		if err != nil || depth > maxNested {
			return nil
		}
		switch t := t.(type) {
		case json.Delim:
			if t == '{' {
				m := newMap(at())
				for d.More() {
					k, err := d.Token()
					key, ok := k.(string)
					if err != nil || !ok {
						return nil
					}
					v := read(depth + 1)
					if v == nil {
						return nil
					}
					m.set(key, v)
				}
				if _, err := d.Token(); err != nil {
					return nil
				}
				return m
			}
			l := &node{list: true, at: at()}
			for d.More() {
				v := read(depth + 1)
				if v == nil {
					return nil
				}
				l.items = append(l.items, v)
			}
			if _, err := d.Token(); err != nil {
				return nil
			}
			return l
		case string:
			return &node{scalar: t, at: at()}
		case json.Number:
			return &node{scalar: t.String(), at: at()}
		case bool:
			return &node{scalar: map[bool]string{true: "true", false: "false"}[t], at: at()}
		}
		return &node{at: at()}
	}
	return read(0)
}

func readTOML(file string, data []byte) *node {
	if deep(data) {
		return nil
	}
	var p unstable.Parser
	p.Reset(data)
	all := newMap(where(file, 1))
	section := all
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			name, at := tomlKey(&p, file, e)
			section = newMap(at)
			if old := all.get(name); old != nil && old.fields != nil && e.Kind == unstable.Table {
				section = old
			}
			all.put(name, section)
		case unstable.KeyValue:
			name, at := tomlKey(&p, file, e)
			section.put(name, tomlValue(e.Value(), at, 0))
		}
	}
	if p.Error() != nil && len(all.keys) == 0 {
		return nil
	}
	return all
}

func tomlKey(p *unstable.Parser, file string, e *unstable.Node) (name, at string) {
	var parts []string
	line := 1
	for k := e.Key(); k.Next(); {
		line = p.Shape(k.Node().Raw).Start.Line
		parts = append(parts, string(k.Node().Data))
	}
	return strings.Join(parts, "."), where(file, line)
}

func tomlValue(v *unstable.Node, at string, depth int) *node {
	n := &node{at: at}
	if depth > maxNested {
		return n
	}
	switch v.Kind {
	case unstable.Array:
		n.list = true
		for c := v.Children(); c.Next(); {
			n.items = append(n.items, tomlValue(c.Node(), at, depth+1))
		}
	case unstable.InlineTable:
		n.fields = map[string]*node{}
		for c := v.Children(); c.Next(); {
			var parts []string
			for k := c.Node().Key(); k.Next(); {
				parts = append(parts, string(k.Node().Data))
			}
			n.put(strings.Join(parts, "."), tomlValue(c.Node().Value(), at, depth+1))
		}
	default:
		n.scalar = string(v.Data)
	}
	return n
}

func readINI(file string, data []byte) *node {
	all := newMap(where(file, 1))
	section := ""
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			section = strings.Trim(line, "[]") + "."
			continue
		}
		n := strings.IndexAny(line, "=:")
		if n <= 0 {
			continue
		}
		text, _, _ := strings.Cut(line[n+1:], " #")
		all.put(section+strings.TrimSpace(line[:n]), &node{scalar: strings.Trim(strings.TrimSpace(text), `"'`), at: where(file, i+1)})
	}
	return all
}

// readPrototext reads the text form of protocol buffers: name { and name: value, line by line.
func readPrototext(file string, data []byte) *node {
	stack := []*node{newMap(where(file, 1))}
	for i, line := range strings.Split(string(data), "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		top := stack[len(stack)-1]
		name, text, assigns := strings.Cut(line, ":")
		switch {
		case strings.HasSuffix(line, "{") && len(stack) < maxNested:
			n := newMap(where(file, i+1))
			top.set(strings.TrimRight(strings.TrimSuffix(line, "{"), ": "), n)
			stack = append(stack, n)
		case strings.HasPrefix(line, "}") && len(stack) > 1:
			stack = stack[:len(stack)-1]
		case assigns:
			top.set(strings.TrimSpace(name), &node{scalar: strings.Trim(strings.TrimSpace(text), `"'`), at: where(file, i+1)})
		}
	}
	return stack[0]
}

// readGin reads a configuration of gin: function.parameter = value, with a scope before a slash, and macros, NAME = value, that others
// call %NAME.
func readGin(file string, data []byte) *node {
	all, macros := newMap(where(file, 1)), map[string]string{}
	block := ""
	for i, line := range strings.Split(string(data), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if base, ok := strings.CutPrefix(line, "include "); ok {
			if all.fields["include"] == nil {
				all.set("include", &node{list: true, at: where(file, i+1)})
			}
			all.fields["include"].items = append(all.fields["include"].items, &node{scalar: strings.Trim(strings.TrimSpace(base), `"'`), at: where(file, i+1)})
			continue
		}
		if scope, ok := strings.CutSuffix(strings.TrimRight(line, " "), ":"); ok && !strings.Contains(line, "=") { // and then lines that are indented
			block = scope + "."
			continue
		}
		if !strings.HasPrefix(line, " ") {
			block = ""
		} else if strings.Contains(line, "=") {
			line = block + strings.TrimSpace(line)
		}
		name, text, assigned := strings.Cut(line, "=")
		name, text = strings.TrimSpace(name[strings.LastIndex(name, "/")+1:]), strings.Trim(strings.TrimSpace(text), `"'`)
		if !assigned || name == "" {
			continue
		}
		if macro, called := macros[text]; called {
			text = macro
		}
		if strings.HasPrefix(text, "%") { // a macro of another file
			continue
		}
		if !strings.Contains(name, ".") {
			macros["%"+name] = text
		}
		text = strings.TrimSuffix(strings.TrimPrefix(text, "@"), "()") // of a class or function
		all.put(name, &node{scalar: text, at: where(file, i+1)})
	}
	return all
}

func (r *yamlReader) node(n ast.Node, depth int) *node {
	r.nodes++
	if n == nil || r.nodes > maxNodes || depth > maxNested {
		return nil
	}
	at := r.file
	if t := n.GetToken(); t != nil && t.Position != nil {
		at = where(r.file, t.Position.Line)
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		r.anchors[n.Name.String()] = n.Value
		return r.node(n.Value, depth+1)
	case *ast.AliasNode:
		return r.node(r.anchors[n.Value.String()], depth+1)
	case *ast.TagNode:
		v := r.node(n.Value, depth+1)
		if class, ok := strings.CutPrefix(n.Start.Value, "!new:"); ok && v != nil && v.fields != nil { // of HyperPyYAML
			v.set("_target_", &node{scalar: class, at: at})
		}
		return v
	case *ast.MappingNode:
		m := newMap(at)
		for _, v := range n.Values {
			r.field(m, v, depth)
		}
		return m
	case *ast.MappingValueNode:
		m := newMap(at)
		r.field(m, n, depth)
		return m
	case *ast.SequenceNode:
		l := &node{list: true, at: at}
		for _, v := range n.Values {
			if item := r.node(v, depth+1); item != nil {
				l.items = append(l.items, item)
			}
		}
		return l
	case *ast.LiteralNode:
		return &node{scalar: n.Value.Value, at: at}
	case *ast.NullNode:
		return &node{at: at}
	case ast.ScalarNode:
		return &node{scalar: n.GetToken().Value, at: at}
	}
	return nil
}

func (r *yamlReader) field(m *node, v *ast.MappingValueNode, depth int) {
	value := r.node(v.Value, depth+1)
	if value == nil {
		return
	}
	if _, ok := v.Key.(*ast.MergeKeyNode); ok {
		if value.fields != nil {
			m.merge(value)
		}
		return
	}
	if t := v.Key.GetToken(); t != nil && t.Position != nil {
		value.at = where(r.file, t.Position.Line)
		m.set(t.Value, value)
	}
}
