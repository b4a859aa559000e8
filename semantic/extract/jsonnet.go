package extract

import (
	"bytes"
	"regexp"

	"github.com/muster-sched/muster/semantic/python"
)

// This file reads Jsonnet, the part of it that is JSON with local variables and operators: written a little differently, that is Python.

// jsonnetWords are what differs: comments, names of fields without quotes, local variables, and the words for constants. Strings are found to be left alone.
var jsonnetWords = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|//[^\n]*|#[^\n]*|/\*[\s\S]*?\*/|\b[A-Za-z_]\w*\+?::?:?(?:[ \t\n]|$)|\b(?:local|true|false|null)\b`)

// fromJsonnet returns Jsonnet as Python, line for line.
func fromJsonnet(source []byte) []byte {
	return jsonnetWords.ReplaceAllFunc(source, func(m []byte) []byte {
		switch word := string(m); {
		case m[0] == '"' || m[0] == '\'':
			return m
		case m[0] == '/' || m[0] == '#':
			return bytes.Repeat([]byte("\n"), bytes.Count(m, []byte("\n")))
		case word == "local":
			return nil
		case word == "true":
			return []byte("True")
		case word == "false":
			return []byte("False")
		case word == "null":
			return []byte("None")
		}
		name := fieldName.Find(m)
		return append([]byte(`"`+string(name)+`":`), m[len(m)-1])
	})
}

// loadJsonnet notes the settings of a file of Jsonnet.
func (x *extraction) loadJsonnet(file string, r rank) {
	source, ok := x.tree.open(file)
	if !ok || len(source) > 1<<18 || deep(source) {
		return
	}
	for _, s := range python.Parse(fromJsonnet(source)) {
		switch {
		case s.Kind == python.Assign && s.Target != "" && s.Function == "":
			x.assign(s.Target, &s.Value, file, r, 0)
		case s.Kind == python.Expression && s.Value.Kind == python.Dict:
			for i, k := range s.Value.Keys {
				if k != "" && k != "**" {
					x.assign(k, &s.Value.Named[i], file, r, 1)
				}
			}
		}
	}
}

var fieldName = regexp.MustCompile(`^\w+`)
