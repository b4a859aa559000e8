package strict

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// pairs returns the keys and values of a mapping, and nil for other nodes.
func pairs(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func isMapping(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// keyText returns the key of a pair as it is written, without quotes.
func keyText(p *ast.MappingValueNode) string {
	if s, ok := p.Key.(*ast.StringNode); ok {
		return s.Value
	}
	if p.Key == nil || p.Key.GetToken() == nil {
		return ""
	}
	return p.Key.GetToken().Value
}

func isNull(n ast.Node) bool { return n == nil || n.Type() == ast.NullType }

// scalar returns the text of a string, number or boolean.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// describe says what n is, for "expected …; found …".
func describe(n ast.Node) string {
	if isNull(n) {
		return "nothing"
	}
	if isMapping(n) {
		return "an object"
	}
	switch n := n.(type) {
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return strconv.Quote(shorten(n.Value))
	case *ast.LiteralNode:
		return strconv.Quote(shorten(n.Value.Value))
	case *ast.AnchorNode, *ast.AliasNode:
		return "a YAML anchor"
	case *ast.TagNode:
		return "a YAML tag"
	}
	if text, ok := scalar(n); ok {
		return shorten(text)
	}
	return "a YAML " + strings.ToLower(n.Type().YAMLName())
}

// shorten cuts what would make an error more than one line of a terminal.
func shorten(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return shorten(strings.TrimSpace(s))
}

// line returns the line on which n begins; 0 when n has none.
func line(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0]
	}
	if p, ok := n.(*ast.MappingValueNode); ok {
		n = p.Key
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 0
	}
	return n.GetToken().Position.Line
}

// find returns the key or list entry at path, or the nearest one around where
// it would be.
func find(n ast.Node, path string) ast.Node {
	at := n
	for path != "" {
		next, value, rest := step(n, strings.TrimPrefix(path, "."))
		if next == nil {
			break
		}
		at, n, path = next, value, rest
	}
	return at
}

// step follows the first part of path from n, to the value of the key or list
// entry at. Keys may have dots in them: the longest that matches is taken.
func step(n ast.Node, path string) (at, value ast.Node, rest string) {
	if s, ok := n.(*ast.SequenceNode); ok {
		digits, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		i, err := strconv.Atoi(digits)
		if err != nil || i < 0 || i >= len(s.Values) {
			return nil, nil, ""
		}
		return s.Values[i], s.Values[i], rest
	}
	longest := -1
	for _, p := range pairs(n) {
		key := keyText(p)
		after, ok := strings.CutPrefix(path, key)
		if ok && len(key) > longest && (after == "" || after[0] == '.' || after[0] == '[') {
			longest, at, value, rest = len(key), p.Key, p.Value, after
		}
	}
	return at, value, rest
}
