package ptx

import "strings"

// ByData says which accesses of global memory depend on what memory contains: on a value that was
// loaded, not only on parameters and on the indexes of threads. Sites has the instructions whose
// address, size or guard does. If Branches is set, a branch does, and with it possibly all that
// follows. Both are conservative: registers of one name are one, and so are all shared and all
// local variables.
//
// Indexes has the loads of global memory whose values may get there: if what they load is known, so
// are the accesses.
type ByData struct {
	Sites    map[*Instruction]bool
	Indexes  map[*Instruction]bool
	Returned map[string]bool // functions whose results may get there
	Branches bool
	Passed   map[string]bool // functions that are called with values that depend on data
}

// Flow finds what depends on data in a function. If params is set, its parameters do.
func Flow(n *Node, params bool) ByData {
	f := flow{tainted: map[string]bool{}, result: ByData{Sites: map[*Instruction]bool{}, Passed: map[string]bool{}, Indexes: map[*Instruction]bool{}, Returned: map[string]bool{}}}
	if params {
		for i := range n.Func.Params {
			f.tainted[n.Func.Params[i].Vars[0].Name] = true
		}
	}
	for {
		f.changed = false
		Walk(n.Block.Nodes, func(n *Node) {
			if n.Kind == Instruct {
				f.step(n.Instr)
			}
		})
		if !f.changed {
			break
		}
	}
	b := back{needed: map[string]bool{}, result: &f.result}
	for {
		b.changed = false
		Walk(n.Block.Nodes, func(n *Node) {
			if n.Kind == Instruct {
				b.step(n.Instr)
			}
		})
		if !b.changed {
			return f.result
		}
	}
}

// back goes from addresses, sizes, guards and branches back to the loads that they depend on.
type back struct {
	needed  map[string]bool // registers, parameters of calls, and the spaces "shared" and "local"
	changed bool
	result  *ByData
}

func (b *back) need(name string) {
	if name != "" && name != "_" && !b.needed[name] {
		b.needed[name] = true
		b.changed = true
	}
}

func (b *back) needAll(o *Operand) {
	if o.Kind == Name {
		name, _, _ := strings.Cut(o.Text, ".")
		b.need(o.Text)
		b.need(name)
	}
	for i := range o.Elems {
		b.needAll(&o.Elems[i])
	}
}

func (b *back) writesNeeded(o *Operand) bool {
	if o.Kind == Name && b.needed[o.Text] {
		return true
	}
	for i := range o.Elems {
		if b.writesNeeded(&o.Elems[i]) {
			return true
		}
	}
	return false
}

func (b *back) step(i *Instruction) {
	_, accesses := Effects(i)
	inside := true // it accesses no global memory
	for _, a := range accesses {
		if a.Space == Inside {
			continue
		}
		inside = false
		b.need(i.Guard)
		for _, k := range []int{a.Operand, a.Size} {
			if k >= 0 && k < len(i.Operands) {
				b.needAll(&i.Operands[k])
			}
		}
	}
	base := i.Base()
	switch base {
	case "bra", "ret", "exit":
		b.need(i.Guard)
		return
	}
	if len(i.Operands) == 0 {
		return
	}
	switch base {
	case "brx":
		b.needAll(&i.Operands[0])
		return
	case "call": // the function may use what it is passed as an address
		for k := range i.Operands {
			if k == 0 && i.Operands[0].Kind == List {
				if b.writesNeeded(&i.Operands[0]) {
					b.result.Returned[i.Callee()] = true
				}
				continue
			}
			b.needAll(&i.Operands[k])
		}
		return
	case "cp":
		if b.needed["shared"] && !inside {
			b.result.Indexes[i] = true
		}
		return
	case "st":
		switch {
		case i.Has("param"):
			if b.writesNeeded(&i.Operands[0]) {
				b.needAll(&i.Operands[len(i.Operands)-1])
			}
		case b.needed["shared"] && !i.Has("local") && !i.Has("global"), b.needed["local"] && !i.Has("global") && !strings.Contains(i.Op, ".shared"):
			b.needAll(&i.Operands[len(i.Operands)-1])
		}
		return
	}
	if i.Operands[0].Kind == Address || !b.writesNeeded(&i.Operands[0]) {
		return
	}
	b.need(i.Guard)
	for k := 1; k < len(i.Operands); k++ {
		b.needAll(&i.Operands[k])
	}
	if !inside {
		b.result.Indexes[i] = true
	}
	if base == "ld" || base == "atom" || base == "ldmatrix" {
		switch {
		case strings.Contains(i.Op, ".shared") || base == "ldmatrix":
			b.need("shared")
		case i.Has("local"):
			b.need("local")
		case !i.Has("global") && !i.Has("param") && !i.Has("const"):
			b.need("shared")
			b.need("local")
		}
	}
}

type flow struct {
	tainted map[string]bool // registers and parameters, and the spaces "shared" and "local"
	changed bool
	result  ByData
}

func (f *flow) mark(name string) {
	if name != "" && name != "_" && !f.tainted[name] {
		f.tainted[name] = true
		f.changed = true
	}
}

// from reports whether an operand depends on data.
func (f *flow) from(o *Operand) bool {
	if o.Kind == Name && f.tainted[o.Text] {
		return true
	}
	if o.Kind == Name {
		if register, _, ok := strings.Cut(o.Text, "."); ok && f.tainted[register] {
			return true
		}
	}
	for i := range o.Elems {
		if f.from(&o.Elems[i]) {
			return true
		}
	}
	return o.Kind == Raw && strings.ContainsAny(o.Text, "%[")
}

// to marks the registers of an operand that is written.
func (f *flow) to(o *Operand) {
	if o.Kind == Name {
		f.mark(o.Text)
	}
	for i := range o.Elems {
		f.to(&o.Elems[i])
	}
}

func (f *flow) step(i *Instruction) {
	guard := f.tainted[i.Guard]
	any := guard
	for n := range i.Operands {
		if n > 0 && f.from(&i.Operands[n]) {
			any = true
		}
	}
	class, accesses := Effects(i)
	for _, a := range accesses {
		if a.Space == Inside {
			continue
		}
		if guard || a.Operand < len(i.Operands) && f.from(&i.Operands[a.Operand]) || a.Size >= 0 && a.Size < len(i.Operands) && f.from(&i.Operands[a.Size]) {
			f.result.Sites[i] = true
		}
	}
	if len(i.Operands) == 0 {
		return
	}
	switch base := i.Base(); base {
	case "bra", "brx", "ret", "exit":
		if any {
			f.result.Branches = true
		}
	case "ld", "ldu", "atom", "ldmatrix", "wmma", "tex", "tld4", "suld":
		space := "global"
		switch {
		case i.Has("param") || i.Has("const"):
			space = "" // it depends on data if the parameter does
		case strings.Contains(i.Op, ".shared") || base == "ldmatrix":
			space = "shared"
		case i.Has("local"):
			space = "local"
		}
		if any || space == "global" || f.tainted[space] {
			f.to(&i.Operands[0])
		}
	case "st":
		if !any && !f.from(&i.Operands[len(i.Operands)-1]) {
			return
		}
		switch {
		case i.Has("param"):
			f.to(&i.Operands[0])
		case strings.Contains(i.Op, ".shared"):
			f.mark("shared")
		case i.Has("local"):
			f.mark("local")
		case !i.Has("global"): // generic
			f.mark("shared")
			f.mark("local")
		}
	case "cp":
		f.mark("shared")
	case "call":
		if any {
			f.result.Passed[i.Callee()] = true
		}
		if o := &i.Operands[0]; o.Kind == List { // what it returns may be loaded there
			f.to(o)
		}
	case "red":
	default:
		if any && class != Control || class == Unknown {
			f.to(&i.Operands[0])
		}
	}
}
