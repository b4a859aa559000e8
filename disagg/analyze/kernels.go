// Package analyze finds which bytes of which buffers kernels read and write, and which kernels thus
// depend on which: what Tessera (arXiv:2604.10180) calls its kernel analyzer (§III-A).
package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// Kernel is what the text of a kernel says about the memory it accesses, with the functions that it
// calls. Counts are of instructions in the text, not of how often they run.
type Kernel struct {
	Name         string   `json:"name"`
	Parameters   int      `json:"parameters"`
	Instructions int      `json:"instructions"`
	Loads        int      `json:"loads"`   // of global memory
	Stores       int      `json:"stores"`  // to global memory
	Atomics      int      `json:"atomics"` // on global memory
	Copies       int      `json:"copies"`  // asynchronous, from or to global memory
	Generic      int      `json:"generic"` // of these, those whose space is known at run time only
	ByData       int      `json:"by_data"` // of these, those whose address, size or guard depends on what memory contains
	Branches     bool     `json:"branches_by_data,omitempty"`
	Calls        []string `json:"calls,omitempty"`     // functions that it calls, directly or not
	Variables    []string `json:"variables,omitempty"` // of the module, in global memory
	Unknown      []string `json:"unknown,omitempty"`   // opcodes that Muster does not know
	Limits       []string `json:"limits,omitempty"`    // why the bytes cannot be known from its accesses

	indexes map[*ptx.Instruction]bool // loads whose values its accesses may depend on
}

// harmless are functions of the system that access no buffer of the program.
var harmless = map[string]bool{"vprintf": true, "malloc": true, "free": true, "__assertfail": true}

// function is a function of a module with what its own text says.
type function struct {
	node  *ptx.Node
	own   Kernel
	calls []string
	flow  ptx.ByData
}

// Kernels returns the kernels of a module, in its order.
func Kernels(m *ptx.Module) []Kernel {
	all := map[string]*function{}
	variables := map[string]bool{}
	var order []*function
	for i := range m.Nodes {
		n := &m.Nodes[i]
		switch {
		case n.Kind == ptx.Declare && n.Decl.Space == ".global":
			for _, v := range n.Decl.Vars {
				variables[v.Name] = true
			}
		case n.Kind == ptx.Define && n.Block != nil:
			f := &function{node: n}
			all[n.Func.Name] = f
			order = append(order, f)
		}
	}
	for _, f := range order {
		f.read(variables)
	}
	flows(order, all)
	var kernels []Kernel
	for _, f := range order {
		if f.node.Func.Entry {
			kernels = append(kernels, f.whole(all))
		}
	}
	return kernels
}

// flows finds what depends on data in each function, its parameters included.
func flows(order []*function, all map[string]*function) {
	passed := map[string]bool{}
	for changed := true; changed; {
		changed = false
		for _, f := range order {
			f.flow = ptx.Flow(f.node, passed[f.node.Func.Name])
			for callee := range f.flow.Passed {
				if all[callee] != nil && !passed[callee] {
					passed[callee], changed = true, true
				}
			}
		}
	}
	for _, f := range order {
		f.own.ByData, f.own.Branches, f.own.indexes = len(f.flow.Sites), f.flow.Branches, f.flow.Indexes
	}
	returned := map[string]bool{} // functions whose results addresses may depend on: all their loads count
	for changed := true; changed; {
		changed = false
		for _, f := range order {
			for callee := range f.flow.Returned {
				if g := all[callee]; g != nil && !returned[callee] {
					returned[callee], changed = true, true
					ptx.Walk(g.node.Block.Nodes, func(n *ptx.Node) {
						if n.Kind == ptx.Instruct {
							g.own.indexes[n.Instr] = true
						}
					})
					for _, name := range g.calls {
						g.flow.Returned[name] = true
					}
				}
			}
		}
	}
}

// read counts a function's own instructions.
func (f *function) read(variables map[string]bool) {
	k := &f.own
	k.Name, k.Parameters = f.node.Func.Name, len(f.node.Func.Params)
	registers := map[string]bool{}
	ptx.Walk(f.node.Block.Nodes, func(n *ptx.Node) {
		if n.Kind == ptx.Declare && n.Decl.Space == ".reg" {
			for _, v := range n.Decl.Vars {
				registers[v.Name] = true
			}
		}
		if n.Kind != ptx.Instruct {
			return
		}
		i := n.Instr
		k.Instructions++
		class, accesses := ptx.Effects(i)
		if class == ptx.Unknown {
			k.Unknown = add(k.Unknown, i.Base())
		}
		for _, a := range accesses {
			k.count(i, a)
		}
		if i.Base() == "call" {
			switch callee := i.Callee(); {
			case strings.HasPrefix(callee, "%") || registers[callee]:
				k.Limits = add(k.Limits, "calls through a pointer")
			default:
				f.calls = add(f.calls, callee)
			}
		}
		for o := range i.Operands {
			names(&i.Operands[o], func(name string) {
				if variables[name] {
					k.Variables = add(k.Variables, name)
				}
			})
		}
	})
}

func (k *Kernel) count(i *ptx.Instruction, a ptx.Access) {
	if a.Space == ptx.Inside {
		return
	}
	if a.Opaque != "" {
		k.Limits = add(k.Limits, a.Opaque)
		return
	}
	switch {
	case a.Async:
		k.Copies++
	case a.Atomic:
		k.Atomics++
	case a.Write:
		k.Stores++
	default:
		k.Loads++
	}
	if a.Space == ptx.Generic {
		k.Generic++
	}
	if a.Bytes == 0 && a.Size < 0 {
		k.Limits = add(k.Limits, "an access of unknown width: "+i.Op)
	}
}

// whole adds what the functions do that a kernel calls.
func (f *function) whole(all map[string]*function) Kernel {
	k := f.own
	k.indexes = maps.Clone(k.indexes)
	k.Unknown, k.Limits, k.Variables = slices.Clone(k.Unknown), slices.Clone(k.Limits), slices.Clone(k.Variables)
	seen := map[string]bool{k.Name: true}
	for queue := slices.Clone(f.calls); len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		if seen[name] {
			continue
		}
		seen[name] = true
		k.Calls = append(k.Calls, name)
		g := all[name]
		if g == nil {
			if !harmless[name] {
				k.Limits = add(k.Limits, fmt.Sprintf("calls %s, which has no body here", name))
			}
			continue
		}
		k.Instructions += g.own.Instructions
		k.Loads += g.own.Loads
		k.Stores += g.own.Stores
		k.Atomics += g.own.Atomics
		k.Copies += g.own.Copies
		k.Generic += g.own.Generic
		k.ByData += g.own.ByData
		k.Branches = k.Branches || g.own.Branches
		k.Unknown, k.Limits, k.Variables = add(k.Unknown, g.own.Unknown...), add(k.Limits, g.own.Limits...), add(k.Variables, g.own.Variables...)
		maps.Copy(k.indexes, g.own.indexes)
		queue = append(queue, g.calls...)
	}
	slices.SortFunc(k.Limits, cmp.Compare)
	return k
}

// add appends what a list does not have.
func add(list []string, more ...string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// names calls f for each name in an operand.
func names(o *ptx.Operand, f func(string)) {
	if o.Kind == ptx.Name {
		f(o.Text)
	}
	for i := range o.Elems {
		names(&o.Elems[i], f)
	}
}
