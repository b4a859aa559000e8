package translate

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/ast"
	celops "github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// Selector is conditions on a device that must all hold, in CEL. Most devices of a
// cluster are alike in what conditions ask for, so answers are kept by that. It is
// for one goroutine.
type Selector struct {
	programs []cel.CompilationResult
	// asks is the attributes and capacities that the conditions ask for, where
	// known says that they ask for nothing else.
	asks    []ask
	known   bool
	answers map[string]bool
}

// ask is one attribute or, with capacity, one capacity.
type ask struct {
	name     string // domain/id
	capacity bool
}

// CompileSelector reads conditions. An error quotes the one that is wrong.
func CompileSelector(expressions []string) (*Selector, error) {
	s := &Selector{known: true, answers: map[string]bool{}}
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	for _, e := range expressions {
		p := compiler.CompileCELExpression(e, cel.Options{DisableCostEstimation: true})
		if p.Error != nil {
			return nil, fmt.Errorf("selector %q: %s", e, p.Error.Detail)
		}
		s.programs = append(s.programs, p)
		tree, issues := p.Environment.Compile(e)
		if issues != nil {
			s.known = false
			continue
		}
		asks, known := asksFor(ast.NavigateAST(tree.NativeRep()))
		s.asks, s.known = append(s.asks, asks...), s.known && known
	}
	return s, nil
}

// asksFor lists what an expression asks of the device; false when it may ask for
// more than is written in it as constants.
func asksFor(root ast.NavigableExpr) ([]ask, bool) {
	var out []ask
	for _, e := range ast.MatchDescendants(root, ast.KindMatcher(ast.IdentKind)) {
		if e.AsIdent() != "device" {
			continue
		}
		part, ok := e.Parent()
		if !ok || part.Kind() != ast.SelectKind {
			return nil, false
		}
		field := part.AsSelect().FieldName()
		if field == "driver" || field == "allowMultipleAllocations" {
			continue
		}
		domain, of, ok := member(part)
		if !ok {
			return nil, false
		}
		id, _, ok := member(of)
		if !ok {
			return nil, false
		}
		out = append(out, ask{name: domain + "/" + id, capacity: field == "capacity"})
	}
	return out, true
}

// member returns which member of e its parent asks for, and the parent: e.name,
// e["name"], or "name" in e.
func member(e ast.NavigableExpr) (name string, parent ast.NavigableExpr, ok bool) {
	parent, ok = e.Parent()
	if !ok {
		return "", nil, false
	}
	if parent.Kind() == ast.SelectKind {
		return parent.AsSelect().FieldName(), parent, true
	}
	if parent.Kind() != ast.CallKind {
		return "", nil, false
	}
	call := parent.AsCall()
	args := call.Args()
	var key ast.Expr
	switch {
	case call.FunctionName() == celops.Index && args[0].ID() == e.ID():
		key = args[1]
	case call.FunctionName() == celops.In && args[1].ID() == e.ID():
		key = args[0]
	default:
		return "", nil, false
	}
	if key.Kind() != ast.LiteralKind {
		return "", nil, false
	}
	text, ok := key.AsLiteral().(types.String)
	return string(text), parent, ok
}

// Holds reports whether the conditions hold for a device. One that cannot be
// answered, as it asks for an attribute that is not there, does not hold.
func (s *Selector) Holds(d *Device) bool {
	key, ok := s.key(d)
	if ok {
		if answer, ok := s.answers[key]; ok {
			return answer
		}
	}
	answer := s.evaluate(d)
	if ok && len(s.answers) < 1<<12 {
		s.answers[key] = answer
	}
	return answer
}

// key is what the conditions ask for of a device; false when that is not known.
func (s *Selector) key(d *Device) (string, bool) {
	if !s.known {
		return "", false
	}
	var b strings.Builder
	b.WriteString(d.Driver)
	for _, a := range s.asks {
		b.WriteByte(0)
		if !a.capacity {
			value, there, text := d.qualified(a.name)
			if there && !text {
				return "", false
			}
			b.WriteString(value)
			continue
		}
		c, ok := d.capacity[resourceapi.QualifiedName(a.name)]
		if domain, id, cut := strings.Cut(a.name, "/"); !ok && cut && domain == d.Driver {
			c, ok = d.capacity[resourceapi.QualifiedName(id)]
		}
		if ok {
			b.WriteString(c.Value.String())
		}
	}
	return b.String(), true
}

func (s *Selector) evaluate(d *Device) bool {
	in := cel.Device{Driver: d.Driver, Attributes: d.attributes, Capacity: d.capacity}
	for i := range s.programs {
		if ok, _, err := s.programs[i].DeviceMatches(context.Background(), in); err != nil || !ok {
			return false
		}
	}
	return true
}
