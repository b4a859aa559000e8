package place

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Pods of a gang may have to be near each other in groups, and groups in wider groups: blocks of 4 pods in one leaf group each, and
// of 16 in one spine each; or the roles of a subgroup in one rack. A group is the tasks that carry one label, where each
// of them must be near the label within one domain of a level.
//
// Groups are placed from the outside in: each, the largest first, in the domain of its level that it fits most tightly and
// that holds the groups in it; within it those, and at last the tasks. A domain that fits by count and not by its groups is
// given up for the next one. Domains that were chosen for groups placed before are not tried again: where all pods are
// alike and the groups of a level are of one size, another choice would leave no more room. For other gangs a search
// follows, as for all ([search]).
//
// A group may be preferred ([cluster.Preference]). A gang with such groups is first placed as if they were required, then so
// that each is in the narrowest domain that is left for it, one group after the other, and at last without them: see inSoftGroups.

// nested is a group: tasks that must be within one domain of a level, by the numbers of their tasks.
type nested struct {
	label string
	level int
	tasks []int // all of its pods are of these, in order
	alone []int // those of them that are in no part
	parts []*nested
	gpu   cluster.Milli
	soft  bool // preferred
}

// bound is a domain within which pods are placed.
type bound struct {
	level  int
	domain int32
}

// groups returns the gang as a group of groups, with those that it prefers if soft; nil if it has none, or none of these, or if its
// affinities say more than that: then they are for the search.
func (p *Placer) groups(u *Unit, soft bool) *nested {
	if !u.Whole || !slices.ContainsFunc(u.Tasks, func(t Task) bool {
		return len(t.Pods) > 0 && (!soft && len(t.Terms) > 0 || soft && slices.ContainsFunc(t.Prefers, func(o Preference) bool { return o.Group }))
	}) {
		return nil
	}
	type key struct {
		label string
		level int
	}
	at := map[key]*nested{}
	var all []*nested
	whole := &nested{level: anyLevel}
	for t := range u.Tasks {
		task := &u.Tasks[t]
		if len(task.Pods) == 0 {
			continue
		}
		whole.add(u, t)
		for i := range task.Terms {
			o := &task.Terms[i]
			indexed := o.Level <= len(p.state.Levels()) || o.Level == cluster.NodeLevelNum // not a label of nodes
			if !indexed || o.Anti || o.MaxSkew > 0 || !o.Own || p.state.LabelledAnywhere(o.Label) > 0 {
				return nil
			}
			k := key{o.Label, o.Level}
			if at[k] == nil {
				at[k] = &nested{label: o.Label, level: o.Level}
				all = append(all, at[k])
				// All that carry the label must be near it, or some could be elsewhere.
				for _, mate := range o.Mates {
					if !slices.ContainsFunc(u.Tasks[mate].Terms, func(x Term) bool { return x.Label == o.Label && x.Level == o.Level }) {
						return nil
					}
				}
			}
			at[k].add(u, t)
		}
	}
	if soft {
		if all = p.withSoft(u, all); len(all) == 0 || !slices.ContainsFunc(all, func(g *nested) bool { return g.soft }) {
			return nil
		}
	}
	// The widest first: each is a part of the last one before it that has its tasks.
	slices.SortStableFunc(all, func(a, b *nested) int {
		return cmp.Or(cmp.Compare(len(b.tasks), len(a.tasks)), cmp.Compare(a.level, b.level))
	})
	for i, g := range all {
		of := whole
		for _, o := range all[:i] {
			switch o.has(g) {
			case len(g.tasks):
				of = o
			case 0:
			default:
				return nil // they overlap
			}
		}
		of.parts = append(of.parts, g)
	}
	whole.finish(u)
	return whole
}

// withSoft returns groups with those that the tasks of the unit prefer, but for those that overlap with others.
func (p *Placer) withSoft(u *Unit, all []*nested) []*nested {
	for t := range u.Tasks {
		for i := range u.Tasks[t].Prefers {
			o := &u.Tasks[t].Prefers[i]
			indexed := o.Level >= 0 && o.Level <= len(p.state.Levels()) || o.Level == cluster.NodeLevelNum
			if !o.Group || !indexed || slices.ContainsFunc(all, func(g *nested) bool { return g.soft && g.label == o.Label && g.level == o.Level }) {
				continue
			}
			g := &nested{label: o.Label, level: o.Level, soft: true}
			for t := range u.Tasks {
				if len(u.Tasks[t].Pods) > 0 && slices.ContainsFunc(u.Tasks[t].Prefers, func(x Preference) bool { return x.Group && x.Label == o.Label && x.Level == o.Level }) {
					g.add(u, t)
				}
			}
			// Some of its pods may run: then those that come prefer to be near them, as their preference says.
			overlaps := slices.ContainsFunc(all, func(x *nested) bool {
				n := x.has(g)
				return n > 0 && n < len(g.tasks) && n < len(x.tasks)
			})
			if len(g.tasks) > 0 && !overlaps && p.state.LabelledAnywhere(o.Label) == 0 {
				all = append(all, g)
			}
		}
	}
	return all
}

func (g *nested) add(u *Unit, t int) {
	g.tasks = append(g.tasks, t)
	g.gpu += cluster.Milli(len(u.Tasks[t].Pods)) * u.Tasks[t].GPU()
}

// has counts the tasks of o that g has.
func (g *nested) has(o *nested) int {
	n := 0
	for _, t := range o.tasks {
		if slices.Contains(g.tasks, t) {
			n++
		}
	}
	return n
}

// finish puts the parts in order, the one with the most GPUs first, and lists the tasks in none of them.
func (g *nested) finish(u *Unit) {
	slices.SortStableFunc(g.parts, func(a, b *nested) int { return cmp.Compare(b.gpu, a.gpu) })
	inPart := make([]bool, len(u.Tasks))
	for _, part := range g.parts {
		part.finish(u)
		for _, t := range part.tasks {
			inPart[t] = true
		}
	}
	for _, t := range u.order() {
		if slices.Contains(g.tasks, t) && !inPart[t] {
			g.alone = append(g.alone, t)
		}
	}
}

// inGroups places the gang in one domain of a level, its groups each in one of theirs.
func (p *Placer) inGroups(u *Unit, sp space, whole *nested, level int) bool {
	top := *whole
	top.level = level
	ok := p.placeGroup(u, sp, &top)
	p.bounds = p.bounds[:0]
	return ok
}

// inSoftGroups places a gang of which groups are preferred. Of the levels that are tried for the gang, those that are not wider than
// the one that it prefers come first; on them, all its groups as if they were required come before each of them as near as it goes.
func (p *Placer) inSoftGroups(u *Unit, sp space, whole *nested) bool {
	levels := p.levels(u)
	n := len(levels)
	if u.Preferred >= 0 {
		n = 0
		for n < len(levels) && levels[n] >= u.Preferred {
			n++
		}
	}
	defer func() { p.relaxed = false }()
	for _, some := range [2][]int{levels[:n], levels[n:]} {
		for _, p.relaxed = range [2]bool{false, true} {
			for _, level := range some {
				if p.inGroups(u, sp, whole, level) {
					return true
				}
			}
		}
	}
	return false
}

// placeSoft places a group that is preferred in a domain of its level, or of the narrowest wider one that has room for it, or anywhere
// within the bounds.
func (p *Placer) placeSoft(u *Unit, sp space, g *nested) bool {
	around := p.bounds[len(p.bounds)-1]
	one := *g
	one.soft = false
	for {
		if p.placeGroup(u, sp, &one) {
			return true
		}
		if one.level = min(one.level, len(p.state.Levels())+1) - 1; one.level <= around.level || one.level < 0 {
			break
		}
	}
	mark, placed := p.state.Mark(), len(p.out)
	if one.level = around.level; p.fillGroup(u, sp, &one, around.domain) {
		return true
	}
	p.backTo(u, mark, placed)
	return false
}

// placeGroup places a group in the domain of its level that it fits most tightly, of those within the bounds. It reports
// whether it placed all of it; if not, it leaves none of it placed.
func (p *Placer) placeGroup(u *Unit, sp space, g *nested) bool {
	if g.soft && p.relaxed {
		return p.placeSoft(u, sp, g)
	}
	mark, placed := p.state.Mark(), len(p.out)
	for _, c := range p.domainsFor(u, sp, g) {
		p.bounds = append(p.bounds, bound{g.level, c.domain})
		ok := p.fillGroup(u, sp, g, c.domain)
		p.bounds = p.bounds[:len(p.bounds)-1]
		if ok {
			return true
		}
		p.backTo(u, mark, placed)
	}
	return false
}

// fillGroup places what a group consists of in a domain of its level.
func (p *Placer) fillGroup(u *Unit, sp space, g *nested, domain int32) bool {
	for _, part := range g.parts {
		if !p.placeGroup(u, sp, part) {
			return false
		}
	}
	for _, t := range g.alone {
		if u.packs() && u.Tasks[t].GPUs > 0 {
			if !p.pack(u, t, sp[t], g.level, domain) {
				return false
			}
		} else if !p.oneByOne(u, t, sp[t], g.level, domain, u.general()) {
			return false
		}
	}
	return len(p.bounds) > 1 || p.together(u)
}

// backTo takes back what was placed of the unit since the mark, when a number of its pods had been placed.
func (p *Placer) backTo(u *Unit, mark, placed int) {
	for _, x := range p.out[placed:] {
		p.charge(u, u.Tasks[x.Task].Shape, x.Alloc.Node, -1)
	}
	p.state.Rollback(mark)
	p.out, p.last = p.out[:placed], -1
	if placed > 0 {
		p.last = p.out[placed-1].Alloc.Node
	}
}

// inBounds reports whether a node is in each domain that was chosen for groups around the one that is being placed.
func (p *Placer) inBounds(id cluster.NodeID) bool {
	for _, b := range p.bounds {
		if p.domainOf(id, b.level) != b.domain {
			return false
		}
	}
	return true
}

// domainsFor returns the domains of a group's level, within the bounds, that hold the pods of each shape in it by count, the tightest
// first. Tasks of one shape are counted once. O(shapes x nodes).
func (p *Placer) domainsFor(u *Unit, sp space, g *nested) []candidate {
	domains := 1
	switch g.level {
	case anyLevel:
	case cluster.NodeLevelNum:
		domains = p.state.Nodes()
	default:
		domains = p.state.Domains(g.level)
	}
	// 1. The shapes, each with a task that stands for all and how many pods they have together.
	var of, need []int
	for _, t := range g.tasks {
		i := slices.IndexFunc(of, func(o int) bool {
			return u.Tasks[o].Shape == u.Tasks[t].Shape && slices.Equal(sp[o], sp[t])
		})
		if i < 0 {
			i = len(of)
			of, need = append(of, t), append(need, 0)
		}
		need[i] += len(u.Tasks[t].Pods)
	}
	// 2. The domains.
	y := &p.tally
	y.reset(domains)
	for i, t := range of {
		for _, pool := range sp[t] {
			for leaf := range pool.Leaves() {
				for _, id := range pool.LeafNodes(int32(leaf)) {
					if fit := p.takes(u, &u.Tasks[t], id, later); fit > 0 {
						if d := p.domainOf(id, g.level); d >= 0 {
							y.add(i, d, fit, p.state.Node(id).Free())
						}
					}
				}
			}
		}
		y.close(i, need[i])
	}
	out := slices.Collect(y.fitting)
	if len(out) > 1 && u.prefers() {
		for i := range out {
			p.like(u, sp, g.level, &out[i])
		}
	}
	slices.SortFunc(out, candidate.better)
	return out
}

// groupTooLarge says which group of a gang no domain holds when it is empty, by the count of each shape; NoLack if none is.
func (p *Placer) groupTooLarge(u *Unit, g *nested) Shortfall {
	if g.label != "" {
		for _, t := range g.tasks {
			need := 0
			for _, o := range g.tasks {
				if u.Tasks[o].Shape == u.Tasks[t].Shape {
					need += len(u.Tasks[o].Pods)
				}
			}
			held, most := map[int32]int{}, 0
			for id := range cluster.NodeID(p.state.Nodes()) {
				if d := p.domainOf(id, g.level); d >= 0 && !p.state.Lent(id) && p.eligible(u, u.Tasks[t].Shape, id) {
					held[d] = min(held[d]+u.Tasks[t].holdsEmpty(p.state.Node(id).Spec), unlimited)
					most = max(most, held[d])
				}
			}
			if most < need {
				return Shortfall{TooLarge, fmt.Sprintf("%d of its pods, of %s, must be within one %s; the one that comes nearest holds %d when it is empty",
					need, u.Tasks[t].Shape, p.levelName(g.level), most)}
			}
		}
	}
	for _, part := range g.parts {
		if s := p.groupTooLarge(u, part); s.Lack != NoLack {
			return s
		}
	}
	return Shortfall{}
}

// whyGroups says which group of a gang finds no domain with room now, by count, each by itself; "" if all do.
func (p *Placer) whyGroups(u *Unit, g *nested) string {
	if g.label != "" {
		pods, room := 0, false
		for _, t := range g.tasks {
			pods += len(u.Tasks[t].Pods)
		}
		for _, sp := range p.spaces(u) {
			room = room || len(p.domainsFor(u, sp, g)) > 0
		}
		if !room {
			return fmt.Sprintf("%d of its pods must be within one %s; none has room for them", pods, p.levelName(g.level))
		}
	}
	for _, part := range g.parts {
		if s := p.whyGroups(u, part); s != "" {
			return s
		}
	}
	if g.label == "" {
		return "each group of its pods finds a domain by itself, but they do not find one together"
	}
	return ""
}
