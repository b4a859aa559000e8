package instrument

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/muster-sched/muster/disagg/ptx"
)

// accesses instruments the accesses of an instruction, before it: a load may overwrite the register
// of its address.
func (w *writer) accesses(s *ptx.Node) {
	_, all := ptx.Effects(s.Instr)
	for _, a := range all {
		if a.Space == ptx.Inside {
			continue
		}
		limit := a.Opaque
		switch {
		case limit != "":
		case a.Bytes == 0 && a.Size < 0:
			limit = "an access of unknown width"
		case a.Operand >= len(s.Instr.Operands) || !plain(&s.Instr.Operands[a.Operand]):
			limit = "an address that Muster cannot read"
		case a.Size >= len(s.Instr.Operands):
			limit = "a size that is missing"
		}
		if limit != "" {
			w.out.Limits = append(w.out.Limits, Limit{w.f.Name, w.m.Line(s.Pos), s.Instr.Op + ": " + limit})
			continue
		}
		w.site(s, a)
	}
}

// plain reports whether an address is a register, a symbol or a constant, with an offset or without.
func plain(o *ptx.Operand) bool {
	return o.Kind == ptx.Address && len(o.Elems) == 1 && (o.Elems[0].Kind == ptx.Name || o.Elems[0].Kind == ptx.Number) && !o.Elems[0].Minus
}

// code is lines of PTX in a scope of their own.
type code struct {
	strings.Builder
	p string // the prefix of names
}

// line adds a line; $ stands for the prefix of registers.
func (c *code) line(format string, args ...any) {
	c.WriteString("\t\t" + strings.ReplaceAll(fmt.Sprintf(format, args...), "$", "%"+c.p) + "\n")
}

// when adds a condition to the predicate $q, which has a value already if set is.
func (c *code) when(set bool, predicate string) bool {
	if set {
		c.line("and.pred $q, $q, %s;", predicate)
	} else {
		c.line("mov.pred $q, %s;", predicate)
	}
	return true
}

// site records one access.
func (w *writer) site(s *ptx.Node, a ptx.Access) {
	i := s.Instr
	c := &code{p: w.prefix}
	record := headerBytes + 16*len(w.out.Sites)
	w.out.Sites = append(w.out.Sites, Site{Function: w.f.Name, Line: w.m.Line(s.Pos), Op: i.Op, Read: a.Read, Write: a.Write, Instruction: i})

	e := &i.Operands[a.Operand].Elems[0]
	c.line(".reg .pred $q, $t; .reg .b64 $a, $e, $o, $w, $m; .reg .b32 $s, $b;")
	switch {
	case e.Kind == ptx.Number:
		c.line("mov.u64 $a, %s;", e.Text)
	case strings.HasPrefix(e.Text, "%") || w.typeOf(e.Text) != "":
		c.line("mov.b64 $a, %s;", e.Text)
	default: // a variable
		c.line("mov.u64 $a, %s;", e.Text)
	}
	if e.Offset != "" {
		c.line("add.s64 $a, $a, %s;", e.Offset)
	}
	conditional := false
	if a.Space == ptx.Generic {
		c.line("isspacep.global $q, $a;")
		conditional = true
	}
	if i.Guard != "" {
		guard := i.Guard
		if i.Negated {
			c.line("not.pred $t, %s;", guard)
			guard = "$t"
		}
		conditional = c.when(conditional, guard)
	}
	if a.Size >= 0 {
		conditional = w.size(c, i, a, conditional)
	} else {
		c.line("add.s64 $e, $a, %d;", a.Bytes)
	}
	at := ""
	if conditional {
		at = "@$q "
	}
	c.line("%sred.global.min.u64 [%s+%d], $a;", at, w.base(), record)
	c.line("%sred.global.max.u64 [%s+%d], $e;", at, w.base(), record+8)
	if w.o.Granule > 0 {
		w.bits(c, a, conditional)
	}
	w.insert(s.Pos, "{ // site %d\n%s\t}\n\t", len(w.out.Sites)-1, c.String())
}

// size sets $e to the end of an access whose bytes an operand says; one of no bytes does not count.
func (w *writer) size(c *code, i *ptx.Instruction, a ptx.Access, conditional bool) bool {
	o := &i.Operands[a.Size]
	text := o.String()
	if o.Kind == ptx.Name && w.typeOf(o.Text) == ".pred" { // of cp.async: all bytes, unless it is set
		c.line("not.pred $t, %s;", text)
		conditional = c.when(conditional, "$t")
		text = i.Operands[2].String()
	}
	c.line("mov.b32 $s, %s;", text)
	c.line("setp.ne.u32 $t, $s, 0;")
	conditional = c.when(conditional, "$t")
	c.line("cvt.u64.u32 $e, $s;")
	c.line("add.s64 $e, $a, $e;")
	return conditional
}

// bits sets the bits of an access in the bitmaps, if it lies in the window. An access is aligned to
// its width, so that up to 32 granules lie in one word; longer ones take a loop.
func (w *writer) bits(c *code, a ptx.Access, conditional bool) {
	shift := bits.TrailingZeros(uint(w.o.Granule))
	c.line("ld.global.u64 $w, [%s];", w.base())
	c.line("ld.global.u64 $m, [%s+8];", w.base())
	c.line("sub.u64 $o, $a, $w;")
	c.line("setp.lt.u64 $t, $o, $m;")
	c.when(conditional, "$t")
	c.line("shr.u64 $o, $o, %d;", shift)
	c.line("sub.u64 $e, $e, $w;")
	c.line("add.u64 $e, $e, %d;", w.o.Granule-1)
	c.line("shr.u64 $e, $e, %d;", shift)
	one := a.Size < 0 && a.Bytes <= 32*int64(w.o.Granule) && a.Bytes <= 32
	if !one {
		c.line("@!$q bra %sdone;", w.prefix)
		c.WriteString("\t" + w.prefix + "next:\n")
	}
	n := int64(1)
	if one {
		n = max(a.Bytes/int64(w.o.Granule), 1)
	}
	c.line("cvt.u32.u64 $s, $o;")
	c.line("and.b32 $s, $s, 31;")
	c.line("mov.u32 $b, %d;", uint32(1<<n-1))
	c.line("shl.b32 $b, $b, $s;")
	c.line("shr.u64 $w, $o, 5;")
	c.line("shl.b64 $w, $w, 2;")
	for k, wanted := range []bool{a.Read, a.Write} {
		if wanted {
			c.line("ld.global.u64 $m, [%s+%d];", w.base(), 16+8*k)
			c.line("add.u64 $m, $m, $w;")
			c.line("@$q red.global.or.b32 [$m], $b;")
		}
	}
	if !one {
		c.line("add.u64 $o, $o, 1;")
		c.line("setp.lt.u64 $t, $o, $e;")
		c.line("@$t bra %snext;", w.prefix)
		c.WriteString("\t" + w.prefix + "done:\n")
	}
}
