// Package selector evaluates conditions in CEL on the devices that DRA drivers publish, within bounds.
package selector

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/ast"
	celops "github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/kube/translate"
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
	// spent is what evaluations have cost since it was asked for, dear the expression that cost too much, if one did.
	spent int64
	dear  string
}

const (
	// MaxCost is the most that a condition may cost on a device, in units of CEL, where one takes about 0.1 µs. Few cost more
	// than 100. Kubernetes allows a hundred times as much, and looks at fewer devices.
	MaxCost = 10_000
	// evaluation is what an evaluation costs besides, for the device is converted; lookup what it costs to find an answer that was kept.
	evaluation, lookup = 100, 6
	maxAnswers         = 1 << 8 // kept by a selector
)

// Spent returns what evaluations have cost since the last call, in units of CEL.
func (s *Selector) Spent() int64 {
	n := s.spent
	s.spent = 0
	return n
}

// Dear says which condition has cost more than allowed; "" for none. Such a selector holds for no device.
func (s *Selector) Dear() string {
	if s.dear == "" {
		return ""
	}
	return fmt.Sprintf("selector %.200q costs more than %d units of CEL on a device", s.dear, MaxCost)
}

// ask is one attribute or, with capacity, one capacity.
type ask struct {
	name     string // domain/id
	capacity bool
}

// Compile reads conditions. An error quotes the one that is wrong.
func Compile(expressions []string) (*Selector, error) {
	s := &Selector{known: true, answers: map[string]bool{}}
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	for _, e := range expressions {
		p := compiler.CompileCELExpression(e, cel.Options{DisableCostEstimation: true, CostLimit: ptr.To[uint64](MaxCost)})
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
func (s *Selector) Holds(d *translate.Device) bool {
	s.spent += lookup
	key, ok := s.key(d)
	if ok {
		if answer, ok := s.answers[key]; ok {
			return answer
		}
	}
	answer := s.evaluate(d)
	if ok && len(s.answers) < maxAnswers {
		s.answers[key] = answer
	}
	return answer
}

// key is what the conditions ask for of a device; false when that is not known.
func (s *Selector) key(d *translate.Device) (string, bool) {
	if !s.known {
		return "", false
	}
	var b strings.Builder
	b.WriteString(d.Driver)
	for _, a := range s.asks {
		b.WriteByte(0)
		if !a.capacity {
			value, there, text := d.Qualified(a.name)
			if there && !text {
				return "", false
			}
			b.WriteString(value)
			continue
		}
		c, ok := d.Capacity[resourceapi.QualifiedName(a.name)]
		if domain, id, cut := strings.Cut(a.name, "/"); !ok && cut && domain == d.Driver {
			c, ok = d.Capacity[resourceapi.QualifiedName(id)]
		}
		if ok {
			b.WriteString(c.Value.String())
		}
	}
	return b.String(), true
}

func (s *Selector) evaluate(d *translate.Device) bool {
	in := cel.Device{Driver: d.Driver, Attributes: d.Attributes, Capacity: d.Capacity}
	for i := range s.programs {
		if s.dear != "" {
			return false
		}
		ok, cost, err := s.programs[i].DeviceMatches(context.Background(), in)
		s.spent += evaluation
		if units := cost.ActualCost(); units != nil {
			s.spent += int64(*units)
		}
		if stop := (interpreter.EvalCancelledError{}); errors.As(err, &stop) && stop.Cause == interpreter.CostLimitExceeded {
			s.dear = s.programs[i].Expression
		}
		if err != nil || !ok {
			return false
		}
	}
	return true
}

// Match returns for how many of some devices a selector holds.
type Match uint8

// A selector holds for none, some or all of a node's devices.
const (
	None Match = iota
	Some
	All
)

// Match asks a selector about devices; places without a device do not count.
func (s *Selector) Match(devices []translate.Device) Match {
	yes, no := false, false
	for i := range devices {
		if devices[i].Name == "" {
			continue
		}
		if s.Holds(&devices[i]) {
			yes = true
		} else {
			no = true
		}
	}
	switch {
	case yes && no:
		return Some
	case yes:
		return All
	}
	return None
}
