package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// What pods require of the pods around them. The engine knows labels of roles, so
// each selector that a live pod uses is a label, and the roles carry it whose pods
// match: those that run when a selector comes are relabelled.
//
// The pods of a role are alike in what they require and in who means them. When a
// selector comes that means some of them alone, the engine is told of the job anew.

// around is who is meant, and by whom.
type around struct {
	// sorts has the pods that are alike: of one namespace, with the same labels.
	sorts map[sortKey]*sort
	// having has the sorts by their value of a label, for the labels that selectors
	// have asked for: most selectors ask for one value of one label.
	having map[string]map[string]map[*sort]bool
	// by has the sorts of each namespace.
	by    map[string]map[*sort]bool
	peers map[string]*meant
	// named has those of peers that may be in a namespace, and under "" those that
	// may be in any.
	named map[string]map[*meant]bool
	// ports has the ports that our pods ask for, and on what, by name.
	ports map[string]*port
}

type sortKey struct {
	namespace string
	labels    translate.Labels
}

// sort is pods that are alike to all selectors.
type sort struct {
	sortKey
	set  labels.Set // nil until it is asked for
	pods map[types.UID]*pod
	// kept says that disruption budgets keep such pods from being evicted now.
	kept bool
}

// meant is pods that terms of live pods mean.
type meant struct {
	*translate.Peers
	terms int // how many
}

// port is a port of nodes that pods of ours take.
type port struct {
	users int
	// lone has the pods that take it of which the engine does not know.
	lone map[types.UID]*pod
}

func newAround() around {
	return around{
		sorts: map[sortKey]*sort{}, having: map[string]map[string]map[*sort]bool{}, by: map[string]map[*sort]bool{}, peers: map[string]*meant{},
		named: map[string]map[*meant]bool{}, ports: map[string]*port{},
	}
}

// among is the label by which the engine knows the pods that selectors mean.
func among(p *translate.Peers) string { return "among: " + p.Name }

// appear counts a pod among those around.
func (m *mirror) appear(p *pod) {
	a, o := &m.around, p.object
	p.wants = wantsOf(o)
	m.joinSort(p, o.labels)
	for i := range o.terms {
		m.mean(&o.terms[i])
	}
	for _, q := range o.ports {
		of := a.port(q)
		if !o.ours {
			continue
		}
		if of.users++; of.users == 1 {
			for _, lone := range of.lone {
				m.enlist(lone)
			}
		}
	}
}

// mean takes in a term of a pod.
func (m *mirror) mean(t *translate.Term) {
	a := &m.around
	u := a.peers[t.Peers.Name]
	if u == nil {
		u = &meant{Peers: t.Peers}
		a.peers[u.Name] = u
		for _, n := range u.where() {
			put(a.named, n, u)
		}
	}
	t.Peers = u.Peers // pods of one template share it
	if u.terms++; u.terms > 1 {
		return
	}
	if key, values, ok := u.Pair(); ok {
		for _, v := range values {
			for s := range a.with(key)[v] {
				m.relabelSort(u, s)
			}
		}
		return
	}
	if u.ByLabel {
		for _, s := range a.sorts {
			m.relabelSort(u, s)
		}
		return
	}
	for _, n := range u.Namespaces {
		for s := range a.by[n] {
			m.relabelSort(u, s)
		}
	}
}

// with returns the sorts by their value of a label.
func (a *around) with(key string) map[string]map[*sort]bool {
	by := a.having[key]
	if by == nil {
		by = map[string]map[*sort]bool{}
		a.having[key] = by
		for _, s := range a.sorts {
			if v, ok := s.all()[key]; ok {
				put(by, v, s)
			}
		}
	}
	return by
}

// all returns the labels of the pods.
func (s *sort) all() labels.Set {
	if s.set == nil {
		s.set = s.labels.Set()
	}
	return s.set
}

// relabelSort has the jobs of pods that are meant looked at again.
func (m *mirror) relabelSort(u *meant, s *sort) {
	if !m.means(u, s) {
		return
	}
	for _, p := range s.pods {
		if p.group != nil {
			m.relabel(p.group)
		} else {
			m.enlist(p)
		}
	}
}

func (m *mirror) means(u *meant, s *sort) bool {
	return u.Match(s.namespace, m.namespaces[s.namespace], s.all())
}

// where lists the keys of around.named.
func (u *meant) where() []string {
	if u.ByLabel {
		return []string{""}
	}
	return u.Namespaces
}

// disappear takes a pod from among those around. What it meant others need not be
// told: labels that nobody asks for do no harm.
func (m *mirror) disappear(p *pod) {
	a, o := &m.around, p.object
	m.leaveSort(p)
	for i := range o.terms {
		t := &o.terms[i]
		u := a.peers[t.Peers.Name]
		if u.terms--; u.terms == 0 {
			delete(a.peers, u.Name)
			for _, n := range u.where() {
				cut(a.named, n, u)
			}
		}
	}
	for _, q := range o.ports {
		of := a.port(q)
		delete(of.lone, o.UID)
		if o.ours {
			of.users--
		}
		if of.users == 0 && len(of.lone) == 0 {
			delete(a.ports, q.String())
		}
	}
}

// joinSort files a pod with those that have the same labels.
func (m *mirror) joinSort(p *pod, l translate.Labels) {
	k := sortKey{p.object.Namespace, l}
	s := m.around.sorts[k]
	if s == nil {
		s = &sort{sortKey: k, pods: map[types.UID]*pod{}}
		s.kept = m.budgets.keep(s)
		m.around.sorts[k] = s
		put(m.around.by, k.namespace, s)
		for key, by := range m.around.having {
			if v, ok := s.all()[key]; ok {
				put(by, v, s)
			}
		}
	}
	s.pods[p.object.UID], p.sort = p, s
}

func (m *mirror) leaveSort(p *pod) {
	s := p.sort
	if delete(s.pods, p.object.UID); len(s.pods) == 0 {
		delete(m.around.sorts, s.sortKey)
		for key, by := range m.around.having {
			if v, ok := s.all()[key]; ok {
				cut(by, v, s)
			}
		}
		cut(m.around.by, s.namespace, s)
	}
}

// namespaceRelabelled has all looked at again that may be meant by the labels of
// their namespace.
func (m *mirror) namespaceRelabelled(name string) {
	if len(m.around.named[""]) == 0 {
		return
	}
	for s := range m.around.by[name] {
		for _, p := range s.pods {
			if p.group != nil {
				m.relabel(p.group)
			} else if m.matters(p) {
				m.enlist(p)
			}
		}
	}
}

func (a *around) port(q translate.Port) *port {
	name := q.String()
	of := a.ports[name]
	if of == nil {
		of = &port{lone: map[types.UID]*pod{}}
		a.ports[name] = of
	}
	return of
}

// meaning yields those of peers that mean pods of a sort.
func (m *mirror) meaning(s *sort) func(func(*meant) bool) {
	return func(yield func(*meant) bool) {
		for _, n := range []string{s.namespace, ""} {
			for u := range m.around.named[n] {
				if m.means(u, s) && !yield(u) {
					return
				}
			}
		}
	}
}

// matters reports whether a pod of another scheduler restrains ours, beyond what it
// takes of its node.
func (m *mirror) matters(p *pod) bool {
	if len(p.object.terms) > 0 {
		return true
	}
	for range m.meaning(p.sort) {
		return true
	}
	return slices.ContainsFunc(p.object.ports, func(q translate.Port) bool { return m.around.port(q).users > 0 })
}

// enlist makes a pod of another scheduler a job of the engine's, which its node
// alone told of before.
func (m *mirror) enlist(p *pod) {
	m.uncount(p)
	for _, q := range p.object.ports {
		delete(m.around.port(q).lone, p.object.UID)
	}
	m.join(p)
}

// alone counts a pod of another scheduler as something that its node lacks.
func (m *mirror) alone(p *pod) {
	m.countOn(p)
	for _, q := range p.object.ports {
		m.around.port(q).lone[p.object.UID] = p
	}
}

// relabel has the labels of a group looked at before the next decision.
func (m *mirror) relabel(g *group) {
	g.relabel = true
	m.touch(g)
}

// surroundings is what the engine is told of the pods of a role and those around.
type surroundings struct {
	labels []string
	terms  []core.Term
}

func (s *surroundings) equal(o *surroundings) bool {
	return slices.Equal(s.labels, o.labels) && slices.Equal(s.terms, o.terms)
}

// wants is what a pod requires of others, in words.
type wants = unique.Handle[string]

func wantsOf(o *podObject) wants {
	var b strings.Builder
	for i := range o.terms {
		t := &o.terms[i]
		fmt.Fprintf(&b, "%q %q %v %d %d\n", t.Peers.Name, t.Key, t.Anti, t.MaxSkew, t.MinDomains)
	}
	for _, q := range o.ports {
		fmt.Fprintf(&b, "%v %q\n", q, q.Address)
	}
	return unique.Make(b.String())
}

// views are the surroundings of pods that are alike, as they are now.
type views map[view]*surroundings

type view struct {
	*sort
	wants
}

// nobody is the surroundings of all pods while none requires anything of others.
var nobody surroundings

func (m *mirror) nobodyAround() bool { return len(m.around.peers)+len(m.around.ports) == 0 }

// surroundingsOf returns what the engine is to be told of a pod.
func (m *mirror) surroundingsOf(p *pod, known views) *surroundings {
	if m.nobodyAround() {
		return &nobody
	}
	k := view{p.sort, p.wants}
	if known[k] == nil {
		known[k] = m.lookAround(p)
	}
	return known[k]
}

func (m *mirror) lookAround(p *pod) *surroundings {
	labels, terms := map[string]bool{}, map[core.Term]bool{}
	for i := range p.object.terms {
		t := &p.object.terms[i]
		if level, ok := m.level(t.Key); ok { // else others placed it, or we under another topology
			terms[core.Term{Level: level, Label: among(t.Peers), Anti: t.Anti, MaxSkew: t.MaxSkew, MinDomains: t.MinDomains}] = true
		}
	}
	for _, q := range p.object.ports {
		for _, l := range q.Labels() {
			labels[l] = true
		}
		for _, t := range q.Terms() {
			terms[t] = true
		}
	}
	for u := range m.meaning(p.sort) {
		labels[among(u.Peers)] = true
	}
	if !p.object.ours { // it is where it is, but keeps others off
		maps.DeleteFunc(terms, func(t core.Term, _ bool) bool { return !t.Anti })
	}
	return &surroundings{slices.Sorted(maps.Keys(labels)), slices.SortedFunc(maps.Keys(terms), compareTerms)}
}

func compareTerms(a, b core.Term) int {
	if a.Anti != b.Anti {
		if a.Anti {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Label, b.Label), cmp.Compare(a.MaxSkew, b.MaxSkew), cmp.Compare(a.MinDomains, b.MinDomains))
}

// tellSurroundings brings the labels and terms of a live job up to date.
func (m *mirror) tellSurroundings(g *group) {
	if !g.relabel || !g.submitted {
		return
	}
	g.relabel = false
	now, ok := m.surroundingsOfRoles(g)
	if !ok {
		m.tellAnew(g)
		return
	}
	for _, t := range g.tasks {
		if s := now[t]; s != nil && !s.equal(&t.around) {
			m.mustTell(core.JobRelabelled{Job: g.job, Task: t.name, Labels: s.labels, Affinity: s.terms})
			t.around = *s
		}
	}
}

// surroundingsOfRoles returns what the engine is to be told of each role of a group
// that has pods, and false when the pods of one differ.
func (m *mirror) surroundingsOfRoles(g *group) (map[*task]*surroundings, bool) {
	now, known := map[*task]*surroundings{}, views{}
	if m.nobodyAround() {
		for _, t := range g.tasks {
			now[t] = &nobody
		}
		return now, true
	}
	for _, p := range g.slots {
		if p == nil {
			continue
		}
		s := m.surroundingsOf(p, known)
		if now[p.task] == nil {
			now[p.task] = s
		} else if !s.equal(now[p.task]) {
			return nil, false
		}
	}
	return now, true
}

// tellAnew takes the job of a group back, which is submitted again as it is now.
func (m *mirror) tellAnew(g *group) {
	m.mustTell(core.JobEnded{Job: g.job})
	delete(m.jobs, g.job)
	m.startOver(g)
}

// cannotMean says which terms of a group's pods have no level of the topology.
func (m *mirror) cannotMean(g *group) string {
	for _, p := range g.pods {
		for i := range p.object.terms {
			if _, ok := m.level(p.object.terms[i].Key); !ok {
				return fmt.Sprintf("topologyKey %s is no level of the topology: expected one of %s", p.object.terms[i].Key, m.levelNames())
			}
		}
	}
	return ""
}

func put[K comparable](by map[string]map[K]bool, at string, k K) {
	if by[at] == nil {
		by[at] = map[K]bool{}
	}
	by[at][k] = true
}

func cut[K comparable](by map[string]map[K]bool, at string, k K) {
	if delete(by[at], k); len(by[at]) == 0 {
		delete(by, at)
	}
}
