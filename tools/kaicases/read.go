package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A literal of Go becomes a value: a number is a float64; a slice is a []any; a struct, and a map whose keys are
// strings, is a fields; a constant of another package is a symbol with its name; and a call is a call.
type (
	fields map[string]any
	symbol string
	call   struct {
		name string
		args []any
	}
	// unknown is an expression that is not evaluated.
	unknown struct{ text string }
)

// constants are the values of constants that KAI's cases name, by the name without the package.
var constants = map[string]float64{
	"PriorityTrainNumber":                  50,
	"PriorityInteractivePreemptibleNumber": 75,
	"PriorityBuildNumber":                  100,
	"PriorityInferenceNumber":              125,
	"DefaultQueuePriority":                 100,
	"NoMaxAllowedResource":                 -1,
	"UnlimitedResourceQuantity":            -1,
	"DefaultGpuMemory":                     100,
	"Second":                               1,
	"Minute":                               60,
	"Hour":                                 3600,
}

// pointers are the functions that return the address of what they are given.
var pointers = []string{"Int", "Int32", "Int64", "Uint64", "Float64", "String", "Bool", "To", "CreateFloat64Pointer", "Duration"}

// found is a case as it was read.
type found struct {
	file string // relative to the folder that was given
	line int
	name string
	body fields
}

// readCases reads the cases of all tests of Go under dir: the literals of the type TestTopologyBasic.
func readCases(dir string) ([]found, error) {
	var all []found
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		e := evaluator{locals: locals(file)}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || typeName(lit.Type) != "TestTopologyBasic" {
				return true
			}
			body, _ := e.value(lit).(fields)
			title, _ := body["Name"].(string)
			all = append(all, found{file: filepath.ToSlash(name), line: files.Position(lit.Pos()).Line, name: title, body: body})
			return false
		})
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: expected tests of KAI with literals of TestTopologyBasic, found none", dir)
	}
	return all, err
}

// locals returns the expressions of the names that the file gives a value once, at any level.
func locals(file *ast.File) map[string]ast.Expr {
	all, times := map[string]ast.Expr{}, map[string]int{}
	set := func(name ast.Expr, value ast.Expr) {
		if id, ok := name.(*ast.Ident); ok {
			times[id.Name]++
			all[id.Name] = value
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i := range n.Lhs {
				if len(n.Lhs) == len(n.Rhs) {
					set(n.Lhs[i], n.Rhs[i])
				}
			}
		case *ast.ValueSpec:
			for i := range n.Names {
				if len(n.Names) == len(n.Values) {
					set(n.Names[i], n.Values[i])
				}
			}
		}
		return true
	})
	for name, n := range times {
		if n > 1 {
			delete(all, name)
		}
	}
	return all
}

// typeName returns the name of a type without its package, and without * and [].
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.StarExpr:
		return typeName(e.X)
	}
	return ""
}

type evaluator struct {
	locals map[string]ast.Expr
	depth  int
}

// value evaluates an expression as far as the cases need it.
func (e *evaluator) value(x ast.Expr) any {
	e.depth++
	defer func() { e.depth-- }()
	if e.depth > 100 { // a name that is defined by itself
		return unknown{"an expression without end"}
	}
	switch x := x.(type) {
	case *ast.BasicLit:
		return basic(x)
	case *ast.ParenExpr:
		return e.value(x.X)
	case *ast.UnaryExpr:
		return e.unary(x)
	case *ast.BinaryExpr:
		return binary(x.Op, e.value(x.X), e.value(x.Y))
	case *ast.CompositeLit:
		return e.composite(x)
	case *ast.SelectorExpr:
		return named(x.Sel.Name)
	case *ast.Ident:
		return e.ident(x)
	case *ast.CallExpr:
		return e.call(x)
	}
	return unknown{fmt.Sprintf("%T", x)}
}

func basic(x *ast.BasicLit) any {
	if x.Kind == token.STRING {
		s, err := strconv.Unquote(x.Value)
		if err != nil {
			return unknown{x.Value}
		}
		return s
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(x.Value, "_", ""), 64)
	if err != nil {
		return unknown{x.Value}
	}
	return f
}

func (e *evaluator) unary(x *ast.UnaryExpr) any {
	v := e.value(x.X)
	if f, ok := v.(float64); ok && x.Op == token.SUB {
		return -f
	}
	return v // an address
}

func binary(op token.Token, a, b any) any {
	if s, ok := a.(string); ok && op == token.ADD {
		if t, ok := b.(string); ok {
			return s + t
		}
	}
	f, ok := a.(float64)
	g, also := b.(float64)
	if ok && also {
		switch op {
		case token.ADD:
			return f + g
		case token.SUB:
			return f - g
		case token.MUL:
			return f * g
		case token.QUO:
			return f / g
		}
	}
	return unknown{op.String()}
}

func named(name string) any {
	if f, ok := constants[name]; ok {
		return f
	}
	return symbol(name)
}

func (e *evaluator) ident(x *ast.Ident) any {
	switch x.Name {
	case "true":
		return true
	case "false":
		return false
	case "nil":
		return nil
	}
	if v, ok := e.locals[x.Name]; ok {
		return e.value(v)
	}
	return named(x.Name)
}

func (e *evaluator) call(x *ast.CallExpr) any {
	if f, ok := x.Fun.(*ast.FuncLit); ok { // func() T { … }(): what matters in it are the calls
		return e.calls(f.Body)
	}
	name := typeName(x.Fun)
	c := call{name: name}
	for _, a := range x.Args {
		c.args = append(c.args, e.value(a))
	}
	if len(c.args) == 1 && (slices.Contains(pointers, name) || strings.HasPrefix(name, "float") || strings.HasPrefix(name, "int")) {
		return c.args[0]
	}
	return c
}

// calls returns the calls of functions in a block, in order.
func (e *evaluator) calls(b *ast.BlockStmt) any {
	all := call{name: "func"}
	ast.Inspect(b, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			all.args = append(all.args, e.call(c))
			return false
		}
		return true
	})
	return all
}

func (e *evaluator) composite(x *ast.CompositeLit) any {
	f := fields{}
	var list []any
	_, isMap := x.Type.(*ast.MapType)
	for _, elt := range x.Elts {
		kv, ok := elt.(*ast.KeyValueExpr)
		if !ok {
			list = append(list, e.value(elt))
			continue
		}
		id, isField := kv.Key.(*ast.Ident)
		if isField && !isMap {
			f[id.Name] = e.value(kv.Value)
			continue
		}
		key, err := keyOf(e.value(kv.Key))
		if err != nil {
			return unknown{err.Error()}
		}
		f[key] = e.value(kv.Value)
	}
	if _, isList := x.Type.(*ast.ArrayType); isList || list != nil {
		return list
	}
	return f
}

func keyOf(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case symbol:
		return string(v), nil
	}
	return "", errors.New("a key that is no string")
}
