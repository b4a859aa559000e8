package place

import (
	"math"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// Topology spread: the pods with a label are to be even over the domains of a level.

// spreads reports whether pods must be spread over the domains of some level.
func (u *Unit) spreads() bool { return slices.ContainsFunc(u.Tasks, Task.spreads) }

func (t Task) spreads() bool {
	return slices.ContainsFunc(t.Terms, func(t Term) bool { return t.MaxSkew > 0 })
}

// asked returns what the pods of the task ask for, on all models that they accept.
func (t *Task) asked() *Shape {
	if t.Asked != nil {
		return t.Asked
	}
	return t.Shape
}

// even reports whether the domain, with one more pod of the task, hosts at most MaxSkew
// more pods with the term's label than the eligible domain that hosts the fewest.
func (p *Placer) even(u *Unit, task *Task, t *Term, domain int32) bool {
	n := p.state.Labelled(t.Label, t.Level, domain)
	if t.Own {
		n++
	}
	if task.After != nil {
		// When the pods of this task were placed, those were not there. To count them when
		// the places are checked again would break a plan that was right.
		n -= task.After(t.Label, t.Level, domain)
	}
	return n-p.fewest(u, task.asked(), t, domain) <= t.MaxSkew
}

// fewest returns the number of pods with the term's label in the eligible domain that hosts the
// fewest of them, besides one domain: the pods there count in full on both sides, and one more
// pod is within any skew of them. That matters if some of them leave or have not arrived: such
// pods count in a domain that gets a pod, and do not in those that it is compared with. If there
// is no other domain, nothing can be too few. O(1) if no label has changed since the last call,
// or if some eligible domain hosts none; else O(eligible domains).
func (p *Placer) fewest(u *Unit, sh *Shape, t *Term, besides int32) int {
	if changes := p.state.LabelChanges(); !t.known || t.changes != changes {
		t.known, t.changes = true, changes
		p.countFewest(u, sh, t)
	}
	if besides == t.fewestAt {
		return t.next
	}
	return t.fewest
}

// countFewest finds the two eligible domains that host the fewest pods with the term's label. If
// there are fewer domains than the term asks for, or one hosts none, the fewest are 0 in all.
func (p *Placer) countFewest(u *Unit, sh *Shape, t *Term) {
	t.fewest, t.fewestAt, t.next = 0, -1, 0
	domains := p.reach(u, sh, t)
	tooFew := len(domains) < t.MinDomains
	someEmpty := len(domains) > p.state.Hosting(t.Label, t.Level)
	if tooFew || someEmpty || len(domains) == 0 {
		return
	}
	t.fewest, t.next = math.MaxInt32, math.MaxInt32
	for _, d := range domains {
		n := p.state.Labelled(t.Label, t.Level, d)
		if n > 0 && u.Absent != nil {
			n -= u.Absent(t.Label, t.Level, d) // they leave, or have not arrived
		}
		if n < t.fewest {
			t.fewest, t.fewestAt, t.next = n, d, t.fewest
		} else {
			t.next = min(t.next, n)
		}
	}
}

// reach is the domains of a level with nodes that a shape may use.
type reach struct {
	level   int
	zone    bool   // nodes of the dedicated zone count
	taint   bool   // whatever their taints
	label   bool   // whatever their labels and models
	losses  uint64 // of nodes, when it was made
	domains []int32
}

// reach returns the domains of a spread's level with nodes that pods of the shape may use, as
// far as the spread asks that they may, whatever is free on them. O(nodes) if nodes have come
// or gone since the last call, else O(1).
func (p *Placer) reach(u *Unit, sh *Shape, t *Term) []int32 {
	zone, losses := u.usesZone(), p.state.Losses()
	var r *reach
	for i := range sh.reach {
		if o := &sh.reach[i]; o.level == t.Level && o.zone == zone && o.taint == t.AnyTaint && o.label == t.AnyLabel {
			r = o
		}
	}
	switch {
	case r == nil:
		sh.reach = append(sh.reach, reach{level: t.Level, zone: zone, taint: t.AnyTaint, label: t.AnyLabel})
		r = &sh.reach[len(sh.reach)-1]
	case r.losses == losses:
		return r.domains
	}
	r.losses, r.domains = losses, r.domains[:0]
	seen := map[int32]bool{}
	for id := range cluster.NodeID(p.state.Nodes()) {
		d := p.state.Domain(id, t.Level)
		if d >= 0 && !seen[d] && p.state.Node(id).Up && !p.state.Lent(id) && p.spreadsOver(u, sh, t, id) {
			seen[d] = true
			r.domains = append(r.domains, d)
		}
	}
	return r.domains
}

// spreadsOver reports whether a node makes its domain eligible for a spread: see [cluster.Term].
func (p *Placer) spreadsOver(u *Unit, sh *Shape, t *Term, id cluster.NodeID) bool {
	if !t.AnyTaint && !t.AnyLabel {
		return p.eligible(u, sh, id)
	}
	pool, r := p.state.Pool(id), sh.request
	return (!pool.Zone || u.usesZone()) && (pool.Model != "" || r.GPU == 0) && (t.AnyTaint || tolerated(pool.Taints, r.Tolerations)) &&
		(t.AnyLabel || accepts(r.Models, pool.Model) && sh.selected(p.state, id))
}

// evenly reports whether the pods of a task are spread as they must be, when the last of them has been placed.
// Pods that are placed later are not there yet, and do not count.
func (p *Placer) evenly(u *Unit, t int) bool {
	task := &u.Tasks[t]
	for k := range task.Terms {
		term := &task.Terms[k]
		if term.MaxSkew == 0 {
			continue
		}
		for i := range p.out {
			if p.out[i].Task != t {
				continue
			}
			d := p.state.Domain(p.out[i].Alloc.Node, term.Level)
			if p.state.Labelled(term.Label, term.Level, d)-p.fewest(u, task.asked(), term, d) > term.MaxSkew {
				return false
			}
		}
	}
	return true
}
