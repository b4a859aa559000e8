// Package strict reads a YAML or JSON document into a struct, and says of
// everything that is not as it should be on which line it stands, which field
// it is and what was expected there.
//
// Fields are named by their json tags. A field without omitempty or omitzero must
// be given. Fields that the struct does not have are errors, and so are wrong types,
// numbers outside the bounds of a `min:"…"` or `max:"…"` tag, and repeated keys.
// Anchors, aliases and tags of YAML are not accepted.
package strict

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/muster-sched/muster/workload"
)

// Source is a decoded document, to which later checks trace their errors.
type Source struct {
	file   string
	root   ast.Node
	fields map[reflect.Type]fields // found so far
}

// Decode reads data, the content of the named file, into the struct that into
// points to. Values it does not find stay as they are. Errors are of type
// [*workload.Error], and the first one in the order of the file is returned.
func Decode(file string, data []byte, into any) (*Source, error) {
	s, err := Open(file, data)
	if err != nil {
		return nil, err
	}
	return s, s.Decode(into)
}

// Open reads the syntax of a document, for [Source.Decode].
func Open(file string, data []byte) (*Source, error) {
	root, err := parse(file, data)
	if err != nil {
		return nil, err
	}
	return &Source{file: file, root: root, fields: map[reflect.Type]fields{}}, nil
}

// Has reports whether the document has the field at its top.
func (s *Source) Has(field string) bool {
	for _, p := range pairs(s.root) {
		if keyText(p) == field {
			return true
		}
	}
	return false
}

// Errorf returns the error that what stands at path is not what the format
// describes. Paths are written as in `jobs[2].tasks[0].pods`; a path that the
// document does not have gets the line of the nearest field around it.
func (s *Source) Errorf(path, format string, args ...any) error {
	return s.errorAt(line(find(s.root, path)), path, format, args...)
}

// Below returns [Source.Errorf] for paths that begin at the field at.
func (s *Source) Below(at string) func(path, format string, args ...any) error {
	return func(path, format string, args ...any) error { return s.Errorf(join(at, path), format, args...) }
}

func (s *Source) errorAt(line int, path, format string, args ...any) error {
	return &workload.Error{File: s.file, Line: line, Field: path, Want: fmt.Sprintf(format, args...)}
}

// parse returns the body of the one document in data.
func parse(file string, data []byte) (root ast.Node, err error) {
	defer func() {
		// The parser is not ours: what makes it panic is bad input to us.
		if p := recover(); p != nil {
			err = &workload.Error{File: file, Want: fmt.Sprintf("YAML or JSON; found a syntax error (%v)", p)}
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if t := tooDeep(tokens); t != nil {
		return nil, &workload.Error{File: file, Line: t.Position.Line, Want: fmt.Sprintf("at most %d levels of lists and objects; found more", maxDepth)}
	}
	f, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, syntaxError(file, err)
	}
	for _, d := range f.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentGroupType {
			continue
		}
		if root != nil {
			return nil, &workload.Error{File: file, Line: line(d.Body), Want: "exactly one document; found a second one"}
		}
		root = d.Body
	}
	if root == nil {
		return nil, &workload.Error{File: file, Want: "a YAML or JSON object; found an empty file"}
	}
	return root, nil
}

// maxDepth is how many lists and objects may be in each other. The parser takes time
// that grows with the square of it, and our formats have fewer than ten.
const maxDepth = 1000

// tooDeep returns the token that opens one list or object too many, nil without any:
// by brackets, or by dashes and question marks in one line.
func tooDeep(tokens token.Tokens) *token.Token {
	brackets, marks, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			marks, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			marks++
		}
		if brackets > maxDepth || marks > maxDepth {
			return t
		}
	}
	return nil
}

func syntaxError(file string, err error) error {
	e := &workload.Error{File: file, Want: "YAML or JSON; found: " + firstLine(err.Error())}
	var y yaml.Error
	if errors.As(err, &y) {
		e.Want = "YAML or JSON; found: " + firstLine(y.GetMessage())
		if t := y.GetToken(); t != nil && t.Position != nil {
			e.Line = t.Position.Line
		}
	}
	return e
}
