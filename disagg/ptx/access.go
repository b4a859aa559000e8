package ptx

import "strings"

// Class says what an instruction does, for counting.
type Class uint8

// The classes of instructions.
const (
	Arithmetic Class = iota // registers only, special registers included
	Control                 // branches, calls, returns
	Memory                  // loads, stores, atomics, copies
	Sync                    // barriers, fences, votes and shuffles
	Tensor                  // matrices: mma, wgmma, tcgen05 and the loads of their fragments
	Texture                 // textures and surfaces
	Unknown                 // an opcode that this package does not know
)

// MemorySpace is a state space of an access.
type MemorySpace uint8

// The spaces that matter here. Generic is decided at run time. Inside is all memory that ends with
// the kernel: shared, local, param, const, tensor memory.
const (
	Inside MemorySpace = iota
	Global
	Generic
)

// Access is memory that one instruction accesses: Bytes at the address operand or, if Size >= 0, as
// many as that operand says. If Opaque is not "", it is the reason why the text does not tell
// which bytes.
type Access struct {
	Space       MemorySpace
	Read, Write bool
	Atomic      bool // a read and a write that are one
	Async       bool // a copy that ends later
	Operand     int  // of the address
	Bytes       int64
	Size        int // operand with the bytes; -1 for none
	Opaque      string
}

// arithmetic, control and sync are the opcodes, without modifiers, that access no global memory.
var (
	arithmetic = words(`abs add addc and bfe bfi bfind bmsk brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2 fma fns
		getctarank istypep isspacep lg2 lop3 mad mad24 madc mapa max min mov mul mul24 neg not or pmevent popc prmt rcp rem rsqrt
		sad selp set setmaxnreg setp shf shl shr sin slct sqrt sub subc szext tanh testp trap xor vabsdiff vadd vmad vmax vmin vset vshl vshr vsub
		vadd2 vadd4 vsub2 vsub4 vmax2 vmax4 vmin2 vmin4 vabsdiff2 vabsdiff4 vavrg2 vavrg4 vset2 vset4 txq suq nop
		createpolicy prefetch prefetchu applypriority alloca stacksave stackrestore nanosleep`)
	control = words(`bra brx call ret exit brkpt`)
	sync    = words(`bar barrier membar fence vote match redux shfl activemask elect mbarrier griddepcontrol clusterlaunchcontrol`)
)

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// Effects returns the class of an instruction and the memory it accesses, Inside included.
func Effects(i *Instruction) (Class, []Access) {
	base := i.Base()
	switch {
	case arithmetic[base]:
		return Arithmetic, nil
	case control[base]:
		return Control, nil
	case sync[base]:
		return Sync, nil
	}
	switch base {
	case "ld", "ldu":
		return Memory, []Access{{Space: i.space(), Read: true, Operand: 1, Bytes: i.width(), Size: -1}}
	case "st":
		if i.Has("bulk") || i.Has("async") {
			return Memory, nil // to shared memory
		}
		return Memory, []Access{{Space: i.space(), Write: true, Operand: 0, Bytes: i.width(), Size: -1}}
	case "atom", "red":
		if i.Has("async") {
			return Memory, nil // to shared memory
		}
		at := 0
		if base == "atom" {
			at = 1
		}
		return Memory, []Access{{Space: i.space(), Read: true, Write: true, Atomic: true, Operand: at, Bytes: i.width(), Size: -1}}
	case "discard": // it may write anything
		return Memory, []Access{{Space: i.space(), Write: true, Operand: 0, Bytes: 128, Size: -1}}
	case "cp":
		return Memory, i.copies()
	case "tex", "tld4", "suld", "sust", "sured":
		return Texture, []Access{{Space: Global, Read: base != "sust", Write: base[0] == 's' && base != "suld", Operand: 1, Size: -1, Opaque: "texture or surface"}}
	case "tensormap":
		return Memory, []Access{{Space: Global, Read: true, Write: true, Operand: 0, Size: -1, Opaque: "tensor map"}}
	case "multimem":
		return Memory, []Access{{Space: Global, Read: true, Write: true, Operand: 0, Size: -1, Opaque: "multicast address"}}
	case "wmma":
		store := i.Has("store")
		if !store && !i.Has("load") || i.space() == Inside {
			return Tensor, nil
		}
		at := 1
		if store {
			at = 0
		}
		return Tensor, []Access{{Space: i.space(), Read: !store, Write: store, Operand: at, Size: -1, Opaque: "matrix with a stride"}}
	case "mma", "wgmma", "tcgen05", "ldmatrix", "stmatrix", "movmatrix":
		return Tensor, nil
	}
	return Unknown, i.unknown()
}

// unknown classifies an opcode by what it names: with no address it accesses no memory; with the
// modifier of one space it accesses that; otherwise it may access anything.
func (i *Instruction) unknown() []Access {
	for n := range i.Operands {
		if i.Operands[n].Kind == Address {
			if s := i.space(); s != Inside {
				return []Access{{Space: s, Read: true, Write: true, Operand: n, Size: -1, Opaque: "unknown instruction " + i.Base()}}
			}
		}
	}
	return nil
}

// copies returns the accesses of cp: both sides of a copy.
func (i *Instruction) copies() []Access {
	mods := i.Mods()
	switch {
	case i.Has("prefetch"), i.Has("commit_group"), i.Has("wait_group"), i.Has("wait_all"), i.Has("mbarrier"):
		return nil
	case i.Has("tensor"):
		to := i.Has("global") && len(mods) > 3 && firstSpace(mods) == "global"
		return []Access{{Space: Global, Read: !to || mods[0] == "reduce", Write: to, Async: true, Size: -1, Opaque: "tensor map"}}
	case i.Has("bulk"):
		var spaces []string
		for _, m := range mods {
			if m == "global" || strings.HasPrefix(m, "shared") {
				spaces = append(spaces, m)
			}
		}
		if len(spaces) != 2 || len(i.Operands) < 3 {
			return i.unknown()
		}
		to := Access{Write: true, Read: mods[0] == "reduce", Atomic: mods[0] == "reduce", Async: true, Operand: 0, Size: 2}
		from := Access{Read: true, Async: true, Operand: 1, Size: 2}
		if spaces[0] == "global" {
			to.Space = Global
		}
		if spaces[1] == "global" {
			from.Space = Global
		}
		return []Access{to, from}
	case len(mods) > 0 && mods[0] == "async" && len(i.Operands) >= 3:
		from := Access{Space: Global, Read: true, Async: true, Operand: 1, Size: 2}
		if len(i.Operands) > 3 && i.Operands[3].Kind != Raw && !strings.Contains(i.Op, "cache_hint") {
			from.Size = 3 // the bytes that are read; the rest are zeros
		}
		if strings.Contains(i.Op, "cache_hint") && len(i.Operands) > 4 {
			from.Size = 3
		}
		return []Access{{Write: true, Async: true, Operand: 0, Size: 2}, from}
	}
	return i.unknown()
}

func firstSpace(mods []string) string {
	for _, m := range mods {
		if m == "global" || strings.HasPrefix(m, "shared") {
			return m
		}
	}
	return ""
}

// space returns the state space by the modifiers; without one it is Generic.
func (i *Instruction) space() MemorySpace {
	_, rest, ok := strings.Cut(i.Op, ".")
	for ok {
		var m string
		m, rest, ok = strings.Cut(rest, ".")
		name, _, _ := strings.Cut(m, "::")
		switch name {
		case "global":
			return Global
		case "shared", "local", "param", "const":
			return Inside
		}
	}
	return Generic
}

// width returns the bytes of one access by vector and type.
func (i *Instruction) width() int64 {
	n, size := int64(1), int64(0)
	_, rest, ok := strings.Cut(i.Op, ".")
	for ok {
		var m string
		m, rest, ok = strings.Cut(rest, ".")
		if len(m) == 2 && m[0] == 'v' && m[1] >= '2' && m[1] <= '8' {
			n = int64(m[1] - '0')
		} else if b := TypeBytes(m); b > 0 {
			size = int64(b)
		}
	}
	return n * size
}

// Callee returns the name of the function that a call names, or the register that it calls through.
func (i *Instruction) Callee() string {
	for n := range i.Operands {
		if i.Operands[n].Kind == Name {
			return i.Operands[n].Text
		}
	}
	return ""
}
