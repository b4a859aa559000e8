package peers

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// Surroundings is what the engine knows about a pod and the pods around it, each list in a
// fixed order.
type Surroundings struct {
	Labels []string
	Terms  []core.Term
	// Prefers is what the pod prefers of the pods around it.
	Prefers []core.Preference
}

// Equal reports whether two surroundings are the same.
func (s *Surroundings) Equal(o *Surroundings) bool {
	return slices.Equal(s.Labels, o.Labels) && slices.Equal(s.Terms, o.Terms) &&
		slices.EqualFunc(s.Prefers, o.Prefers, func(a, b core.Preference) bool {
			return a.Weight == b.Weight && a.Level == b.Level && a.Label == b.Label && a.Group == b.Group
		})
}

// none is the surroundings of all pods while none requires anything of others.
var none Surroundings

// View is how the pods stand to each other at a moment. The next observation ends it.
type View struct {
	index *Index
	level func(key string) (string, bool)
	known map[kind]*Surroundings
}

// kind is pods that have the same surroundings.
type kind struct {
	*sort
	wants
	ours bool
}

// Look returns a view of the index. level returns the engine's name of the topology
// level that a node label makes, false where it makes none.
func (x *Index) Look(level func(key string) (string, bool)) *View {
	return &View{x, level, map[kind]*Surroundings{}}
}

// Level returns the engine's name of the topology level that a node label makes, false where it makes none.
func (v *View) Level(key string) (string, bool) { return v.level(key) }

// Empty reports whether no pod requires anything of others, so that the surroundings of
// all are empty.
func (v *View) Empty() bool { return len(v.index.selected)+len(v.index.ports) == 0 }

// Of returns the surroundings of a pod, which must not be changed.
func (v *View) Of(p *Pod) *Surroundings {
	if v.Empty() {
		return &none
	}
	k := kind{p.sort, p.wants, p.Ours}
	if v.known[k] == nil {
		v.known[k] = v.find(p)
	}
	return v.known[k]
}

func (v *View) find(p *Pod) *Surroundings {
	labels, terms := map[string]bool{}, map[core.Term]bool{}
	var prefers []core.Preference
	for i := range p.Terms {
		t := &p.Terms[i]
		level, ok := v.level(t.Key)
		switch {
		case ok && t.Weight != 0 && p.Ours:
			prefers = append(prefers, core.Preference{Weight: t.Weight, Level: level, Label: among(t.Peers), Group: t.Group})
		case ok && t.Weight == 0: // else others placed it, or we under another topology
			terms[core.Term{
				Level: level, Label: among(t.Peers), Anti: t.Anti, MaxSkew: t.MaxSkew, MinDomains: t.MinDomains, AnyTaint: t.AnyTaint, AnyLabel: t.AnyLabel,
			}] = true
		}
	}
	for _, q := range p.Ports {
		for _, l := range q.Labels() {
			labels[l] = true
		}
		for _, t := range q.Terms() {
			terms[t] = true
		}
	}
	for s := range v.index.selecting(p) {
		labels[among(s.Peers)] = true
	}
	if !p.Ours { // it is where it is, but keeps others off
		maps.DeleteFunc(terms, func(t core.Term, _ bool) bool { return !t.Anti })
	}
	return &Surroundings{slices.Sorted(maps.Keys(labels)), slices.SortedFunc(maps.Keys(terms), compareTerms), prefers}
}

// among is the label by which the engine knows the pods that selectors select.
func among(p *translate.Peers) string { return "among: " + p.Name }

func compareTerms(a, b core.Term) int {
	if a.Anti != b.Anti {
		if a.Anti {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Label, b.Label), cmp.Compare(a.MaxSkew, b.MaxSkew), cmp.Compare(a.MinDomains, b.MinDomains),
		cluster.LastIf(a.AnyTaint, b.AnyTaint), cluster.LastIf(a.AnyLabel, b.AnyLabel))
}

// Matters reports whether a pod of another scheduler restrains ours, beyond what it
// takes of its node.
func (x *Index) Matters(p *Pod) bool {
	if len(p.Terms) > 0 {
		return true
	}
	for range x.selecting(p) {
		return true
	}
	return slices.ContainsFunc(p.Ports, func(q translate.Port) bool { return x.ports[q.String()].ours > 0 })
}

// selecting yields, in any order, what selects a pod: of the selectors that ask for a label, only those that ask for one of its own are
// looked at.
func (x *Index) selecting(p *Pod) func(func(*selected) bool) {
	return func(yield func(*selected) bool) {
		for _, n := range []string{p.Namespace, ""} {
			for s := range x.named[place{namespace: n, any: true}] {
				if x.selects(s, p.sort) && !yield(s) {
					return
				}
			}
			for key, v := range p.sort.all() {
				for _, at := range []place{{namespace: n, key: key, value: v}, {namespace: n, key: key, any: true}} {
					for s := range x.named[at] {
						if x.selects(s, p.sort) && !yield(s) {
							return
						}
					}
				}
			}
		}
	}
}
